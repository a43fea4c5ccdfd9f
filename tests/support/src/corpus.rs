//! Runs the configuration corpus: inputs with the right answers, see `tests/contract/config-corpus`.
//!
//! `NAME.yml` has its canonical and effective form in `NAME.json`, its refusal in `NAME.error`; `vectors/*.json` have one
//! array an algorithm. Used by the tests of the API model and by `cargo xtask corpus`.

// Named, since tests of the API model include this file from elsewhere.
#[path = "corpus/vectors.rs"]
mod vectors;

use std::collections::BTreeMap;
use std::path::Path;

use dstack_api::config::{self};
use dstack_api::config::{
    ClientConfig, Configuration, Mode, Profile, ProfilesConfig, PythonVersion, RunConfiguration,
    ServerConfig,
};
use dstack_api::plan::{self, Bootstrap, DefaultImages, ImageFacts, JobSettings, PlanLimits};
use dstack_api::runs::RunSpec;
use dstack_api::yaml;
use serde_json::{Value, json};

pub use vectors::run_vectors;

/// What came out.
#[derive(Debug, Default)]
pub struct Report {
    /// Files or rows that gave the right answer.
    pub passed: usize,
    /// The others, with the difference.
    pub failed: Vec<(String, String)>,
    /// What is left to other rooms or known to differ, with the reason.
    pub skipped: Vec<(String, &'static str)>,
}

impl Report {
    fn note(&mut self, name: String, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(why) => self.failed.push((name, why)),
        }
    }
}

/// Why the keys of a backend are not looked at.
const PLUGIN: &str = "the backend's plugin reads its keys";

/// Files that differ on purpose.
const DIFFERENT: &[(&str, &str)] = &[
    (
        "edge-backend-bad",
        "any plugin may bring a backend, so an unknown name is a warning",
    ),
    (
        "edge-server-unknown-backend",
        "any plugin may bring a backend",
    ),
    ("real-094-mkdocs-docs-concepts-backends", PLUGIN),
    ("real-098-mkdocs-docs-concepts-backends", PLUGIN),
    ("real-099-mkdocs-docs-concepts-backends", PLUGIN),
    ("real-104-mkdocs-docs-concepts-backends", PLUGIN),
    ("real-113-mkdocs-docs-concepts-backends", PLUGIN),
    ("real-115-mkdocs-docs-concepts-backends", PLUGIN),
];

/// Runs every `*.yml` of a folder.
///
/// # Errors
/// The folder cannot be read.
pub fn run_files(folder: &Path) -> std::io::Result<Report> {
    let mut report = Report::default();
    let mut paths: Vec<_> = std::fs::read_dir(folder)?
        .filter_map(|e| Some(e.ok()?.path()))
        .collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "yml"));
    paths.sort();
    for path in paths {
        let name = path
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or_default()
            .to_owned();
        if let Some((_, why)) = DIFFERENT.iter().find(|(known, _)| *known == name) {
            report.skipped.push((name, why));
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let answer = |ext| -> Option<Value> {
            serde_json::from_str(&std::fs::read_to_string(path.with_extension(ext)).ok()?).ok()
        };
        let result = check_file(
            &name,
            &text,
            answer("json").as_ref(),
            answer("error").as_ref(),
        );
        report.note(name, result);
    }
    Ok(report)
}

fn check_file(
    name: &str,
    text: &str,
    expected: Option<&Value>,
    refusal: Option<&Value>,
) -> Result<(), String> {
    let kind = expected
        .and_then(|e| e["kind"].as_str())
        .map_or_else(|| kind_of(name, text), str::to_owned);
    let parsed = match kind.as_str() {
        "profiles" => canonical(yaml::parse::<ProfilesConfig>(name, text, Mode::Strict)),
        "server-config" => canonical(yaml::parse::<ServerConfig>(name, text, Mode::Strict)),
        "client-config" => canonical(yaml::parse::<ClientConfig>(name, text, Mode::Strict)),
        _ => canonical(yaml::parse::<Configuration>(name, text, Mode::Strict)),
    };
    match (parsed, expected, refusal) {
        (Err(errors), None, Some(refusal)) => check_refusal(&errors, refusal),
        (Err(errors), Some(_), _) => Err(format!("refused: {errors}")),
        (Err(errors), None, None) => Err(format!("no answer to compare with, refused: {errors}")),
        (Ok(parsed), None, _) => Err(format!("accepted as {parsed}")),
        (Ok(parsed), Some(expected), refusal) => {
            let want = if kind == "server-config" {
                without_nulls(&expected["parsed"])
            } else {
                expected["parsed"].clone()
            };
            let got = if kind == "server-config" {
                without_nulls(&parsed)
            } else {
                parsed.clone()
            };
            if let Some(difference) = difference(&got, &want, "parsed") {
                return Err(difference);
            }
            if kind != "configuration" {
                return Ok(());
            }
            // The canonical form must be read as it is, by strict and by tolerant readers.
            let again = config::read::<Configuration>(&parsed, Mode::Strict)
                .map_err(|problems| format!("canonical form refused: {problems}"))?;
            let again = serde_json::to_value(again.value).map_err(|e| e.to_string())?;
            if let Some(difference) = difference(&again, &parsed, "reread") {
                return Err(difference);
            }
            check_plan(&parsed, expected.get("effective"), refusal)
        }
    }
}

fn canonical<T: serde::Serialize>(
    parsed: Result<yaml::Parsed<T>, yaml::YamlErrors>,
) -> Result<Value, yaml::YamlErrors> {
    parsed.map(|parsed| serde_json::to_value(parsed.value).unwrap_or(Value::Null))
}

/// Refused files do not say what they are; their name and their keys do.
fn kind_of(name: &str, text: &str) -> String {
    let kind = if name.starts_with("edge-profiles") {
        "profiles"
    } else if name.starts_with("edge-server") {
        "server-config"
    } else if name.starts_with("edge-client") {
        "client-config"
    } else if text.contains("\nprofiles:") || text.starts_with("profiles:") {
        "profiles"
    } else if (text.contains("\nprojects:") || text.starts_with("projects:"))
        && !text.contains("type: preset")
    {
        "server-config"
    } else {
        "configuration"
    };
    kind.to_owned()
}

fn check_refusal(errors: &yaml::YamlErrors, refusal: &Value) -> Result<(), String> {
    let wanted = refusal["path"].as_str().unwrap_or_default();
    let related = |path: &str| {
        let inside = |outer: &str, inner: &str| {
            outer.is_empty() || inner == outer || inner.starts_with(&format!("{outer}."))
        };
        inside(wanted, path) || inside(path, wanted)
    };
    if refusal["stage"] != "parse" {
        return Err(format!("refused when parsed: {errors}"));
    }
    let listed = refusal["errors"].as_array().into_iter().flatten();
    let listed: Vec<_> = listed.filter_map(|error| error["path"].as_str()).collect();
    let fits = |path: &str| related(path) || listed.contains(&path);
    match errors
        .problems
        .iter()
        .any(|problem| fits(&problem.path.to_string()))
    {
        true => Ok(()),
        false => Err(format!(
            "refused elsewhere: {errors}; expected at {wanted:?}"
        )),
    }
}

/// Compares what becomes of a configuration with the effective form or with its refusal.
fn check_plan(
    parsed: &Value,
    effective: Option<&Value>,
    refusal: Option<&Value>,
) -> Result<(), String> {
    let mut configuration: Configuration =
        serde_json::from_value(parsed.clone()).map_err(|e| e.to_string())?;
    let stage = refusal.and_then(|refusal| refusal["stage"].as_str());
    // Bare names become placeholders, but one that is only referred to stays unknown.
    let lookup = |name: &str| Some(format!("<{name}>"));
    let prepared = plan::prepare(&mut configuration, &[], lookup);
    match (prepared, stage) {
        (Err(_), Some("cli")) => return Ok(()),
        (Err(error), _) => return Err(format!("refused by the client: {error}")),
        (Ok(()), Some("cli")) => return Err("accepted by the client".to_owned()),
        (Ok(()), _) => {}
    }
    match (planned(&configuration), stage) {
        (Err(_), Some(_)) => Ok(()),
        (Err(error), None) => Err(format!("refused by the server: {error}")),
        (Ok(got), Some(_)) => Err(format!("accepted by the server: {got}")),
        (Ok(got), None) => match effective.filter(|effective| !effective.is_null()) {
            Some(effective) => difference(&got, effective, "effective").map_or(Ok(()), Err),
            None => Ok(()),
        },
    }
}

fn planned(configuration: &Configuration) -> Result<Value, String> {
    let text = |error: plan::PlanError| error.to_string();
    let limits = PlanLimits::default();
    match configuration {
        Configuration::Run(run) => planned_run(run, &limits),
        Configuration::Fleet(fleet) => {
            plan::check_fleet(fleet).map_err(text)?;
            let profile = plan::merged_fleet_profile(fleet, &Profile::empty("default"));
            let requirements = plan::fleet_requirements(fleet, &profile);
            Ok(
                json!({"configuration": fleet, "merged_profile": profile, "requirements": requirements}),
            )
        }
        Configuration::Gateway(gateway) => plan::check_gateway(gateway, &limits)
            .map_err(text)
            .map(|()| Value::Null),
        Configuration::Volume(volume) => plan::check_volume(volume)
            .map_err(text)
            .map(|()| Value::Null),
        Configuration::Preset(_) => Ok(Value::Null),
    }
}

fn run_spec(run: &RunConfiguration) -> Result<RunSpec, String> {
    serde_json::from_value(json!({"configuration": run})).map_err(|e| e.to_string())
}

fn planned_run(run: &RunConfiguration, limits: &PlanLimits) -> Result<Value, String> {
    let mut spec = run_spec(run)?;
    spec.profile = Some(Profile::empty("default"));
    let effective = plan::effective_run(spec, limits).map_err(|e| e.to_string())?;
    let images = DefaultImages::default();
    let facts = ImageFacts {
        architectures: vec![dstack_backend_types::CpuArchitecture::X86],
        user: None,
        entrypoint: vec!["/entrypoint".to_owned()],
        command: vec!["serve".to_owned(), "--default".to_owned()],
    };
    let named = plan::image_names(&effective.spec.configuration)
        .into_iter()
        .flatten();
    let facts: BTreeMap<_, _> = named.map(|(image, _)| (image, facts.clone())).collect();
    let settings = JobSettings {
        images: &images,
        registry: None,
        python: PythonVersion::Py312,
        bootstrap: &Tokens,
        facts: &facts,
    };
    let mut jobs = Vec::new();
    for group in 0..plan::replica_group_count(&effective.spec.configuration) {
        let replica = plan::replica_jobs(&effective.spec, &effective.profile, 0, group, &settings)
            .map_err(|e| e.to_string())?;
        for job in replica
            .into_iter()
            .filter(|job| job.node_group_job_index == 0)
        {
            let mut job = serde_json::to_value(job).map_err(|e| e.to_string())?;
            if let Value::Object(fields) = &mut job {
                for key in ["ssh_key", "repo_data", "repo_code_hash", "file_archives"] {
                    fields.remove(key);
                }
            }
            jobs.push(job);
        }
    }
    Ok(json!({
        "configuration": effective.spec.configuration,
        "merged_profile": effective.profile,
        "initial_job_count": plan::initial_job_count(&effective.spec.configuration),
        "jobs": jobs,
    }))
}

/// The marks of the corpus in place of commands.
struct Tokens;

impl Bootstrap for Tokens {
    fn python(&self, version: PythonVersion) -> Vec<String> {
        vec![format!("<python {version}>")]
    }
    fn docker(&self) -> Vec<String> {
        vec!["start-dockerd".to_owned()]
    }
    fn install_ide(&self, _: config::Ide, _: &str) -> Vec<String> {
        vec!["<ide install>".to_owned()]
    }
    fn notebooks(&self) -> Vec<String> {
        vec!["<ipykernel>".to_owned()]
    }
    fn ide_hints(&self, _: config::Ide, _: &str, _: &str) -> Vec<String> {
        vec!["<ide hints>".to_owned()]
    }
    fn ssh_hint(&self, _: &str) -> Vec<String> {
        vec!["<ssh hint>".to_owned()]
    }
    fn idle(&self) -> Vec<String> {
        vec!["<idle>".to_owned()]
    }
}

/// Plugins fill in what their backends leave out, so that only what was written is compared.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, v)| !v.is_null() && **v != json!(""));
            Value::Object(kept.map(|(k, v)| (k.clone(), without_nulls(v))).collect())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// The first place where two values differ; 1 and 1.0 are the same.
fn difference(got: &Value, want: &Value, path: &str) -> Option<String> {
    match (got, want) {
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => None,
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .find_map(|(i, (a, b))| difference(a, b, &format!("{path}.{i}"))),
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<_> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            keys.into_iter()
                .find_map(|key| match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => difference(a, b, &format!("{path}.{key}")),
                    (None, Some(b)) => Some(format!("{path}.{key}: missing, expected {b}")),
                    (Some(a), None) => Some(format!("{path}.{key}: {a} is too much")),
                    (None, None) => None,
                })
        }
        (a, b) if a == b => None,
        (a, b) => Some(format!("{path}: got {a}, expected {b}")),
    }
}

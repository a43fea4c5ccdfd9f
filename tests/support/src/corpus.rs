//! Runs the configuration corpus: inputs with the right answers, see `tests/contract/config-corpus`.
//!
//! `NAME.yml` has its canonical and effective form in `NAME.json`, its refusal in `NAME.error`; `vectors/*.json` have one
//! array an algorithm. Used by the tests below and by `cargo xtask corpus`.

mod boot;
mod known;
mod offers;
#[cfg(test)]
mod tests;
mod vectors;

use std::collections::BTreeMap;
use std::path::Path;

use dstack_api::config::{self};
use dstack_api::config::{
    ClientConfig, Configuration, FromValue, Mode, Profile, ProfilesConfig, PythonVersion,
    RunConfiguration, ServerConfig,
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
    /// Rows that the corpus lets an implementation refuse, and that this one refuses, with the reason. Not passed.
    pub refused: Vec<(String, &'static str)>,
    /// Files whose topic is built later, with what it waits for. Not passed.
    pub open: Vec<(String, &'static str)>,
}

impl Report {
    fn note(&mut self, name: String, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(why) => self.failed.push((name, why)),
        }
    }

    /// Adds another report.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.refused.extend(other.refused);
        self.open.extend(other.open);
    }
}

/// Runs every `*.yml` of a folder, and its `vectors/` if it has some.
///
/// # Errors
/// A file cannot be read.
pub fn run_folder(folder: &Path) -> std::io::Result<Report> {
    let mut report = run_files(folder)?;
    let vectors = folder.join("vectors");
    if vectors.is_dir() {
        report.add(run_vectors(&vectors)?);
    }
    Ok(report)
}

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
        if let Some((_, why)) = known::OPEN_FILES.iter().find(|(open, _)| *open == name) {
            report.open.push((name, why));
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

/// A file that was read.
struct Parsed {
    canonical: Value,
    warnings: Vec<yaml::Located>,
    /// What the canonical form gives when it is read like a file.
    again: Result<Value, String>,
}

fn parsed<T: FromValue + serde::Serialize>(
    name: &str,
    text: &str,
) -> Result<Parsed, yaml::YamlErrors> {
    let parsed = yaml::parse::<T>(name, text, Mode::Strict)?;
    let canonical = serde_json::to_value(parsed.value).unwrap_or(Value::Null);
    let again = yaml::parse::<T>(name, &yaml::to_yaml(&canonical), Mode::Strict)
        .map_err(|errors| errors.to_string())
        .and_then(|again| serde_json::to_value(again.value).map_err(|e| e.to_string()));
    Ok(Parsed {
        canonical,
        warnings: parsed.warnings,
        again,
    })
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
    let read = match kind.as_str() {
        "profiles" => parsed::<ProfilesConfig>(name, text),
        "server-config" => parsed::<ServerConfig>(name, text),
        "client-config" => parsed::<ClientConfig>(name, text),
        _ => parsed::<Configuration>(name, text),
    };
    match (read, expected, refusal) {
        (Err(errors), None, Some(refusal)) => {
            check_places(&errors, text)?;
            check_refusal(&errors, refusal)
        }
        (Err(errors), Some(_), _) => Err(format!("refused: {errors}")),
        (Err(errors), None, None) => Err(format!("no answer to compare with, refused: {errors}")),
        (Ok(read), None, refusal) => {
            let path = refusal.and_then(|refusal| refusal["path"].as_str());
            let told = |warning: &yaml::Located| {
                path.is_some_and(|path| {
                    format!("{}.", warning.path).starts_with(&format!("{path}."))
                })
            };
            if known::WARNED_FILES.contains(&name) && read.warnings.iter().any(told) {
                return Ok(());
            }
            Err(format!("accepted as {}", read.canonical))
        }
        (Ok(read), Some(expected), refusal) => {
            let only_written = kind == "server-config";
            let form = |value: &Value| match only_written {
                true => without_nulls(value),
                false => value.clone(),
            };
            if let Some(difference) =
                difference(&form(&read.canonical), &form(&expected["parsed"]), "parsed")
            {
                return Err(difference);
            }
            let again = read
                .again
                .map_err(|problems| format!("canonical form refused: {problems}"))?;
            if let Some(difference) = difference(&again, &read.canonical, "reread") {
                return Err(difference);
            }
            match kind.as_str() {
                "configuration" => check_plan(&read.canonical, expected.get("effective"), refusal),
                _ => Ok(()),
            }
        }
    }
}

/// Every error must be somewhere in the text.
fn check_places(errors: &yaml::YamlErrors, text: &str) -> Result<(), String> {
    let lines: Vec<_> = text.lines().collect();
    for problem in &errors.problems {
        let line = lines.get(problem.line - 1).map_or(0, |l| l.chars().count());
        let end = lines.len().max(1) + 1;
        if problem.line > end || problem.column > line + 1 {
            return Err(format!("the error is outside of the text: {problem}"));
        }
    }
    Ok(())
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

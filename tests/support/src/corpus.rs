//! Runs the configuration corpus: inputs with the right answers, see `tests/contract/config-corpus`.
//!
//! `NAME.yml` has its canonical and effective form in `NAME.json`, its refusal in `NAME.error`; `vectors/*.json` have one
//! array an algorithm. Used by the tests of the API model and by `cargo xtask corpus`.

use std::collections::BTreeMap;
use std::path::Path;

use dstack_api::config::{self, duration, names};
use dstack_api::config::{
    ClientConfig, Configuration, Cron, EntityReference, Env, EnvValue, FileMapping, FromValue,
    InstanceSelector, Limit, Mode, MountPoint, PortMapping, Profile, ProfileParams, ProfileRetry,
    ProfilesConfig, PythonVersion, Reader, RepoSpec, RunConfiguration, ServerConfig,
};
use dstack_api::jobs::UnixUser;
use dstack_api::plan::interpolate::{Namespace, Namespaces, interpolate};
use dstack_api::plan::{
    self, Bootstrap, DefaultImages, ImageFacts, ImageName, JobSettings, PlanLimits,
};
use dstack_api::runs::RunSpec;
use dstack_api::yaml;
use serde_json::{Map, Value, json};

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

/// Vectors that other rooms check.
const ELSEWHERE: &[(&str, &str)] = &[
    ("amd-gpu-name", "backend types"),
    ("autoscaler", "engine"),
    ("blocks-divisible", "engine"),
    ("docker-commands", "backend SDK"),
    ("gateway-user-data", "backend SDK"),
    ("gpu-matches-spec", "backend types"),
    ("gpu-vendor-by-name", "backend types"),
    ("intel-name", "backend types"),
    ("lowest-unused-nums", "engine"),
    ("matching", "backend types"),
    ("matching-offers", "data of matching"),
    ("merge-tags", "backend SDK"),
    ("normalize-arch", "backend SDK"),
    ("nvidia-gpu-name", "backend types"),
    ("nvidia-proprietary-kernel-modules", "backend types"),
    ("shared-offer", "engine"),
    ("shim-env", "backend SDK"),
    ("unique-backend-name", "backend SDK"),
    ("urls", "backend SDK"),
    ("user-data", "backend SDK"),
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

/// Runs the `*.json` of a folder of vectors.
///
/// # Errors
/// The folder or a file in it cannot be read.
pub fn run_vectors(folder: &Path) -> std::io::Result<Report> {
    let mut report = Report::default();
    let mut paths: Vec<_> = std::fs::read_dir(folder)?
        .filter_map(|e| Some(e.ok()?.path()))
        .collect();
    paths.sort();
    for path in paths {
        let name = path
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or_default()
            .to_owned();
        if let Some((_, room)) = ELSEWHERE.iter().find(|(known, _)| *known == name) {
            report.skipped.push((name, room));
            continue;
        }
        let rows: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
        for (i, row) in rows.iter().enumerate() {
            report.note(format!("{name}[{i}]"), check_row(&name, row));
        }
    }
    Ok(report)
}

fn check_row(name: &str, row: &Value) -> Result<(), String> {
    let got = answer(name, row);
    match got {
        None => Err(format!("no check for the vectors {name}")),
        Some(Err(_)) if row["quirk"] == true || row["error"] == true => Ok(()),
        Some(Err(why)) => Err(format!("{row}: refused: {why}")),
        Some(Ok(got)) if row["error"] == true => Err(format!("{row}: accepted as {got}")),
        Some(Ok(got)) => match difference(&got, &wanted(name, row), "") {
            Some(_) if row["quirk"] == true => Ok(()),
            difference => difference.map_or(Ok(()), |d| Err(format!("{row}: {d}"))),
        },
    }
}

/// The right answer of a row, without its inputs.
fn wanted(name: &str, row: &Value) -> Value {
    let keys: &[&str] = match name {
        "cron" => &["next"],
        "default-gpu-vendor" => &["vendor"],
        "interpolator" => &["output", "missing"],
        "run-update" => &["updatable", "changed"],
        "termination" => &["policy", "idle_time"],
        _ => return row["output"].clone(),
    };
    let fields = keys
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), row.get(*key)?.clone())));
    Value::Object(fields.collect::<Map<_, _>>())
}

type Answer = Result<Value, String>;

fn read<T: FromValue + serde::Serialize>(value: &Value) -> Answer {
    let read = config::read::<T>(value, Mode::Strict).map_err(|problems| problems.to_string())?;
    serde_json::to_value(read.value).map_err(|e| e.to_string())
}

fn read_with<T: serde::Serialize>(
    value: &Value,
    f: impl FnOnce(&Value, &mut Reader) -> Result<T, config::Failed>,
) -> Answer {
    let read =
        config::read_with(value, Mode::Strict, f).map_err(|problems| problems.to_string())?;
    serde_json::to_value(read.value).map_err(|e| e.to_string())
}

/// One key of a configuration that has it, since some grammars belong to a key.
fn of_profile(key: &str, value: &Value) -> Answer {
    Ok(read::<ProfileParams>(&json!({key: value}))?[key].clone())
}

fn answer(name: &str, row: &Value) -> Option<Answer> {
    use dstack_backend_types::resources as r;
    let input = &row["input"];
    let text = input.as_str().unwrap_or_default();
    let boolean = |fits: bool| Ok(json!(fits));
    Some(match name {
        "duration" => read_with(input, duration::any),
        "duration-off" => match input {
            Value::Null | Value::Bool(true) => of_profile("max_duration", input),
            other => read::<Limit>(other),
        },
        "duration-idle" => read_with(input, duration::idle),
        "memory" => read::<r::Memory>(input),
        "range-int" => read::<r::Range<i64>>(input),
        "range-memory" => read::<r::Range<r::Memory>>(input),
        "cpu-spec" => read::<r::CpuSpec>(input),
        "gpu-spec" => read::<r::GpuSpec>(input),
        "disk-spec" => read::<r::DiskSpec>(input),
        "compute-capability" => read::<r::ComputeCapability>(input),
        "port-mapping" => read::<PortMapping>(input),
        "mount-point" => read::<MountPoint>(input),
        "file-mapping" => read::<FileMapping>(input),
        "repo-spec" => match input {
            Value::String(text) => RepoSpec::parse(text).map(|repo| json!(repo)),
            other => read::<RepoSpec>(other),
        },
        "env-item" => env_item(text),
        "unix-user" => UnixUser::parse(text)
            .map(|user| json!(user))
            .map_err(|e| e.to_string()),
        "entity-ref" => read::<EntityReference>(input),
        "instance-selector" => read::<InstanceSelector>(input),
        "tag-key" => boolean(names::is_tag_key(text)),
        "tag-value" => boolean(names::is_tag_value(text)),
        "resource-name" => boolean(names::is_resource_name(text)),
        "replica-group-name" => boolean(names::is_group_name(text)),
        "python-version" => read::<PythonVersion>(input),
        "image-name" => {
            let image = ImageName::parse(text);
            Ok(
                json!({"image": image.image, "registry": image.registry, "repo": image.repo, "tag": image.tag, "digest": image.digest}),
            )
        }
        "max-price" => of_profile("max_price", input),
        "cron" => cron(row),
        "interpolator" => interpolator(row),
        "gateway-domain" => plan::gateway_domain(text, "my-project")
            .map(|d| json!(d))
            .map_err(|e| e.to_string()),
        "groups-ip" => {
            let groups = [vec!["10.0.0.1", "10.0.0.2"], vec!["10.0.1.1"], vec![""]];
            let groups = groups.map(|group| group.into_iter().map(str::to_owned).collect());
            let done = plan::groups_ip::substitute(text, plan::groups_ip::Member::Nodes, &groups);
            done.map(|text| json!(text)).map_err(|e| e.to_string())
        }
        "combine-profiles" => combined_profiles(row),
        "combine-resources" => combined_resources(row),
        "default-gpu-vendor" => default_gpu_vendor(row),
        "retry" => match &row["retry"] {
            Value::Null => Ok(Value::Null),
            other => config::read::<ProfileRetry>(other, Mode::Strict)
                .map(|read| json!(read.value.effective()))
                .map_err(|e| e.to_string()),
        },
        "termination" => termination(row),
        "run-update" => run_update(row),
        _ => return None,
    })
}

fn env_item(text: &str) -> Answer {
    let (key, value) = config::parse_env_item(text)?;
    let value = match value {
        EnvValue::Text(text) => Some(text),
        EnvValue::FromCaller => None,
    };
    // A list of one must give the same.
    read::<Env>(&json!([text]))?;
    Ok(json!({"key": key, "value": value}))
}

fn cron(row: &Value) -> Answer {
    let cron: Cron = row["cron"]
        .as_str()
        .unwrap_or_default()
        .parse()
        .map_err(|e| format!("{e}"))?;
    let mut now: jiff::Timestamp = row["now"]
        .as_str()
        .unwrap_or_default()
        .parse()
        .map_err(|e| format!("{e}"))?;
    let mut next = Vec::new();
    for _ in 0..5 {
        let Some(at) = cron.next(now) else { break };
        next.push(at.to_string());
        now = at + jiff::Span::new().microseconds(1);
    }
    if row.get("next").is_none() {
        return Ok(json!({}));
    }
    Ok(json!({"next": if row["next"].is_null() { Value::Null } else { json!(next) }}))
}

fn interpolator(row: &Value) -> Answer {
    let skip: Vec<&str> = row["skip"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let spaces: BTreeMap<String, Namespace> =
        serde_json::from_value(row["namespaces"].clone()).map_err(|e| e.to_string())?;
    let mut names = Namespaces::leaving(&skip);
    for (name, values) in &spaces {
        names = names.with(name, values);
    }
    let done = interpolate(row["input"].as_str().unwrap_or_default(), &names)
        .map_err(|e| e.to_string())?;
    Ok(json!({"output": done.text, "missing": done.missing}))
}

fn combined_profiles(row: &Value) -> Answer {
    let params = |value: &Value| {
        config::read::<ProfileParams>(value, Mode::Strict)
            .map(|r| r.value)
            .map_err(|e| e.to_string())
    };
    let Some(combined) = plan::combine::profiles(&params(&row["fleet"])?, &params(&row["run"])?)
    else {
        return Ok(Value::Null);
    };
    let mut value = json!(Profile {
        params: combined,
        name: String::new(),
        default: false
    });
    if let Value::Object(fields) = &mut value {
        fields.retain(|_, value| !value.is_null());
    }
    Ok(value)
}

fn combined_resources(row: &Value) -> Answer {
    let spec = |text: &Value| {
        let text = text.as_str().unwrap_or_default();
        yaml::parse::<dstack_backend_types::ResourcesSpec>("row", text, Mode::Strict)
            .map(|parsed| parsed.value)
            .map_err(|e| e.to_string())
    };
    Ok(json!(plan::combine::resources(
        &spec(&row["fleet"])?,
        &spec(&row["run"])?
    )))
}

fn default_gpu_vendor(row: &Value) -> Answer {
    let gpu = config::read::<dstack_backend_types::resources::GpuSpec>(&row["gpu"], Mode::Strict)
        .map_err(|e| e.to_string())?;
    let source = plan::ImageSource {
        image: !row["image"].is_null(),
        docker: row["docker"] == true,
    };
    Ok(json!({"vendor": plan::infer_vendor(Some(&gpu.value), source).vendor}))
}

fn termination(row: &Value) -> Answer {
    let params = config::read::<ProfileParams>(
        &json!({"idle_duration": row["idle_duration"]}),
        Mode::Strict,
    )
    .map_err(|e| e.to_string())?;
    let idle = params
        .value
        .idle_seconds(row["default"].as_i64().unwrap_or_default());
    let policy = if idle.is_some() {
        "destroy-after-idle"
    } else {
        "dont-destroy"
    };
    Ok(json!({"policy": policy, "idle_time": idle.unwrap_or(-1)}))
}

fn run_update(row: &Value) -> Answer {
    let spec = |value: &Value| -> Result<RunSpec, String> {
        let run =
            config::read::<RunConfiguration>(value, Mode::Strict).map_err(|e| e.to_string())?;
        let effective = plan::effective_run(run_spec(&run.value)?, &PlanLimits::default());
        effective.map(|run| run.spec).map_err(|e| e.to_string())
    };
    Ok(
        match plan::update_in_place(&spec(&row["old"])?, &spec(&row["new"])?) {
            Ok(changed) => json!({"updatable": true, "changed": changed}),
            Err(_) => json!({"updatable": false}),
        },
    )
}

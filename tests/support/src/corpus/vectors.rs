//! The vectors: one array of rows an algorithm, each with its right answer.

use std::collections::BTreeMap;
use std::path::Path;

use dstack_api::config::{self, duration, names};
use dstack_api::config::{
    Cron, EntityReference, Env, EnvValue, FileMapping, FromValue, InstanceSelector, Limit, Mode,
    MountPoint, PortMapping, Profile, ProfileParams, ProfileRetry, PythonVersion, Reader, RepoSpec,
    RunConfiguration,
};
use dstack_api::jobs::UnixUser;
use dstack_api::plan::interpolate::{Namespace, Namespaces, interpolate};
use dstack_api::plan::{self, ImageName, PlanLimits};
use dstack_api::runs::RunSpec;
use dstack_api::yaml;
use serde_json::{Map, Value, json};

use super::offers::Offers;
use super::{Report, boot, difference, known, offers, run_spec};

/// Runs the `*.json` of a folder of vectors.
///
/// # Errors
/// The folder or a file in it cannot be read.
pub fn run_vectors(folder: &Path) -> std::io::Result<Report> {
    let mut report = Report::default();
    let offers = Offers::of(folder)?;
    let mut paths: Vec<_> = std::fs::read_dir(folder)?
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .collect();
    paths.sort();
    for path in paths {
        let name = path
            .file_stem()
            .and_then(|s| s.to_str())
            .unwrap_or_default()
            .to_owned();
        if known::DATA.contains(&name.as_str()) {
            continue;
        }
        if let Some((_, topic)) = known::OPEN_VECTORS.iter().find(|(open, _)| *open == name) {
            report.open.push((format!("vectors/{name}"), topic));
            continue;
        }
        let rows: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
        for (i, row) in rows.iter().enumerate() {
            let place = format!("vectors/{name}[{i}]");
            let result = check_row(&name, row, &offers);
            match known::refused_quirk(&name, row) {
                Some(why) if result.is_err() => report.refused.push((place, why)),
                Some(_) => report.note(
                    place,
                    Err(format!("{row}: right by now, so not to be listed")),
                ),
                None => report.note(place, result),
            }
        }
    }
    Ok(report)
}

fn check_row(name: &str, row: &Value, offers: &Offers) -> Result<(), String> {
    let got = answer(name, row)
        .or_else(|| boot::answer(name, row))
        .or_else(|| offers::answer(name, row, offers))
        .ok_or_else(|| format!("no check for the vectors {name}"))?;
    match got {
        Err(_) if row["error"] == true => Ok(()),
        Err(why) => Err(format!("{row}: refused: {why}")),
        Ok(got) if row["error"] == true => Err(format!("{row}: accepted as {got}")),
        Ok(got) => {
            if let Some(difference) = difference(&got, &wanted(name, row)?, "") {
                return Err(format!("{row}: {difference}"));
            }
            if CANONICAL.contains(&name) {
                // The canonical form is an input as well, and means itself.
                let again = answer(name, &json!({"input": got.clone()})).unwrap_or(Ok(Value::Null));
                let again = again.map_err(|why| format!("{row}: {got} is refused: {why}"))?;
                if let Some(difference) = difference(&again, &got, "reread") {
                    return Err(format!("{row}: {difference}"));
                }
            }
            Ok(())
        }
    }
}

/// Vectors whose output is the canonical form of a value.
const CANONICAL: &[&str] = &[
    "duration",
    "duration-off",
    "duration-idle",
    "memory",
    "range-int",
    "range-memory",
    "cpu-spec",
    "gpu-spec",
    "disk-spec",
    "compute-capability",
    "port-mapping",
    "mount-point",
    "file-mapping",
    "repo-spec",
    "entity-ref",
    "instance-selector",
    "python-version",
    "max-price",
];

/// The right answer of a row, without its inputs.
fn wanted(name: &str, row: &Value) -> Answer {
    let keys: &[&str] = match name {
        "user-data" | "gateway-user-data" => {
            return boot::document(row["output"].as_str().unwrap_or_default());
        }
        "autoscaler" => &["desired"],
        "blocks-divisible" => &["divisible", "total_blocks"],
        "gpu-matches-spec" => &["matched"],
        "lowest-unused-nums" => &["first3"],
        "matching" => &["matched", "parsed"],
        "shared-offer" => return Ok(row.clone()),
        "unique-backend-name" => &["prefix", "suffix_pattern", "length"],
        "cron" => &["next"],
        "default-gpu-vendor" => &["vendor"],
        "interpolator" => &["output", "missing"],
        "run-update" => &["updatable", "changed"],
        "termination" => &["policy", "idle_time"],
        _ => return Ok(row["output"].clone()),
    };
    let fields = keys
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), row.get(*key)?.clone())));
    Ok(Value::Object(fields.collect::<Map<_, _>>()))
}

/// The answer to a row, or why its input is refused.
pub(super) type Answer = Result<Value, String>;

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

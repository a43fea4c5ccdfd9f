//! Runs the configuration corpus: inputs with the right answers, see `tests/contract/config-corpus`.
//!
//! `NAME.yml` has its canonical and effective form in `NAME.json`, its refusal in `NAME.error`; `vectors/*.json` have one
//! array an algorithm. Used by the tests below and by `cargo xtask corpus`.

mod boot;
#[cfg(test)]
mod fuzz;
mod known;
mod offers;
#[cfg(test)]
mod tests;
mod vectors;

use std::path::Path;

use dstack_api::config::{
    ClientConfig, Configuration, FromValue, Mode, ProfilesConfig, RunConfiguration, ServerConfig,
};
use dstack_api::plan;
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
    let unix = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<_> = unix.split('\n').collect();
    for problem in &errors.problems {
        let line = problem.line.checked_sub(1).and_then(|i| lines.get(i));
        let inside =
            line.is_some_and(|line| (1..=line.chars().count() + 1).contains(&problem.column));
        if !inside {
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
    let configuration: Configuration =
        serde_json::from_value(parsed.clone()).map_err(|e| e.to_string())?;
    let stage = refusal.and_then(|refusal| refusal["stage"].as_str());
    match (plan_form(&configuration), stage) {
        (Err(Refused::Client(_)), Some("cli")) => Ok(()),
        (Err(Refused::Client(error)), _) => Err(format!("refused by the client: {error}")),
        (_, Some("cli")) => Err("accepted by the client".to_owned()),
        (Err(Refused::Server(_)), Some(_)) => Ok(()),
        (Err(Refused::Server(error)), None) => Err(format!("refused by the server: {error}")),
        (Ok(got), Some(_)) => Err(format!("accepted by the server: {got}")),
        (Ok(got), None) => match effective.filter(|effective| !effective.is_null()) {
            Some(effective) => difference(&got, effective, "effective").map_or(Ok(()), Err),
            None => Ok(()),
        },
    }
}

/// Who refuses a configuration that was read, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The client, before it asks the server.
    Client(String),
    /// The server.
    Server(String),
}

/// What a plan uses of a configuration, by the rules of the corpus; null for what has no such form.
///
/// # Errors
/// A rule that is broken.
pub fn plan_form(configuration: &Configuration) -> Result<Value, Refused> {
    let mut prepared = configuration.clone();
    // Bare names become placeholders, but one that is only referred to stays unknown.
    plan::prepare(&mut prepared, &[], |name| Some(format!("<{name}>")))
        .map_err(|error| Refused::Client(error.to_string()))?;
    plan::effective_form(configuration).map_err(|error| Refused::Server(error.to_string()))
}

fn run_spec(run: &RunConfiguration) -> Result<RunSpec, String> {
    serde_json::from_value(json!({"configuration": run})).map_err(|e| e.to_string())
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

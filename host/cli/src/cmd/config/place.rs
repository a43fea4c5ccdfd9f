//! Where in a configuration a problem is that was found while planning.

use dstack_api::config::{Path, Step};
use dstack_api::plan::PlanError;
use dstack_api::plan::groups_ip::BadGroupReference;
use dstack_api::plan::interpolate::BadReference;
use serde_json::Value;

/// The place of `error` in the canonical form `form`; the whole document if no single key is wrong.
pub(super) fn of(error: &PlanError, form: &Value) -> Path {
    if !error.path().is_empty() {
        let steps = error.path().iter().map(|key| Step::Key((*key).to_owned()));
        return Path(steps.collect());
    }
    let found = match error {
        PlanError::Reference { source, .. } => match source {
            BadReference::Unclosed => find(form, &is_open),
            BadReference::Malformed(name) | BadReference::Unknown(name) => {
                find(form, &|text| refers_to(text, name))
            }
        },
        PlanError::GroupReference(source) => match source {
            BadGroupReference::Malformed(name)
            | BadGroupReference::OutOfRange(name)
            | BadGroupReference::Unknown(name)
            | BadGroupReference::Member {
                reference: name, ..
            } => find(form, &|text| refers_to(text, name)),
        },
        PlanError::TooManyJobs { .. } => {
            let keys = ["nodes", "replicas", "groups"];
            let key = keys.into_iter().find(|key| !form[*key].is_null());
            key.map(|key| vec![Step::Key(key.to_owned())])
        }
        _ => None,
    };
    Path(found.unwrap_or_default())
}

/// Whether a reference is begun and not ended.
fn is_open(text: &str) -> bool {
    let last = text.rsplit_once("${{");
    last.is_some_and(|(_, rest)| !rest.contains("}}"))
}

/// Whether `name` stands between the braces of a reference.
fn refers_to(text: &str, name: &str) -> bool {
    let references = text.split("${{").skip(1);
    references
        .filter_map(|rest| rest.split_once("}}"))
        .any(|(inner, _)| inner.trim() == name)
}

/// The steps to the first text that fits.
fn find(value: &Value, fits: &impl Fn(&str) -> bool) -> Option<Vec<Step>> {
    let below = |step: Step, value: &Value| {
        let steps = find(value, fits)?;
        Some([vec![step], steps].concat())
    };
    match value {
        Value::String(text) => fits(text).then(Vec::new),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| below(Step::Index(index), item))
        }
        Value::Object(map) => {
            let mut entries = map.iter();
            entries.find_map(|(key, value)| below(Step::Key(key.clone()), value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

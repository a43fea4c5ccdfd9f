//! What `dstack config check` found, for people and for programs.

use dstack_api::config::SchemaType;
use dstack_api::yaml::{Located, Part, to_yaml};
use serde_json::{Value, json};

use super::check::{Checked, Wrong};
use crate::cx::Cx;
use crate::error::CliError;
use crate::ui::Tone;

/// The entry of a file in the JSON array.
pub(super) fn entry(checked: &Checked) -> Value {
    let errors = match &checked.errors {
        None => Vec::new(),
        Some(Wrong::Unreadable(why)) => {
            vec![json!({"line": null, "column": null, "path": "", "message": why, "help": null})]
        }
        Some(Wrong::Content(errors)) => errors.problems.iter().map(located).collect(),
    };
    json!({
        "file": checked.file,
        "kind": checked.kind,
        "canonical": checked.canonical,
        "effective": checked.effective,
        "warnings": checked.warnings.iter().map(located).collect::<Vec<_>>(),
        "errors": errors,
    })
}

fn located(place: &Located) -> Value {
    json!({
        "line": place.line,
        "column": place.column,
        "path": place.path.to_string(),
        "message": place.message,
        "help": place.help,
    })
}

/// Prints the forms to standard output and everything else to standard error.
pub(super) fn for_people(
    checked: &Checked,
    is_quiet: bool,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    for warning in &checked.warnings {
        cx.ui
            .warn(&format!("warning: {}:{warning}", checked.file))?;
    }
    match &checked.errors {
        Some(Wrong::Unreadable(why)) => {
            let text = cx.ui.paint_note(Tone::Bad, why);
            return cx.ui.note(text);
        }
        Some(Wrong::Content(errors)) => {
            let text = errors.render_with(|part, text| {
                let tone = match part {
                    Part::Place => Tone::Plain,
                    Part::Message | Part::Caret => Tone::Bad,
                    Part::Frame => Tone::Dim,
                };
                cx.ui.paint_note(tone, text)
            });
            return cx.ui.note(text.trim_end());
        }
        None => {}
    }
    if is_quiet {
        return Ok(());
    }
    let title = format!("# {}: {}", checked.file, checked.kind);
    let title = cx.ui.paint(Tone::Good, &title);
    cx.ui.line(title)?;
    let forms = [
        ("canonical", &checked.canonical),
        ("effective", &checked.effective),
    ];
    for (name, form) in forms {
        let Some(form) = form else { continue };
        let head = cx.ui.paint(Tone::Dim, &format!("--- # {name} form"));
        cx.ui.line(head)?;
        cx.ui.line(to_yaml(form).trim_end())?;
    }
    Ok(())
}

const STARS: &str = "***";

/// Tokens, keys and the credentials of backends do not belong on screens or in logs of CI.
pub(super) fn hide_credentials(kind: SchemaType, form: &mut Value) {
    let projects = |form: &mut Value, hide: fn(&mut Value)| {
        let projects = form.get_mut("projects").and_then(Value::as_array_mut);
        projects.into_iter().flatten().for_each(hide);
    };
    match kind {
        SchemaType::ClientConfig => projects(form, |project| hide_key(project, "token")),
        SchemaType::ServerConfig => {
            projects(form, |project| {
                let backends = project.get_mut("backends").and_then(Value::as_array_mut);
                backends.into_iter().flatten().for_each(hide_backend);
            });
            let keys = form.pointer_mut("/encryption/keys");
            let keys = keys.and_then(Value::as_array_mut);
            keys.into_iter()
                .flatten()
                .for_each(|key| hide_key(key, "secret"));
        }
        _ => {}
    }
}

fn hide_key(map: &mut Value, key: &str) {
    if let Some(value) = map.get_mut(key) {
        *value = Value::from(STARS);
    }
}

/// Which keys are secret is known to the backend's plugin only, so what may hold one is hidden as a whole: the mappings
/// of logins, and keys that sound like one.
fn hide_backend(backend: &mut Value) {
    let Some(map) = backend.as_object_mut() else {
        return;
    };
    for (key, value) in map {
        if matches!(key.as_str(), "creds" | "kubeconfig" | "private_key") {
            hide_all(value);
        } else {
            hide_secrets(key, value);
        }
    }
}

fn hide_secrets(key: &str, value: &mut Value) {
    let words = [
        "secret",
        "password",
        "token",
        "key",
        "credential",
        "content",
        "data",
    ];
    match value {
        Value::Object(map) if key == "private_key" => map.values_mut().for_each(hide_all),
        Value::Object(map) => map
            .iter_mut()
            .for_each(|(key, value)| hide_secrets(key, value)),
        Value::Array(items) => items.iter_mut().for_each(|item| hide_secrets(key, item)),
        Value::String(_) if words.iter().any(|word| key.contains(word)) => {
            *value = Value::from(STARS);
        }
        _ => {}
    }
}

/// Everything but the sort of login.
fn hide_all(value: &mut Value) {
    match value {
        Value::Object(map) => map
            .iter_mut()
            .filter(|(key, _)| *key != "type")
            .for_each(|(_, value)| hide_all(value)),
        Value::Array(items) => items.iter_mut().for_each(hide_all),
        Value::Null | Value::Bool(_) => {}
        Value::Number(_) | Value::String(_) => *value = Value::from(STARS),
    }
}

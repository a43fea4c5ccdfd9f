//! `dstack backend describe`: what a backend can do and what its section of `config.yml` takes.

use std::path::Path;

use dstack_api::plugins::{DescribePluginRequest, PluginDescription};
use serde_json::Value;

use crate::cx::{Cx, ProjectOption};
use crate::error::CliError;

/// Deeper schemas refer to themselves.
const MAX_DEPTH: usize = 8;

pub(super) fn run(
    what: &str,
    project: &ProjectOption,
    json: bool,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    let is_file = what.contains('/') || Path::new(what).extension().is_some_and(|end| end == "so");
    let described: PluginDescription = if is_file {
        let described = cx
            .local
            .describe(Path::new(what))
            .map_err(CliError::Message)?;
        serde_json::from_value(described).map_err(|error| CliError::message(error.to_string()))?
    } else {
        let here = cx.here(project.project.as_deref())?;
        let request = DescribePluginRequest {
            name: what.to_owned(),
        };
        here.client.post("/api/x/plugins/describe", &request)?
    };
    if json {
        return cx.ui.json(&described);
    }
    let manifest = &described.manifest;
    let text = |key: &str| manifest[key].as_str().unwrap_or_default().to_owned();
    cx.ui.line(format!(
        "{} {} (SDK {})",
        text("name"),
        text("version"),
        text("sdk")
    ))?;
    let words: Vec<&str> = manifest["capabilities"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    cx.ui.line(format!("Capabilities: {}", words.join(" ")))?;
    if let Some(about) = described.schema["description"].as_str() {
        cx.ui.line(about)?;
    }
    cx.ui.line("")?;
    let mut rows = Vec::new();
    fields(&described.schema, &described.schema, "", 0, &mut rows);
    if rows.is_empty() {
        return cx
            .ui
            .line("Its section of config.yml takes no keys beside `type`.");
    }
    let table = cx.ui.table(&["KEY", "TYPE", "REQUIRED", "MEANING"], &rows);
    cx.ui.line(table)
}

fn resolve<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    for _ in 0..MAX_DEPTH {
        let to = schema["$ref"].as_str().and_then(|to| to.strip_prefix('#'));
        match to.and_then(|to| root.pointer(to)) {
            Some(found) => schema = found,
            None => break,
        }
    }
    schema
}

/// A row for each key, those of inner mappings with dots.
fn fields(root: &Value, schema: &Value, above: &str, depth: usize, rows: &mut Vec<Vec<String>>) {
    if depth > MAX_DEPTH {
        return;
    }
    let schema = resolve(root, schema);
    for word in ["oneOf", "anyOf"] {
        for shape in schema[word].as_array().into_iter().flatten() {
            fields(root, shape, above, depth + 1, rows);
        }
    }
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (key, of) in schema["properties"].as_object().into_iter().flatten() {
        let inner = resolve(root, of);
        let name = format!("{above}{key}");
        let about = [of, inner]
            .iter()
            .find_map(|schema| schema["description"].as_str())
            .unwrap_or_default();
        let mut about = about.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(default) = of.get("default").filter(|default| !default.is_null()) {
            about.push_str(&format!(" (default {default})"));
        }
        rows.push(vec![
            name.clone(),
            kind(root, of, inner),
            if required.contains(&key.as_str()) {
                "yes".to_owned()
            } else {
                String::new()
            },
            about,
        ]);
        fields(root, inner, &format!("{name}."), depth + 1, rows);
    }
}

fn kind(root: &Value, of: &Value, inner: &Value) -> String {
    let is_secret = of["writeOnly"] == true || inner["writeOnly"] == true;
    let word = |schema: &Value| {
        if let Some(constant) = schema["const"].as_str() {
            return format!("`{constant}`");
        }
        match &schema["type"] {
            Value::String(one) => one.clone(),
            Value::Array(several) => several
                .iter()
                .filter_map(Value::as_str)
                .filter(|word| *word != "null")
                .collect::<Vec<_>>()
                .join(" or "),
            _ => String::new(),
        }
    };
    let mut text = word(inner);
    if text.is_empty() {
        let shapes = ["oneOf", "anyOf"]
            .iter()
            .find_map(|key| inner[*key].as_array());
        let words = shapes
            .into_iter()
            .flatten()
            .map(|shape| word(resolve(root, shape)));
        let mut words: Vec<String> = words.filter(|word| word != "null").collect();
        words.dedup();
        text = words.join(" or ");
    }
    if is_secret {
        text.push_str(", secret");
    }
    text
}

//! The components of the document: two sets of definitions, which become one.

use std::collections::BTreeSet;

use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

const PLACE: &str = "#/components/schemas/";

/// Keywords that only editors of files know.
const OF_EDITORS: [&str; 2] = ["patternErrorMessage", "markdownEnumDescriptions"];

/// One set of definitions of both; references in `paths` follow the names.
pub(super) fn merged(
    paths: &mut Map<String, Value>,
    mut input: SchemaGenerator,
    mut output: SchemaGenerator,
) -> Map<String, Value> {
    let (mut input, mut output) = (input.take_definitions(true), output.take_definitions(true));
    refuse_other_keys(&mut input);
    let split = different(&input, &output);
    for (_, item) in paths.iter_mut() {
        for (_, operation) in item.as_object_mut().into_iter().flatten() {
            for (key, part) in operation.as_object_mut().into_iter().flatten() {
                rename(part, &split, suffix(key == "responses"));
            }
        }
    }
    let mut all = Map::new();
    for (definitions, is_output) in [(&mut input, false), (&mut output, true)] {
        for (name, schema) in std::mem::take(definitions) {
            let mut schema = schema;
            rename(&mut schema, &split, suffix(is_output));
            let name = if split.contains(&name) {
                name + suffix(is_output)
            } else {
                name
            };
            all.insert(name, schema);
        }
    }
    for (_, schema) in &mut all {
        without_editors(schema);
    }
    for (_, item) in paths.iter_mut() {
        without_editors(item);
    }
    all
}

const fn suffix(is_output: bool) -> &'static str {
    if is_output { "-Output" } else { "-Input" }
}

/// The names that mean different things in both, by themselves or by what they refer to.
fn different(input: &Map<String, Value>, output: &Map<String, Value>) -> BTreeSet<String> {
    let both = || input.keys().filter(|name| output.contains_key(*name));
    let mut split: BTreeSet<String> = both()
        .filter(|name| input.get(*name) != output.get(*name))
        .cloned()
        .collect();
    loop {
        let more: Vec<String> = both()
            .filter(|name| !split.contains(*name))
            .filter(|name| {
                input
                    .get(*name)
                    .is_some_and(|schema| refers(schema, &split))
            })
            .cloned()
            .collect();
        if more.is_empty() {
            return split;
        }
        split.extend(more);
    }
}

fn refers(schema: &Value, names: &BTreeSet<String>) -> bool {
    match schema {
        Value::Object(map) => map.iter().any(|(key, value)| match value {
            Value::String(at) if key == "$ref" => at
                .strip_prefix(PLACE)
                .is_some_and(|name| names.contains(name)),
            other => refers(other, names),
        }),
        Value::Array(items) => items.iter().any(|item| refers(item, names)),
        _ => false,
    }
}

fn rename(schema: &mut Value, names: &BTreeSet<String>, suffix: &str) {
    match schema {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(at) if key == "$ref" => {
                        if at
                            .strip_prefix(PLACE)
                            .is_some_and(|name| names.contains(name))
                        {
                            at.push_str(suffix);
                        }
                    }
                    other => rename(other, names, suffix),
                }
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| rename(item, names, suffix)),
        _ => {}
    }
}

/// Requests are read strictly. What is extended where it is used cannot say so by itself.
fn refuse_other_keys(definitions: &mut Map<String, Value>) {
    let mut extended = BTreeSet::new();
    for schema in definitions.values() {
        find_extended(schema, &mut extended);
    }
    for (name, schema) in definitions {
        let Value::Object(map) = schema else { continue };
        let is_plain = map.get("type") == Some(&json!("object"))
            && map.contains_key("properties")
            && !["$ref", "allOf", "anyOf", "oneOf", "additionalProperties"]
                .iter()
                .any(|key| map.contains_key(*key));
        if is_plain && !extended.contains(name) {
            map.insert("additionalProperties".to_owned(), json!(false));
        }
    }
}

/// The names that stand beside other keys.
fn find_extended(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            let at = map.get("$ref").and_then(Value::as_str);
            if let Some(name) = at.and_then(|at| at.strip_prefix(PLACE))
                && map.contains_key("properties")
            {
                found.insert(name.to_owned());
            }
            map.values().for_each(|value| find_extended(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| find_extended(item, found)),
        _ => {}
    }
}

fn without_editors(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            for key in OF_EDITORS {
                map.remove(key);
            }
            map.values_mut().for_each(without_editors);
        }
        Value::Array(items) => items.iter_mut().for_each(without_editors),
        _ => {}
    }
}

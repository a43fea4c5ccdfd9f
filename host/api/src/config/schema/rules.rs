//! Rules across the keys of a mapping, as far as a schema can tell them. A key that is null counts as absent.

use serde_json::{Map, Value, json};

fn present(key: &str) -> Value {
    json!({"required": [key], "properties": {key: {"not": {"type": "null"}}}})
}

fn is_true(key: &str) -> Value {
    json!({"required": [key], "properties": {key: {"const": true}}})
}

fn filled(key: &str) -> Value {
    json!({"required": [key], "properties": {key: {"not": {"enum": [null, []]}}}})
}

/// Where `when` fits, none of the keys may have a value.
fn excludes(when: Value, keys: &[&str]) -> Value {
    let null = json!({"enum": [null, []]});
    let none: Map<String, Value> = keys
        .iter()
        .map(|key| ((*key).to_owned(), null.clone()))
        .collect();
    json!({"if": when, "then": {"properties": none}})
}

/// The sources of the image, which exclude each other.
fn image_rules() -> Vec<Value> {
    vec![
        excludes(present("image"), &["python"]),
        excludes(is_true("docker"), &["image", "python"]),
        json!({"if": is_true("docker"), "then": {"properties": {"nvcc": {"not": {"const": true}}}}}),
    ]
}

fn all(rules: Vec<Value>) -> Value {
    json!({"allOf": rules})
}

fn exactly_one(keys: &[&str]) -> Value {
    let alternatives: Vec<_> = keys.iter().map(|key| present(key)).collect();
    json!({"oneOf": alternatives})
}

pub(in crate::config) fn task() -> Value {
    let mut rules = image_rules();
    rules.push(excludes(
        present("groups"),
        &["nodes", "commands", "ports", "entrypoint"],
    ));
    rules.push(json!({"anyOf": [filled("commands"), present("image"), present("groups")]}));
    all(rules)
}

pub(in crate::config) fn service() -> Value {
    let older = json!({"required": ["replicas"], "properties": {"replicas": {"type": "array"}}});
    let groups = json!({"anyOf": [present("groups"), older]});
    let mut rules = image_rules();
    rules.push(excludes(groups.clone(), &["commands", "scaling"]));
    rules.push(excludes(present("groups"), &["replicas"]));
    rules.push(json!({"anyOf": [filled("commands"), present("image"), groups]}));
    all(rules)
}

pub(in crate::config) fn replica_group() -> Value {
    let mut rules = image_rules();
    rules.push(json!({"anyOf": [{"required": ["replicas"]}, {"required": ["count"]}]}));
    rules.push(json!({
        "if": is_true("docker"),
        "then": {"properties": {"privileged": {"not": {"const": false}}}},
    }));
    all(rules)
}

pub(in crate::config) fn dev_environment() -> Value {
    let mut rules = image_rules();
    rules.push(json!({"properties": {"entrypoint": {"type": "null"}}}));
    rules.push(json!({"if": present("version"), "then": present("ide")}));
    rules.push(json!({
        "if": {"required": ["ide"], "properties": {"ide": {"const": "windsurf"}}},
        "then": {"properties": {"version": {"type": ["string", "null"], "pattern": "^[^@]+@[0-9a-fA-F]+$"}}},
    }));
    all(rules)
}

pub(in crate::config) fn preset() -> Value {
    all(vec![
        exactly_one(&["model", "base", "repo"]),
        excludes(
            present("dataset"),
            &["input_tokens", "output_tokens", "shared_prefix_tokens"],
        ),
    ])
}

pub(in crate::config) fn repo() -> Value {
    exactly_one(&["local_path", "url"])
}

pub(in crate::config) fn probe() -> Value {
    let without_body =
        json!({"required": ["method"], "properties": {"method": {"enum": ["get", "head"]}}});
    excludes(without_body, &["body"])
}

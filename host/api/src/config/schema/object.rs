//! Mappings with known keys, and those whose keys depend on the value of one.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A type whose keys stand in a mapping, maybe beside those of others.
pub(in crate::config) trait Keys {
    /// Adds its keys.
    fn keys(object: &mut Object, generator: &mut SchemaGenerator);
}

/// The schema of a mapping in the making.
#[derive(Debug, Default)]
pub(in crate::config) struct Object {
    properties: Map<String, Value>,
    required: Vec<Value>,
}

impl Object {
    /// A key that must be there.
    pub(in crate::config) fn required(&mut self, key: &str, doc: &str, schema: Schema) {
        self.required.push(json!(key));
        self.optional(key, doc, schema);
    }

    /// A key that may be there.
    pub(in crate::config) fn optional(&mut self, key: &str, doc: &str, schema: Schema) {
        self.properties
            .insert(key.to_owned(), with_doc(schema, doc).to_value());
    }

    /// A key with a default for its absence. Only scalars are told: an editor writes them into the file.
    pub(in crate::config) fn defaulted(
        &mut self,
        key: &str,
        doc: &str,
        mut schema: Schema,
        default: &impl Serialize,
    ) {
        if let Ok(default @ (Value::Bool(_) | Value::Number(_) | Value::String(_))) =
            serde_json::to_value(default)
        {
            schema.insert("default".to_owned(), default);
        }
        self.optional(key, doc, schema);
    }

    /// The schema; other keys are refused.
    pub(in crate::config) fn finish(self, name: &str, doc: &str) -> Schema {
        let mut schema = json_schema!({
            "title": title(name),
            "type": "object",
            "properties": self.properties,
            "additionalProperties": false,
        });
        let about = text_of(doc);
        if !about.is_empty() {
            schema.insert("description".to_owned(), json!(about));
        }
        if !self.required.is_empty() {
            schema.insert("required".to_owned(), Value::Array(self.required));
        }
        schema
    }
}

/// Puts what a key means before what its values look like.
pub(super) fn with_doc(mut schema: Schema, doc: &str) -> Schema {
    let doc = text_of(doc);
    if doc.is_empty() {
        return schema;
    }
    let about = match schema.get("description").and_then(Value::as_str) {
        Some(form) => format!("{doc}\n\n{form}"),
        None => doc,
    };
    schema.insert("description".to_owned(), json!(about));
    schema
}

/// The text of a doc comment, on one line.
pub(super) fn text_of(doc: &str) -> String {
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `TaskConfiguration` in words: `Task configuration`.
fn title(name: &str) -> String {
    let mut title = String::new();
    for (i, letter) in name.chars().enumerate() {
        if i > 0 && letter.is_uppercase() {
            title.push(' ');
            title.extend(letter.to_lowercase());
        } else {
            title.push(letter);
        }
    }
    title
}

/// A mapping that is described by another schema for each value of `key`.
pub(super) fn switched<'w>(
    key: &str,
    doc: &str,
    cases: impl IntoIterator<Item = (&'w str, Schema)>,
) -> Schema {
    let (mut words, mut branches) = (Vec::new(), Vec::new());
    for (word, schema) in cases {
        words.push(json!(word));
        branches.push(json!({
            "if": {"type": "object", "required": [key], "properties": {key: {"const": word}}},
            "then": schema,
        }));
    }
    let values = json!({"enum": words, "description": doc});
    json_schema!({
        "type": "object",
        "required": [key],
        "properties": {key: values},
        "allOf": branches,
    })
}

/// Makes a key of an object schema required.
pub(super) fn require(schema: &mut Value, key: &str) {
    let Some(map) = schema.as_object_mut() else {
        return;
    };
    let list = map.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(list) = list
        && !list.iter().any(|known| known == key)
    {
        list.push(json!(key));
    }
}

//! A backend's section of `config.yml` against the schema that its plugin gives: unknown keys, missing keys, wrong types.
//!
//! Only what points at a place is looked for here; whether the values make sense is the plugin's to say. A schema that this
//! walk does not understand lets everything pass. No message contains a value: it may be a credential.

use dstack_backend_types::reading::{Kind, Path, Problem, Step, nearest_key};
use serde_json::{Map, Value};

/// Deeper schemas refer to themselves.
const MAX_DEPTH: usize = 16;

/// What a look at a configuration gives.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    /// What is wrong; paths begin at the section.
    pub(crate) problems: Vec<Problem>,
    /// The texts that no message may contain.
    secrets: Vec<String>,
}

impl Checked {
    /// A plugin's message without the secrets of the configuration, should it quote them.
    pub(crate) fn clean(&self, message: &str) -> String {
        let secrets = self.secrets.iter().filter(|secret| secret.len() > 3);
        secrets.fold(message.to_owned(), |text, secret| {
            text.replace(secret.as_str(), "***")
        })
    }
}

/// Looks at a configuration.
pub(crate) fn check(schema: &Value, config: &Map<String, Value>) -> Checked {
    let mut walk = Walk {
        root: schema,
        path: Vec::new(),
        found: Checked::default(),
    };
    walk.object(schema, config);
    walk.found
}

fn texts(value: &Value, all: &mut Vec<String>) {
    match value {
        Value::String(text) => all.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, all)),
        Value::Object(object) => object.values().for_each(|value| texts(value, all)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

struct Walk<'a> {
    root: &'a Value,
    path: Vec<Step>,
    found: Checked,
}

impl<'a> Walk<'a> {
    fn fail(&mut self, kind: Kind, message: String) {
        self.found.problems.push(Problem {
            path: Path(self.path.clone()),
            kind,
            message,
        });
    }

    fn resolve(&self, mut schema: &'a Value) -> &'a Value {
        for _ in 0..MAX_DEPTH {
            let Some(to) = schema.get("$ref").and_then(Value::as_str) else {
                break;
            };
            let Some(found) = to.strip_prefix('#').and_then(|at| self.root.pointer(at)) else {
                break;
            };
            schema = found;
        }
        schema
    }

    fn at(&mut self, step: Step, schema: &'a Value, value: &Value) {
        if self.path.len() >= MAX_DEPTH {
            return;
        }
        self.path.push(step);
        self.value(schema, value);
        self.path.pop();
    }

    fn value(&mut self, schema: &'a Value, value: &Value) {
        if schema.get("writeOnly") == Some(&Value::Bool(true)) {
            texts(value, &mut self.found.secrets);
        }
        let schema = self.resolve(schema);
        if let Some(branch) = self.branch(schema, value) {
            return self.value(branch, value);
        }
        if is_choice(schema) {
            return;
        }
        if let Some(wanted) = wrong_type(schema, value) {
            return self.fail(Kind::Invalid, format!("must be {wanted}"));
        }
        match value {
            Value::Object(object) => self.object(schema, object),
            Value::Array(items) => {
                if let Some(of) = schema.get("items").filter(|of| of.is_object()) {
                    for (number, item) in items.iter().enumerate() {
                        self.at(Step::Index(number), of, item);
                    }
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, schema: &'a Value, object: &Map<String, Value>) {
        let schema = self.resolve(schema);
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return;
        };
        let takes_others = match schema.get("additionalProperties") {
            None => is_choice(schema) || schema.get("allOf").is_some(),
            Some(others) => *others != Value::Bool(false),
        };
        for (key, value) in object {
            match properties.get(key) {
                Some(of) => self.at(Step::Key(key.clone()), of, value),
                None if key == "type" || takes_others => {}
                None => {
                    self.path.push(Step::Key(key.clone()));
                    let nearest = nearest_key(key, properties.keys().map(String::as_str));
                    let nearest = nearest.map(str::to_owned);
                    let hint = nearest
                        .as_ref()
                        .map(|near| format!("; did you mean `{near}`?"));
                    let hint = hint.unwrap_or_default();
                    let message = format!("the backend has no such key{hint}");
                    self.fail(Kind::UnknownKey { nearest }, message);
                    self.path.pop();
                }
            }
        }
        let required = schema.get("required").and_then(Value::as_array);
        for key in required.into_iter().flatten().filter_map(Value::as_str) {
            if key != "type" && !object.contains_key(key) {
                self.path.push(Step::Key(key.to_owned()));
                self.fail(Kind::Missing, format!("the key `{key}` is required"));
                self.path.pop();
            }
        }
    }

    /// The one of several shapes that a value wants to be: the one whose constants it has, or the only one that is not null.
    fn branch(&self, schema: &'a Value, value: &Value) -> Option<&'a Value> {
        let all = ["oneOf", "anyOf"]
            .iter()
            .find_map(|word| schema.get(*word))?
            .as_array()?;
        let shapes: Vec<&Value> = all
            .iter()
            .map(|shape| self.resolve(shape))
            .filter(|shape| shape.get("type").and_then(Value::as_str) != Some("null"))
            .collect();
        if value.is_null() {
            return None;
        }
        if let [only] = shapes.as_slice() {
            return Some(only);
        }
        let object = value.as_object()?;
        let fits = |shape: &&Value| {
            let properties = shape.get("properties").and_then(Value::as_object);
            let mut constants = properties
                .into_iter()
                .flatten()
                .filter_map(|(key, of)| Some((key, of.get("const")?)))
                .peekable();
            constants.peek().is_some()
                && constants.all(|(key, constant)| object.get(key) == Some(constant))
        };
        shapes.into_iter().find(fits)
    }
}

fn is_choice(schema: &Value) -> bool {
    schema.get("oneOf").is_some() || schema.get("anyOf").is_some()
}

/// The words for what a value should be, if it is something else.
fn wrong_type(schema: &Value, value: &Value) -> Option<String> {
    let types: Vec<&str> = match schema.get("type")? {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let fits = |word: &&str| match *word {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        _ => true,
    };
    if !types.iter().any(fits) {
        let words = types
            .iter()
            .filter(|word| **word != "null")
            .map(|word| match *word {
                "string" => "a text",
                "boolean" => "true or false",
                "integer" => "a whole number",
                "number" => "a number",
                "object" => "a mapping",
                "array" => "a list",
                other => other,
            });
        return Some(words.collect::<Vec<_>>().join(" or "));
    }
    let allowed = schema.get("enum")?.as_array()?;
    if allowed.contains(value) {
        return None;
    }
    let words: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
    (!words.is_empty()).then(|| format!("one of {}", words.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::check;

    fn found(config: &Value) -> Vec<String> {
        let schema = json!({
            "type": "object",
            "properties": {
                "project_id": {"type": "string"},
                "regions": {"type": ["array", "null"], "items": {"type": "string"}},
                "mode": {"type": "string", "enum": ["a", "b"]},
                "creds": {"$ref": "#/$defs/Creds"},
                "limit": {"anyOf": [{"$ref": "#/$defs/Limit"}, {"type": "null"}]},
            },
            "required": ["project_id", "creds"],
            "$defs": {
                "Limit": {"type": "object", "properties": {"count": {"type": "integer"}}},
                "Creds": {"oneOf": [
                    {"type": "object", "required": ["type", "key"],
                     "properties": {"type": {"const": "key"}, "key": {"type": "string", "writeOnly": true}}},
                    {"type": "object", "required": ["type"], "properties": {"type": {"const": "default"}}},
                ]},
            },
        });
        let found = check(&schema, config.as_object().unwrap());
        found.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_right_configuration_has_no_problem() {
        let config = json!({"type": "acme", "project_id": "p", "regions": ["x"], "mode": "b",
            "creds": {"type": "key", "key": "hush"}, "limit": {"count": 3}});
        assert_eq!(found(&config), [""; 0]);
        let config = json!({"project_id": "p", "regions": null, "creds": {"type": "default"}, "limit": null});
        assert_eq!(found(&config), [""; 0]);
    }

    #[test]
    fn each_problem_has_its_place_and_no_value() {
        let config = json!({"projectid": "hush", "regions": [1], "mode": "hush",
            "creds": {"type": "key"}, "limit": {"count": "hush"}});
        let all = found(&config);
        assert_eq!(
            all,
            [
                "creds.key: the key `key` is required",
                "limit.count: must be a whole number",
                "mode: must be one of a, b",
                "projectid: the backend has no such key; did you mean `project_id`?",
                "regions.0: must be a text",
                "project_id: the key `project_id` is required",
            ]
        );
    }

    #[test]
    fn secrets_are_cut_out_of_messages() {
        let schema = json!({"properties": {"token": {"type": "string", "writeOnly": true}, "zone": {"type": "string"}}});
        let config = json!({"token": "hush-hush", "zone": "north"});
        let checked = check(&schema, config.as_object().unwrap());
        assert_eq!(checked.clean("no hush-hush in north"), "no *** in north");
    }

    #[test]
    fn a_schema_that_is_not_understood_lets_everything_pass() {
        let config = json!({"a": 1});
        for schema in [
            json!(true),
            json!({}),
            json!({"$ref": "#"}),
            json!({"$ref": "elsewhere"}),
        ] {
            assert_eq!(check(&schema, config.as_object().unwrap()).problems, []);
        }
    }
}

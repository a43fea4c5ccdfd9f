//! One configuration type, four views of it.
//!
//! What is secret follows from the JSON schema: `Secret` marks its place with `writeOnly: true`. The walk below goes through
//! references, `anyOf`/`oneOf`/`allOf`, optional values and lists, so credentials may be nested in tagged enums.

use dstack_backend_types::BackendError;
use dstack_backend_types::methods::{ConfigWithCreds, StoredConfig};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::rest::without_values;

/// JSON schema of a configuration type.
pub fn schema<C: JsonSchema>() -> Value {
    schemars::schema_for!(C).to_value()
}

/// Reads a configuration a user wrote.
///
/// # Errors
/// `invalid`; the message names the field but never its value.
pub fn read<C: DeserializeOwned>(config: &ConfigWithCreds) -> Result<C, BackendError> {
    serde_path_to_error::deserialize(Value::Object(config.0.clone())).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." {
            String::new()
        } else {
            format!(" at {path}")
        };
        BackendError::invalid(format!(
            "the configuration does not have the right shape{place}: {}",
            without_values(&error.inner().to_string())
        ))
    })
}

/// Splits a configuration into the part in the clear and the part to encrypt.
///
/// # Errors
/// `internal` if the type does not serialise to an object.
pub fn store<C: Serialize + JsonSchema>(config: &C) -> Result<StoredConfig, BackendError> {
    let value = serde_json::to_value(config).map_err(|error| {
        BackendError::internal(format!("configuration cannot be stored: {error}"))
    })?;
    let Value::Object(object) = value else {
        return Err(BackendError::internal(
            "configuration cannot be stored: it is not an object",
        ));
    };
    let marks = Marks::new(schema::<C>());
    let (config, auth) = marks.split_object(marks.root(), object);
    Ok(StoredConfig { config, auth })
}

/// A stored record as a configuration with credentials.
pub fn with_creds(record: &StoredConfig) -> ConfigWithCreds {
    let mut config = record.config.clone();
    merge(&mut config, record.auth.clone());
    ConfigWithCreds(config)
}

/// A stored record without credentials, also without such that a user wrote into the clear part by mistake.
///
/// By the convention of the API the whole field `creds` is left out, and so is an object of which nothing is left.
pub fn public_view<C: JsonSchema>(record: &StoredConfig) -> Map<String, Value> {
    let marks = Marks::new(schema::<C>());
    let mut config = record.config.clone();
    config.remove("creds");
    let (mut clear, secret) = marks.split_object(marks.root(), config);
    let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    clear.retain(|key, value| {
        !(is_empty(value) && (secret.contains_key(key) || record.auth.contains_key(key)))
    });
    clear
}

fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(inner)), Value::Object(value)) => merge(inner, value),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// The schema with its marks.
struct Marks {
    schema: Value,
}

impl Marks {
    fn new(schema: Value) -> Self {
        Self { schema }
    }

    fn root(&self) -> Vec<&Value> {
        self.expand(&self.schema, 0)
    }

    /// The schemas a place may have, references and alternatives resolved.
    fn expand<'s>(&'s self, schema: &'s Value, depth: u8) -> Vec<&'s Value> {
        // A recursive type would never end; no configuration nests this deep.
        if depth > 16 {
            return Vec::new();
        }
        let mut all = vec![schema];
        if let Some(target) = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|path| path.strip_prefix('#'))
            && let Some(target) = self.schema.pointer(target)
        {
            all.extend(self.expand(target, depth + 1));
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            for alternative in schema
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                all.extend(self.expand(alternative, depth + 1));
            }
        }
        all
    }

    /// What is in the clear, and what is secret.
    fn split_object(
        &self,
        schemas: Vec<&Value>,
        object: Map<String, Value>,
    ) -> (Map<String, Value>, Map<String, Value>) {
        let (mut clear, mut secret) = (Map::new(), Map::new());
        for (key, value) in object {
            let places: Vec<&Value> = schemas
                .iter()
                .filter_map(|schema| schema.get("properties")?.get(&key))
                .flat_map(|place| self.expand(place, 0))
                .collect();
            if places
                .iter()
                .any(|place| place.get("writeOnly") == Some(&Value::Bool(true)))
            {
                secret.insert(key, value);
                continue;
            }
            match value {
                Value::Object(inner) => {
                    let (inner_clear, inner_secret) = self.split_object(places, inner);
                    if !inner_secret.is_empty() {
                        secret.insert(key.clone(), Value::Object(inner_secret));
                    }
                    clear.insert(key, Value::Object(inner_clear));
                }
                // Secrets of list items cannot be told apart by position after a merge: the whole list is secret.
                Value::Array(items) if self.has_secret_items(&places, &items) => {
                    secret.insert(key, Value::Array(items));
                }
                other => {
                    clear.insert(key, other);
                }
            }
        }
        (clear, secret)
    }

    fn has_secret_items(&self, places: &[&Value], items: &[Value]) -> bool {
        let schemas: Vec<&Value> = places
            .iter()
            .filter_map(|place| place.get("items"))
            .flat_map(|item| self.expand(item, 0))
            .collect();
        schemas
            .iter()
            .any(|schema| schema.get("writeOnly") == Some(&Value::Bool(true)))
            || items.iter().any(|item| match item {
                Value::Object(object) => !self
                    .split_object(schemas.clone(), object.clone())
                    .1
                    .is_empty(),
                _ => false,
            })
    }
}

#[cfg(test)]
mod tests;

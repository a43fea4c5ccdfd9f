//! Environment variables.

use std::collections::BTreeMap;
use std::fmt;

use dstack_backend_types::deserialize_by_value;
use dstack_backend_types::reading::{Failed, FromValue, Mode, Reader, describe, text_of};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// The value of a variable.
#[derive(Clone, PartialEq, Eq)]
pub enum EnvValue {
    /// A text; may be secret.
    Text(String),
    /// To be taken from the environment of the person who applies.
    FromCaller,
}

/// Environment variables by name. `Debug` shows names only.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Env(pub BTreeMap<String, EnvValue>);

/// A variable that has no value although one is needed now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("environment variable {0} is not set; export it or pass `-e {0}=VALUE`")]
pub struct UnsetVariable(pub String);

impl Env {
    /// The variables whose value is still to be taken from the caller.
    pub fn unresolved(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(|(_, v)| **v == EnvValue::FromCaller)
            .map(|(k, _)| k.as_str())
    }

    /// The values, all of which must be known.
    ///
    /// # Errors
    /// [`UnsetVariable`] names the first that is not.
    pub fn texts(&self) -> Result<BTreeMap<String, String>, UnsetVariable> {
        let resolved = self.0.iter().map(|(name, value)| match value {
            EnvValue::Text(text) => Ok((name.clone(), text.clone())),
            EnvValue::FromCaller => Err(UnsetVariable(name.clone())),
        });
        resolved.collect()
    }

    /// Fills open variables by `lookup`.
    ///
    /// # Errors
    /// [`UnsetVariable`] names the first that `lookup` does not know.
    pub fn resolve(
        &mut self,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<(), UnsetVariable> {
        for (name, value) in &mut self.0 {
            if *value == EnvValue::FromCaller {
                *value = EnvValue::Text(lookup(name).ok_or_else(|| UnsetVariable(name.clone()))?);
            }
        }
        Ok(())
    }

    /// Sets a text.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), EnvValue::Text(value.into()));
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Serialize for Env {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            match value {
                EnvValue::Text(text) => map.serialize_entry(name, text)?,
                EnvValue::FromCaller => {
                    map.serialize_entry(name, &BTreeMap::from([("key", name)]))?;
                }
            }
        }
        map.end()
    }
}

/// Reads `NAME=value`, `NAME=` and `NAME`.
///
/// # Errors
/// What is wrong with the item. The value is not repeated, since it may be secret.
pub fn parse_item(item: &str) -> Result<(String, EnvValue), String> {
    let (name, value) = match item.split_once('=') {
        Some((name, value)) => (name, EnvValue::Text(value.to_owned())),
        None => (item, EnvValue::FromCaller),
    };
    let fits = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if fits {
        Ok((name.to_owned(), value))
    } else {
        Err(format!(
            "`{name}` is not a variable name: letters, digits and underscores, not starting with a digit"
        ))
    }
}

impl FromValue for Env {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        match value {
            Value::Array(_) => {
                let items = cx.list(value, |item, cx| {
                    if item.is_object() {
                        return Err(cx.fail(
                            "expected `NAME=value` or `NAME`, got a mapping; write `NAME: value` without a dash",
                        ));
                    }
                    let text = String::from_value(item, cx)?;
                    parse_item(&text).map_err(|why| cx.fail(why))
                })?;
                let mut env = Self::default();
                for (name, value) in items {
                    if env.0.contains_key(&name) {
                        return Err(cx.fail(format!("the variable {name} is given twice")));
                    }
                    env.0.insert(name, value);
                }
                Ok(env)
            }
            Value::Object(map) => {
                let mut env = Self::default();
                let mut result = Ok(());
                for (name, value) in map {
                    match env_value(value) {
                        // Stored data may have it; a person would get another variable than the one that is named.
                        Some(EnvValue::FromCaller)
                            if cx.mode() == Mode::Strict && value["key"] != name.as_str() =>
                        {
                            let message = format!(
                                "expected `key: {name}`: a variable is taken from the caller under its own name"
                            );
                            result = Err(cx.fail_at(name, message));
                        }
                        Some(value) => {
                            env.0.insert(name.clone(), value);
                        }
                        None => {
                            let sort = match value {
                                Value::Null => "null; write `\"\"` for an empty text",
                                Value::Bool(_) => "a boolean; put it in quotes",
                                _ => "neither text nor number",
                            };
                            result = Err(cx.fail_at(name, format!("the value is {sort}")));
                        }
                    }
                }
                result.map(|()| env)
            }
            other => Err(cx.fail(format!(
                "expected a list of NAME=value or a mapping, got {}",
                describe(other)
            ))),
        }
    }
}

fn env_value(value: &Value) -> Option<EnvValue> {
    match value {
        Value::Object(map) if map.len() == 1 && map.get("key").is_some_and(Value::is_string) => {
            Some(EnvValue::FromCaller)
        }
        other => text_of(other).map(EnvValue::Text),
    }
}

deserialize_by_value!(Env);

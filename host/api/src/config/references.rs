//! References to other things: fleets, gateways, instances; and tags.

use std::collections::BTreeMap;
use std::fmt;

use dstack_backend_types::deserialize_by_value;
use dstack_backend_types::reading::{Failed, FromValue, Reader, describe, text_of};
use serde::Serialize;
use serde_json::Value;

use super::names::{is_tag_key, is_tag_value};

/// The name of something in this or another project. Short form `name` or `project/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct EntityReference {
    /// The project; absent means the project in question.
    pub project: Option<String>,
    /// The name.
    pub name: String,
}

impl EntityReference {
    /// Reads the short form.
    pub fn parse(text: &str) -> Option<Self> {
        let (project, name) = match text.split_once('/') {
            Some((project, name)) => (Some(project), name),
            None => (None, text),
        };
        let fits = !name.is_empty() && !name.contains('/') && project != Some("");
        fits.then(|| Self {
            project: project.map(str::to_owned),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for EntityReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.project {
            Some(project) => write!(f, "{project}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl FromValue for EntityReference {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        if value.is_object() {
            let mut obj = cx.object(value)?;
            let (project, name) = (obj.optional("project", cx), obj.required("name", cx));
            obj.finish(cx)?;
            return Ok(Self {
                project: project?,
                name: name?,
            });
        }
        text_of(value)
            .as_deref()
            .and_then(Self::parse)
            .ok_or_else(|| {
                cx.fail(format!(
                    "expected `name` or `project/name`, got {}",
                    describe(value)
                ))
            })
    }
}

/// An existing instance. A text is its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum InstanceSelector {
    /// By name.
    Name {
        /// The name.
        name: String,
    },
    /// By host name or address.
    Hostname {
        /// The host name.
        hostname: String,
    },
    /// By fleet and number.
    Number {
        /// The fleet.
        fleet: EntityReference,
        /// The number of the instance in it.
        instance: u32,
    },
}

fn non_empty(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    match String::from_value(value, cx)? {
        text if text.is_empty() => Err(cx.fail("cannot be empty")),
        text => Ok(text),
    }
}

impl FromValue for InstanceSelector {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        if !value.is_object() {
            return non_empty(value, cx).map(|name| Self::Name { name });
        }
        let mut obj = cx.object(value)?;
        let read = if obj.has("name") {
            obj.required_with("name", cx, non_empty)
                .map(|name| Self::Name { name })
        } else if obj.has("hostname") {
            obj.required_with("hostname", cx, non_empty)
                .map(|hostname| Self::Hostname { hostname })
        } else {
            let (fleet, instance) = (obj.required("fleet", cx), obj.required("instance", cx));
            fleet.and_then(|fleet| {
                Ok(Self::Number {
                    fleet,
                    instance: instance?,
                })
            })
        };
        obj.finish(cx)?;
        read
    }
}

/// Tags for what a provider makes.
pub type Tags = BTreeMap<String, String>;

/// Reads tags: text values only.
pub(crate) fn tags(value: &Value, cx: &mut Reader) -> Result<Tags, Failed> {
    let Value::Object(map) = value else {
        return Err(cx.fail(format!(
            "expected a mapping of tags, got {}",
            describe(value)
        )));
    };
    let mut result = Ok(Tags::new());
    for (key, value) in map {
        let problem = match value.as_str() {
            _ if !is_tag_key(key) => {
                "a tag key has 1 to 60 letters, digits, `-` and `_`".to_owned()
            }
            Some(text) if is_tag_value(text) => {
                if let Ok(tags) = &mut result {
                    tags.insert(key.clone(), text.to_owned());
                }
                continue;
            }
            Some(_) => {
                "a tag value has up to 256 letters, digits, spaces and any of `.:/=_-+@`".to_owned()
            }
            None => format!(
                "a tag value must be text, got {}; put it in quotes",
                describe(value)
            ),
        };
        result = Err(cx.fail_at(key, problem));
    }
    result
}

deserialize_by_value!(EntityReference, InstanceSelector);

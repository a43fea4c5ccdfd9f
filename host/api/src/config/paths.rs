//! Ports and mounts: pairs of something outside and something in the container.

use dstack_backend_types::deserialize_by_value;
use dstack_backend_types::reading::{Failed, FromValue, Reader, describe};
use serde::Serialize;
use serde_json::Value;

/// A port of the container and where it shows up at the person's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PortMapping {
    /// The local port; absent means any free one.
    pub local_port: Option<u16>,
    /// The port in the container.
    pub container_port: u16,
}

const PORT_FORMS: &str = "a port (1 to 65535), `LOCAL:CONTAINER` or `*:CONTAINER`";

impl PortMapping {
    /// The same port on both sides.
    pub const fn same(port: u16) -> Self {
        Self {
            local_port: Some(port),
            container_port: port,
        }
    }

    /// Reads `8080`, `80:8080`, `*:8080`.
    pub fn parse(text: &str) -> Option<Self> {
        let port = |text: &str| {
            let digits = text.chars().all(|c| c.is_ascii_digit());
            text.parse::<u16>().ok().filter(|port| digits && *port > 0)
        };
        match text.split_once(':') {
            None => port(text).map(Self::same),
            Some(("*", right)) => Some(Self {
                local_port: None,
                container_port: port(right)?,
            }),
            Some((left, right)) => Some(Self {
                local_port: Some(port(left)?),
                container_port: port(right)?,
            }),
        }
    }

    /// A service port: a single number is the container's, the local one is then 80; `*` is not possible.
    pub(crate) fn service(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let single = match value {
            Value::String(text) => !text.contains(':'),
            Value::Number(_) => true,
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
        };
        if single {
            let container_port = port(value, cx)?;
            return Ok(Self {
                local_port: Some(80),
                container_port,
            });
        }
        if value.as_str().is_some_and(|text| text.starts_with('*')) {
            return Err(cx.fail("the port of a service cannot have `*` as the local side"));
        }
        Self::from_value(value, cx)
    }
}

fn port(value: &Value, cx: &mut Reader) -> Result<u16, Failed> {
    cx.integer_in(value, 1, 65_535)
}

impl FromValue for PortMapping {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        match value {
            Value::Number(_) => port(value, cx).map(Self::same),
            Value::String(text) => Self::parse(text)
                .ok_or_else(|| cx.fail(format!("expected {PORT_FORMS}, got \"{text}\""))),
            Value::Object(_) => {
                let mut obj = cx.object(value)?;
                let local_port = obj.optional_with("local_port", cx, port);
                let container_port = obj.required_with("container_port", cx, port);
                obj.finish(cx)?;
                Ok(Self {
                    local_port: local_port?,
                    container_port: container_port?,
                })
            }
            Value::Null | Value::Bool(_) | Value::Array(_) => {
                Err(cx.fail(format!("expected {PORT_FORMS}, got {}", describe(value))))
            }
        }
    }
}

/// One name, or several of which the first usable one is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Names {
    /// One.
    One(String),
    /// Alternatives.
    Many(Vec<String>),
}

impl Names {
    /// All of them.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Many(names) => names,
        }
    }
}

impl FromValue for Names {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        if value.is_array() {
            Vec::from_value(value, cx).map(Self::Many)
        } else {
            String::from_value(value, cx).map(Self::One)
        }
    }
}

/// What is mounted into the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum MountPoint {
    /// A network volume.
    Volume {
        /// Its name; may refer to the job's number.
        name: Names,
        /// Where, in the container.
        path: String,
    },
    /// A folder of the instance.
    Instance {
        /// Which.
        instance_path: String,
        /// Where, in the container.
        path: String,
        /// Whether the job goes on where instances have no such thing.
        optional: bool,
    },
}

impl MountPoint {
    /// Where it is in the container.
    pub fn path(&self) -> &str {
        match self {
            Self::Volume { path, .. } | Self::Instance { path, .. } => path,
        }
    }

    /// Reads `volume:/path` and `/folder:/path`.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let forms = "write `VOLUME:/PATH` or `/INSTANCE/PATH:/PATH`";
        let (left, right) = text
            .split_once(':')
            .filter(|(_, right)| !right.contains(':'))
            .ok_or_else(|| format!("\"{text}\" is no mount; {forms}"))?;
        let path = clean_path(right)?;
        if left.contains('/') {
            Ok(Self::Instance {
                instance_path: clean_path(left)?,
                path,
                optional: false,
            })
        } else if left.starts_with('~') || left.starts_with('.') {
            Err(format!("the path {left} must be absolute; {forms}"))
        } else {
            Ok(Self::Volume {
                name: Names::One(left.to_owned()),
                path,
            })
        }
    }
}

/// Makes an absolute path without redundant parts.
fn clean_path(text: &str) -> Result<String, String> {
    if !text.starts_with('/') {
        return Err(format!("the path \"{text}\" must be absolute"));
    }
    let parts: Vec<_> = text
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    if parts.contains(&"..") {
        return Err(format!("the path \"{text}\" must not contain `..`"));
    }
    Ok(format!("/{}", parts.join("/")))
}

fn absolute(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    clean_path(&String::from_value(value, cx)?).map_err(|why| cx.fail(why))
}

impl FromValue for MountPoint {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        if let Value::String(text) = value {
            return Self::parse(text).map_err(|why| cx.fail(why));
        }
        let mut obj = cx.object(value)?;
        let path = obj.required_with("path", cx, absolute);
        let read = if obj.has("instance_path") {
            let instance_path = obj.required_with("instance_path", cx, absolute);
            let optional = obj.defaulted("optional", cx, || false);
            (|| {
                Ok(Self::Instance {
                    instance_path: instance_path?,
                    path: path?,
                    optional: optional?,
                })
            })()
        } else {
            let name = obj.required("name", cx);
            (|| {
                Ok(Self::Volume {
                    name: name?,
                    path: path?,
                })
            })()
        };
        obj.finish(cx)?;
        read
    }
}

deserialize_by_value!(PortMapping, MountPoint, Names);

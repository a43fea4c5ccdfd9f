//! Ports, mounts, files and repositories: pairs of something outside and something in the container.

use dstack_backend_types::deserialize_by_value;
use dstack_backend_types::reading::{Failed, FromValue, Reader, describe};
use serde::Serialize;
use serde_json::Value;

use super::object::config;
use crate::jobs::RepoExistsAction;

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

/// A local file or folder that is copied into the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileMapping {
    /// At the person's machine; `~` is expanded there, relative to the folder of the configuration file.
    pub local_path: String,
    /// In the container; `~` is the home of the job's user.
    pub path: String,
}

/// Splits at colons, but not after the letter of a Windows drive.
fn split_drive(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = text.split(':').map(str::to_owned).collect();
    if is_windows(text) && parts.len() > 1 {
        let rest = parts.remove(1);
        parts[0] = format!("{}:{rest}", parts[0]);
    }
    parts
}

fn is_windows(path: &str) -> bool {
    let mut chars = path.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic())
        && chars.next() == Some(':')
        && matches!(chars.next(), Some('\\' | '/'))
}

fn unix_path(path: String) -> Result<String, String> {
    match is_windows(&path) {
        true => Err(format!("the container path \"{path}\" must be a Unix path")),
        false => Ok(path),
    }
}

impl FileMapping {
    /// Reads `PATH` and `LOCAL:CONTAINER`.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = split_drive(text).into_iter();
        let local_path = parts.next().unwrap_or_default();
        let path = unix_path(parts.next().unwrap_or_else(|| local_path.clone()))?;
        match parts.next() {
            Some(_) => Err(format!(
                "\"{text}\" has too many parts; write `LOCAL:CONTAINER`"
            )),
            None => Ok(Self { local_path, path }),
        }
    }
}

impl FromValue for FileMapping {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        if let Value::String(text) = value {
            return Self::parse(text).map_err(|why| cx.fail(why));
        }
        let mut obj = cx.object(value)?;
        let local_path = obj.required("local_path", cx);
        let path = obj.required_with("path", cx, |value, cx| {
            unix_path(String::from_value(value, cx)?).map_err(|why| cx.fail(why))
        });
        obj.finish(cx)?;
        Ok(Self {
            local_path: local_path?,
            path: path?,
        })
    }
}

config! {
    /// A repository that is cloned or copied into the container.
    pub struct RepoSpec {
        /// A local clone or folder; exactly one of this and `url` is there.
        pub local_path: Option<String> = optional,
        /// A Git URL.
        pub url: Option<String> = optional,
        /// The branch to check out.
        pub branch: Option<String> = optional,
        /// The commit to check out.
        pub hash: Option<String> = optional,
        /// Where, in the container; relative to the working folder.
        pub path: String = default(".".to_owned(), repo_target),
        /// What to do if that folder is not empty.
        pub if_exists: RepoExistsAction = default(RepoExistsAction::Error),
    }
    check(RepoSpec::check)
}

fn repo_target(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    let path = String::from_value(value, cx)?;
    check_repo_target(path).map_err(|why| cx.fail(why))
}

fn check_repo_target(path: String) -> Result<String, String> {
    let own_home = path == "~" || path.starts_with("~/");
    if path.starts_with('~') && !own_home {
        return Err(format!(
            "the home of another user (\"{path}\") is not supported"
        ));
    }
    Ok(path)
}

impl RepoSpec {
    fn check(&self, cx: &mut Reader) -> Result<(), Failed> {
        match (&self.local_path, &self.url) {
            (Some(_), Some(_)) => Err(cx.fail("`local_path` and `url` exclude each other")),
            (None, None) => Err(cx.fail("one of `local_path` and `url` is required")),
            _ => Ok(()),
        }
    }

    /// Reads `LOCAL`, `URL`, each with `:CONTAINER_PATH`.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = split_drive(text);
        let is_url = !is_windows(text)
            && parts
                .get(1)
                .is_some_and(|second| second.starts_with("//") || parts[0].contains('@'));
        let (local_path, url, rest) = match parts.as_slice() {
            [first, second, rest @ ..] if is_url => (None, Some(format!("{first}:{second}")), rest),
            [first, rest @ ..] if !first.is_empty() => (Some(first.clone()), None, rest),
            _ => return Err("a repository needs a local path or a URL".to_owned()),
        };
        let path = match rest {
            [] => ".".to_owned(),
            [path] => check_repo_target(path.clone())?,
            _ => {
                return Err(format!(
                    "\"{text}\" has too many parts; write `REPO:CONTAINER_PATH`"
                ));
            }
        };
        Ok(Self {
            local_path,
            url,
            branch: None,
            hash: None,
            path,
            if_exists: RepoExistsAction::Error,
        })
    }
}

/// Reads a repository in either form.
pub(crate) fn repo(value: &Value, cx: &mut Reader) -> Result<RepoSpec, Failed> {
    match value {
        Value::String(text) => RepoSpec::parse(text).map_err(|why| cx.fail(why)),
        other => RepoSpec::from_value(other, cx),
    }
}

/// Reads the list of repositories, which has one at most.
pub(crate) fn repos(value: &Value, cx: &mut Reader) -> Result<Vec<RepoSpec>, Failed> {
    match cx.list(value, repo)? {
        list if list.len() > 1 => Err(cx.fail("one repository at most is supported")),
        list => Ok(list),
    }
}

deserialize_by_value!(PortMapping, MountPoint, FileMapping, Names);

//! Files and repositories that are put into the container.

use dstack_backend_types::deserialize_by_value;
use dstack_backend_types::reading::{Failed, FromValue, Reader};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

use super::object::config;
use super::schema::rules;
use crate::jobs::RepoExistsAction;

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
        pub path: String = default(".".to_owned(), repo_target, repo_target_schema),
        /// What to do if that folder is not empty.
        pub if_exists: RepoExistsAction = default(RepoExistsAction::Error),
    }
    check(RepoSpec::check) rules(rules::repo)
}

fn repo_target_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "number"], "pattern": "^(?!~[^/])"})
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

    /// Reads a bare `LOCAL` or `URL`, as an option of a command has it; a login in the address is no path.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse_source(text: &str) -> Result<Self, String> {
        let is_url = text.contains("://")
            || (!is_windows(text)
                && text
                    .split_once(':')
                    .is_some_and(|(first, _)| first.contains('@') && !first.contains('/')));
        if text.is_empty() {
            return Err("a repository needs a local path or a URL".to_owned());
        }
        let (local_path, url) = if is_url {
            (None, Some(text.to_owned()))
        } else {
            (Some(text.to_owned()), None)
        };
        Ok(Self {
            local_path,
            url,
            branch: None,
            hash: None,
            path: ".".to_owned(),
            if_exists: RepoExistsAction::Error,
        })
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

deserialize_by_value!(FileMapping);

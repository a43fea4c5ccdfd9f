//! What all runs have in common, and the switch between their types.

use dstack_backend_types::reading::{Failed, FromValue, Reader, describe, nearest_key, text_of};
use dstack_backend_types::resources::ResourcesSpec;
use dstack_backend_types::{RegistryAuth, deserialize_by_value, words};
use serde::Serialize;
use serde_json::Value;

use super::dev::DevEnvironmentConfiguration;
use super::env::Env;
use super::object::config;
use super::paths::MountPoint;
use super::profile::ProfileParams;
use super::schema::{self, grammar, parts, scalars};
use super::service::ServiceConfiguration;
use super::sources::{FileMapping, RepoSpec, repos};
use super::task::TaskConfiguration;
use super::words::PythonVersion;
use crate::jobs::UnixUser;

config! {
    /// Keys that every type of run has.
    pub struct RunBase {
        /// Name of the run; unset means that the server makes one.
        pub name: Option<String> = optional,
        /// Container image; excludes `python` and `docker`.
        pub image: Option<String> = optional,
        /// `user[:group]`; unset means the image's.
        pub user: Option<String> = optional(user, grammar::user),
        /// Whether the container may do everything.
        pub privileged: bool = default(false),
        /// Split like a shell does; the commands are its arguments then.
        pub entrypoint: Option<String> = optional,
        /// Folder the commands start in, absolute; unset means the image's.
        pub working_dir: Option<String> = optional,
        /// Kept for older clients, without effect.
        pub home_dir: String = default("/root".to_owned()),
        /// Login for the image's registry.
        pub registry_auth: Option<RegistryAuth> = optional(registry_auth, schema::of::<RegistryAuth>),
        /// Python to set up in the default image.
        pub python: Option<PythonVersion> = optional(python, scalars::python),
        /// Whether the default image has the CUDA compiler.
        pub nvcc: Option<bool> = optional,
        /// Whether only one branch is cloned; unset means true, false for dev environments.
        pub single_branch: Option<bool> = optional,
        /// Environment variables.
        pub env: Env = default(Env::default()),
        /// Shell of the commands; unset means `/bin/sh` with an image, else `/bin/bash`.
        pub shell: Option<String> = optional(shell, scalars::shell),
        /// What is asked of each machine.
        pub resources: ResourcesSpec = default(ResourcesSpec::default()),
        /// 0 to 100, higher goes first; unset means 0.
        pub priority: Option<u32> = optional(|value, cx| cx.integer_in(value, 0, 100), parts::integer(0, 100)),
        /// Volumes and folders to mount.
        pub volumes: Vec<MountPoint> = default(Vec::new()),
        /// Whether a Docker daemon is started in the container; makes it privileged.
        pub docker: Option<bool> = optional,
        /// The repository to put into the container, one at most.
        pub repos: Vec<RepoSpec> = default(Vec::new(), repos, grammar::repos),
        /// Files to put into the container.
        pub files: Vec<FileMapping> = default(Vec::new()),
        /// Whether the job may talk to the server.
        pub dstack: bool = default(false),
        /// Kept for older files; dev environments run these first.
        pub setup: Vec<String> = default(Vec::new()),
    }
}

fn user(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    let text = text_of(value)
        .ok_or_else(|| cx.fail(format!("expected `user[:group]`, got {}", describe(value))))?;
    match UnixUser::parse(&text) {
        Ok(_) => Ok(text),
        Err(bad) => Err(cx.fail(bad.to_string())),
    }
}

/// YAML reads an unquoted 3.10 as the number 3.1, so that number means 3.10.
pub(crate) fn python(value: &Value, cx: &mut Reader) -> Result<PythonVersion, Failed> {
    match value {
        Value::Number(number) if number.is_f64() => {
            let text = match number.to_string() {
                text if text == "3.1" => "3.10".to_owned(),
                text => text,
            };
            PythonVersion::from_value(&Value::String(text), cx)
        }
        other => PythonVersion::from_value(other, cx),
    }
}

fn shell(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    match String::from_value(value, cx)? {
        shell if shell == "sh" || shell == "bash" || shell.starts_with('/') => Ok(shell),
        shell => Err(cx.fail(format!(
            "expected sh, bash or an absolute path, got \"{shell}\""
        ))),
    }
}

fn registry_auth(value: &Value, cx: &mut Reader) -> Result<RegistryAuth, Failed> {
    let mut obj = cx.object(value)?;
    let username = obj.required("username", cx);
    let password = obj.required::<String>("password", cx);
    obj.finish(cx)?;
    Ok(RegistryAuth {
        username: username?,
        password: password?,
    })
}

impl RunBase {
    /// The image sources that exclude each other; the later key of a pair reports the problem.
    pub(crate) fn check(&self, cx: &mut Reader) -> Result<(), Failed> {
        let mut result = Ok(());
        if self.image.is_some() && self.python.is_some() {
            result = Err(cx.fail_at("python", "`python` and `image` exclude each other"));
        }
        if self.docker == Some(true) {
            let others = [
                ("image", self.image.is_some()),
                ("python", self.python.is_some()),
                ("nvcc", self.nvcc == Some(true)),
            ];
            for (key, _) in others.into_iter().filter(|(_, set)| *set) {
                let message = format!("`docker: true` and `{key}` exclude each other");
                result = Err(cx.fail_at("docker", message));
            }
        }
        result
    }

    /// Whether the container is privileged, given that docker mode makes it so.
    pub fn is_privileged(&self) -> bool {
        self.privileged || self.docker == Some(true)
    }
}

words! {
    /// The type of a run.
    pub enum RunKind {
        /// A command that ends.
        Task = "task",
        /// Something that answers requests.
        Service = "service",
        /// A machine to work on.
        DevEnvironment = "dev-environment",
    }
}

/// A run as a person describes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum RunConfiguration {
    /// A command that ends.
    Task(Box<TaskConfiguration>),
    /// Something that answers requests.
    Service(Box<ServiceConfiguration>),
    /// A machine to work on.
    DevEnvironment(Box<DevEnvironmentConfiguration>),
}

impl RunConfiguration {
    /// Its type.
    pub const fn kind(&self) -> RunKind {
        match self {
            Self::Task(_) => RunKind::Task,
            Self::Service(_) => RunKind::Service,
            Self::DevEnvironment(_) => RunKind::DevEnvironment,
        }
    }

    /// The keys that all types have.
    pub fn base(&self) -> &RunBase {
        match self {
            Self::Task(run) => &run.base,
            Self::Service(run) => &run.base,
            Self::DevEnvironment(run) => &run.base,
        }
    }

    /// The keys that all types have, to change.
    pub fn base_mut(&mut self) -> &mut RunBase {
        match self {
            Self::Task(run) => &mut run.base,
            Self::Service(run) => &mut run.base,
            Self::DevEnvironment(run) => &mut run.base,
        }
    }

    /// The profile parameters the run sets itself.
    pub fn profile(&self) -> &ProfileParams {
        match self {
            Self::Task(run) => &run.profile,
            Self::Service(run) => &run.profile,
            Self::DevEnvironment(run) => &run.profile,
        }
    }

    /// The profile parameters the run sets itself, to change.
    pub fn profile_mut(&mut self) -> &mut ProfileParams {
        match self {
            Self::Task(run) => &mut run.profile,
            Self::Service(run) => &mut run.profile,
            Self::DevEnvironment(run) => &mut run.profile,
        }
    }

    /// Its name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.base().name.as_deref()
    }
}

impl FromValue for RunConfiguration {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let kinds: Vec<_> = RunKind::ALL.iter().map(|kind| kind.as_str()).collect();
        match type_of(value, &kinds, cx)? {
            "task" => TaskConfiguration::from_value(value, cx).map(|run| Self::Task(Box::new(run))),
            "service" => {
                ServiceConfiguration::from_value(value, cx).map(|run| Self::Service(Box::new(run)))
            }
            _ => DevEnvironmentConfiguration::from_value(value, cx)
                .map(|run| Self::DevEnvironment(Box::new(run))),
        }
    }
}

/// The `type` of a document, which must be one of `known`.
pub(crate) fn type_of<'k>(
    value: &Value,
    known: &[&'k str],
    cx: &mut Reader,
) -> Result<&'k str, Failed> {
    let Value::Object(map) = value else {
        return Err(cx.fail(format!(
            "expected a mapping with the key `type`, got {}",
            describe(value)
        )));
    };
    let list = known.join(", ");
    match map.get("type") {
        None => Err(cx.fail(format!("the key `type` is required: one of {list}"))),
        Some(given) => {
            let word = given.as_str().unwrap_or_default();
            known
                .iter()
                .find(|known| **known == word)
                .copied()
                .ok_or_else(|| {
                    let hint = nearest_key(word, known.iter().copied())
                        .map(|near| format!("; did you mean `{near}`?"))
                        .unwrap_or_default();
                    let message = format!(
                        "unknown type {}, expected one of {list}{hint}",
                        describe(given)
                    );
                    cx.fail_at("type", message)
                })
        }
    }
}

deserialize_by_value!(RunConfiguration);

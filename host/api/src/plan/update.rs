//! Whether a run may become another one without being stopped.

use std::collections::BTreeSet;

use serde_json::Value;

use super::PlanError;
use crate::config::{Https, Replication, Router, RunConfiguration, ServiceConfiguration};
use crate::runs::RunSpec;

/// Keys of a service that change its jobs, one replica after the other.
const ROLLING: &[&str] = &[
    "port",
    "probes",
    "resources",
    "volumes",
    "docker",
    "files",
    "image",
    "user",
    "privileged",
    "entrypoint",
    "working_dir",
    "python",
    "nvcc",
    "single_branch",
    "env",
    "shell",
    "commands",
];
/// Keys of a service that change at once.
const AT_ONCE: &[&str] = &["replicas", "groups", "scaling", "gateway"];

/// The keys of the configuration that differ, if the run may be updated in place; both specs in effective form.
///
/// # Errors
/// [`PlanError::NotUpdatable`] names what cannot change while the run goes on.
pub fn update_in_place(old: &RunSpec, new: &RunSpec) -> Result<Vec<String>, PlanError> {
    let changed = differing(&old.configuration, &new.configuration);
    if old.configuration.kind() != new.configuration.kind() {
        return Err(PlanError::NotUpdatable("type".to_owned()));
    }
    check_spec(old, new)?;
    for key in &changed {
        let allowed = match (&old.configuration, &new.configuration) {
            _ if key == "priority" => true,
            _ if key == "files" => old.file_archives == new.file_archives || is_service(new),
            _ if key == "resources" && !is_service(new) => only_arch_dropped(old, new),
            (RunConfiguration::DevEnvironment(_), _) => key == "inactivity_duration",
            (RunConfiguration::Service(old), RunConfiguration::Service(new)) if key == "https" => {
                let on = |https| matches!(https, None | Some(Https::Switch(true)));
                on(old.https) && on(new.https)
            }
            (RunConfiguration::Service(_), _) => {
                ROLLING.contains(&key.as_str()) || AT_ONCE.contains(&key.as_str())
            }
            (RunConfiguration::Task(_), _) => false,
        };
        if !allowed {
            return Err(PlanError::NotUpdatable(key.clone()));
        }
    }
    if let (RunConfiguration::Service(old), RunConfiguration::Service(new)) =
        (&old.configuration, &new.configuration)
    {
        check_routers(old, new, &changed)?;
    }
    Ok(changed)
}

fn is_service(spec: &RunSpec) -> bool {
    matches!(spec.configuration, RunConfiguration::Service(_))
}

/// The keys beside the configuration; where the file lies does not matter.
fn check_spec(old: &RunSpec, new: &RunSpec) -> Result<(), PlanError> {
    let fixed = [
        ("run_name", old.run_name == new.run_name),
        ("repo_id", old.repo_id == new.repo_id),
        ("repo_dir", old.repo_dir == new.repo_dir),
        ("profile", old.profile == new.profile),
        ("ssh_key_pub", old.ssh_key_pub == new.ssh_key_pub),
    ];
    let services_only = [
        ("repo_data", old.repo_data == new.repo_data),
        ("repo_code_hash", old.repo_code_hash == new.repo_code_hash),
        ("file_archives", old.file_archives == new.file_archives),
        ("working_dir", old.working_dir == new.working_dir),
    ];
    let services_only = services_only.iter().filter(|_| !is_service(new));
    match fixed.iter().chain(services_only).find(|(_, same)| !same) {
        Some((key, _)) => Err(PlanError::NotUpdatable((*key).to_owned())),
        None => Ok(()),
    }
}

/// The top-level keys whose canonical values differ, in alphabetical order.
fn differing(old: &RunConfiguration, new: &RunConfiguration) -> Vec<String> {
    let fields = |run: &RunConfiguration| match serde_json::to_value(run) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (old, new) = (fields(old), fields(new));
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    keys.into_iter()
        .filter(|key| old.get(*key) != new.get(*key))
        .cloned()
        .collect()
}

/// Earlier servers wrote the architecture they inferred into the resources; that it is gone is no change.
fn only_arch_dropped(old: &RunSpec, new: &RunSpec) -> bool {
    let mut resources = old.configuration.base().resources.clone();
    let wanted = &new.configuration.base().resources;
    if wanted.cpu.arch.is_none() {
        resources.cpu.arch = None;
    }
    resources == *wanted
}

/// The router's name and type stay; with Dynamo so does everything that the router's workers depend on.
fn check_routers(
    old: &ServiceConfiguration,
    new: &ServiceConfiguration,
    changed: &[String],
) -> Result<(), PlanError> {
    let router = |replication: &Replication| {
        replication
            .groups
            .iter()
            .flatten()
            .find(|group| group.router.is_some())
            .cloned()
    };
    let (old, new) = (router(&old.replication), router(&new.replication));
    let identity = |group: &Option<crate::config::ReplicaGroup>| {
        group
            .as_ref()
            .map(|group| (group.name.clone(), group.router))
    };
    if identity(&old) != identity(&new) {
        return Err(PlanError::NotUpdatable("router".to_owned()));
    }
    let dynamo = old
        .as_ref()
        .and_then(|group| group.router)
        .is_some_and(|r| r.router == Router::Dynamo);
    if dynamo {
        if old != new {
            return Err(PlanError::NotUpdatable("router".to_owned()));
        }
        if let Some(key) = changed.iter().find(|key| ROLLING.contains(&key.as_str())) {
            return Err(PlanError::NotUpdatable(key.clone()));
        }
    }
    Ok(())
}

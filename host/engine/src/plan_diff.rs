//! What applying a specification again may change in place.
//!
//! Both specifications are compared key by key in their canonical form, defaults included. A difference that is not in the
//! tables below means: stop (or delete) first, then create anew.

use std::collections::BTreeSet;

use dstack_api::fleets::FleetSpec;
use dstack_api::runs::RunSpec;
use serde::Serialize;
use serde_json::{Map, Value};

/// Keys of `configuration` that any run may change.
const ANY_RUN: &[&str] = &["priority"];
const DEV_ENVIRONMENT: &[&str] = &["inactivity_duration"];
/// In place, then by rolling deployment.
const SERVICE: &[&str] = &[
    "replicas",
    "groups",
    "scaling",
    "gateway",
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
const RUN_SPEC: &[&str] = &["configuration_path"];
const SERVICE_SPEC: &[&str] = &[
    "repo_data",
    "repo_code_hash",
    "file_archives",
    "working_dir",
];
const CLOUD_FLEET: &[&str] = &[
    "nodes",
    "reservation",
    "tags",
    "resources",
    "backends",
    "regions",
    "availability_zones",
    "instance_types",
    "spot_policy",
    "max_price",
];

/// What differs, and whether that may change in place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diff {
    /// Names of the keys that differ: `configuration.image`, `repo_code_hash`.
    pub changed: Vec<String>,
    /// Those of them that cannot change in place.
    pub refused: Vec<String>,
}

impl Diff {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    /// Whether everything that differs may change in place.
    pub fn is_updatable(&self) -> bool {
        self.refused.is_empty()
    }

    fn note(&mut self, name: String, allowed: bool) {
        if !allowed {
            self.refused.push(name.clone());
        }
        self.changed.push(name);
    }
}

/// Compares two effective specifications of a run.
pub fn run(old: &RunSpec, new: &RunSpec) -> Diff {
    let (old, new) = (object(old), object(new));
    let kind = |spec: &Map<String, Value>| {
        spec.get("configuration")
            .and_then(|c| c.get("type"))
            .cloned()
    };
    let same_kind = kind(&old) == kind(&new);
    let kind = kind(&new);
    let kind = kind.as_ref().and_then(Value::as_str).unwrap_or_default();
    let is_service = kind == "service";
    let same_files = old.get("file_archives") == new.get("file_archives");
    let mut diff = Diff::default();
    for key in differing(&old, &new) {
        if key != "configuration" {
            let allowed = RUN_SPEC.contains(&key.as_str())
                || (is_service && SERVICE_SPEC.contains(&key.as_str()));
            diff.note(key, allowed);
        }
    }
    let (old, new) = (part(&old, "configuration"), part(&new, "configuration"));
    let frozen = is_service && routers(&old) != routers(&new);
    for key in differing(&old, &new) {
        let name = key.as_str();
        let allowed = match name {
            _ if !same_kind => false,
            "replicas" | "groups" if frozen => false,
            "https" => {
                is_service
                    && [old.get(name), new.get(name)]
                        .into_iter()
                        .all(is_default_https)
            }
            "files" if !is_service => same_files,
            "resources" if !is_service => only_drops_arch(old.get(name), new.get(name)),
            _ => {
                ANY_RUN.contains(&name)
                    || (is_service && SERVICE.contains(&name))
                    || (kind == "dev-environment" && DEV_ENVIRONMENT.contains(&name))
            }
        };
        diff.note(format!("configuration.{key}"), allowed);
    }
    diff
}

/// Compares two specifications of a fleet, keys stripped. A fleet of clouds cannot become one of own hosts.
pub fn fleet(old: &FleetSpec, new: &FleetSpec) -> Diff {
    let is_ssh = new.configuration.ssh_config.is_some();
    let same_kind = old.configuration.ssh_config.is_some() == is_ssh;
    let (old, new) = (object(old), object(new));
    let mut diff = Diff::default();
    for key in differing(&old, &new) {
        if key != "configuration" {
            let allowed = key == "configuration_path" || key == "autocreated";
            diff.note(key, allowed);
        }
    }
    let (old, new) = (part(&old, "configuration"), part(&new, "configuration"));
    for key in differing(&old, &new) {
        let allowed = same_kind
            && if is_ssh {
                key == "ssh_config" && only_hosts_differ(old.get(&key), new.get(&key))
            } else {
                CLOUD_FLEET.contains(&key.as_str())
            };
        diff.note(format!("configuration.{key}"), allowed);
    }
    diff
}

fn object(spec: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(spec) {
        Ok(Value::Object(map)) => map,
        // Specifications are mappings with text keys.
        Ok(_) | Err(_) => Map::new(),
    }
}

fn part(spec: &Map<String, Value>, key: &str) -> Map<String, Value> {
    spec.get(key)
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

fn differing(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<String> {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let value = |map: &Map<String, Value>, key: &str| map.get(key).cloned().unwrap_or(Value::Null);
    keys.into_iter()
        .filter(|key| value(old, key) != value(new, key))
        .cloned()
        .collect()
}

/// Name and type of each group that routes to others.
fn routers(configuration: &Map<String, Value>) -> Vec<(Option<Value>, Option<Value>)> {
    let groups = configuration.get("groups").and_then(Value::as_array);
    groups
        .into_iter()
        .flatten()
        .filter_map(|group| {
            let router = group.get("router").filter(|router| !router.is_null())?;
            Some((group.get("name").cloned(), router.get("type").cloned()))
        })
        .collect()
}

fn is_default_https(value: Option<&Value>) -> bool {
    matches!(value, None | Some(Value::Null | Value::Bool(true)))
}

/// The processor's architecture is filled in when a run is submitted; a later plan may leave it open again.
fn only_drops_arch(old: Option<&Value>, new: Option<&Value>) -> bool {
    let (Some(old), Some(new)) = (old, new) else {
        return false;
    };
    let mut old = old.clone();
    if new.pointer("/cpu/arch").is_none_or(Value::is_null)
        && let Some(arch) = old.pointer_mut("/cpu/arch")
    {
        *arch = Value::Null;
    }
    old == *new
}

fn only_hosts_differ(old: Option<&Value>, new: Option<&Value>) -> bool {
    let without = |value: Option<&Value>| {
        let mut map = value
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        // Where the client reads its key from says nothing about the host.
        map.retain(|key, _| key != "hosts" && key != "identity_file" && key != "ssh_key");
        map
    };
    without(old) == without(new)
}

#[cfg(test)]
mod tests {
    use dstack_api::runs::RunSpec;
    use serde_json::{Value, json};

    use super::run;

    fn spec(configuration: Value) -> RunSpec {
        serde_json::from_value(json!({"run_name": "a-run", "configuration": configuration}))
            .unwrap()
    }

    fn refused(old: Value, new: Value) -> Vec<String> {
        run(&spec(old), &spec(new)).refused
    }

    #[test]
    fn a_task_changes_its_priority_only() {
        let task = |more: Value| {
            let mut base = json!({"type": "task", "commands": ["a"]});
            base.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            base
        };
        assert!(run(&spec(task(json!({}))), &spec(task(json!({})))).is_empty());
        assert!(refused(task(json!({})), task(json!({"priority": 7}))).is_empty());
        assert_eq!(
            refused(task(json!({})), task(json!({"commands": ["b"]}))),
            ["configuration.commands"]
        );
        assert_eq!(
            refused(task(json!({})), task(json!({"max_duration": "1h"}))),
            ["configuration.max_duration"]
        );
        let arch = |arch: &str| task(json!({"resources": {"cpu": arch}}));
        assert!(refused(arch("x86:2.."), arch("2..")).is_empty());
        assert_eq!(
            refused(arch("2.."), arch("x86:2..")),
            ["configuration.resources"]
        );
    }

    #[test]
    fn a_service_rolls() {
        let service = |more: Value| {
            let mut base =
                json!({"type": "service", "commands": ["a"], "port": 80, "image": "one"});
            base.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            base
        };
        let diff = run(
            &spec(service(json!({}))),
            &spec(service(json!({"image": "two", "replicas": 2}))),
        );
        assert_eq!((diff.changed.len(), diff.refused.len()), (2, 0), "{diff:?}");
        assert!(refused(service(json!({})), service(json!({"https": true}))).is_empty());
        assert_eq!(
            refused(service(json!({})), service(json!({"https": false}))),
            ["configuration.https"]
        );
        assert_eq!(
            refused(service(json!({})), service(json!({"auth": false}))),
            ["configuration.auth"]
        );
    }

    #[test]
    fn another_type_is_another_run() {
        let task = json!({"type": "task", "commands": ["a"]});
        let dev = json!({"type": "dev-environment", "ide": "vscode"});
        assert!(!run(&spec(task), &spec(dev)).is_updatable());
    }

    #[test]
    fn profile_and_key_never_change_in_place() {
        let old = spec(json!({"type": "task", "commands": ["a"]}));
        let new = RunSpec {
            ssh_key_pub: Some("ssh-ed25519 AAAA".into()),
            ..old.clone()
        };
        assert_eq!(run(&old, &new).refused, ["ssh_key_pub"]);
    }
}

//! What `apply` may change in place. Everything else needs the old thing to be stopped or deleted first.
//!
//! | thing | changes in place |
//! |---|---|
//! | run | see [`update_in_place`] |
//! | cloud fleet | nodes, reservation, tags, resources, backends, regions, zones, instance types, spot policy, price |
//! | SSH fleet | hosts that come or go; a host itself stays as it is, only the path of its key may differ |

use std::collections::{BTreeMap, BTreeSet};

use dstack_api::config::FleetConfiguration;
use dstack_api::fleets::FleetSpec;
use serde_json::{Map, Value};

pub use dstack_api::plan::update_in_place;

const CLOUD_FIELDS: &[&str] = &[
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

/// What an update of a fleet does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetUpdate {
    /// Names of the changed fields.
    pub changed: Vec<String>,
    /// Host names that come (SSH fleets).
    pub added_hosts: BTreeSet<String>,
    /// Host names that go (SSH fleets).
    pub removed_hosts: BTreeSet<String>,
}

/// Why a fleet cannot be changed in place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FleetFixed {
    /// It would become another kind of fleet.
    #[error("a cloud fleet cannot become an SSH fleet or the other way round")]
    Kind,
    /// The profile differs.
    #[error("the profile of a fleet cannot change")]
    Profile,
    /// Fields that are fixed once the fleet is there.
    #[error("{0} cannot change while the fleet is there")]
    Fields(String),
    /// A host is there with other parameters.
    #[error("host {0} cannot change; remove it first, then add it again")]
    Host(String),
}

/// Compares the stored fleet with what is applied now.
///
/// # Errors
/// [`FleetFixed`] when the fleet has to be deleted and created again.
pub fn fleet_update(old: &FleetSpec, new: &FleetSpec) -> Result<FleetUpdate, FleetFixed> {
    if old.profile != new.profile {
        return Err(FleetFixed::Profile);
    }
    let (ours, theirs) = (&old.configuration, &new.configuration);
    if ours.ssh_config.is_some() != theirs.ssh_config.is_some() {
        return Err(FleetFixed::Kind);
    }
    let (mut a, mut b) = (fields(ours), fields(theirs));
    // A client may leave the name out; it found the fleet by it.
    a.remove("name");
    b.remove("name");
    let mut update = FleetUpdate::default();
    if let (Some(a), Some(b)) = (ssh_config(&mut a), ssh_config(&mut b)) {
        hosts(a, b, &mut update)?;
    }
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let differ = keys.into_iter().filter(|key| a.get(*key) != b.get(*key));
    let ssh = ours.ssh_config.is_some();
    let (allowed, fixed): (Vec<&String>, Vec<&String>) =
        differ.partition(|key| !ssh && CLOUD_FIELDS.contains(&key.as_str()));
    if !fixed.is_empty() {
        let names: Vec<&str> = fixed.iter().map(|key| key.as_str()).collect();
        return Err(FleetFixed::Fields(names.join(", ")));
    }
    update.changed.extend(allowed.into_iter().cloned());
    Ok(update)
}

fn fields(configuration: &FleetConfiguration) -> Map<String, Value> {
    match serde_json::to_value(configuration) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

fn ssh_config(fields: &mut Map<String, Value>) -> Option<Map<String, Value>> {
    match fields.remove("ssh_config") {
        Some(Value::Object(map)) => Some(map),
        _ => None,
    }
}

fn host_list(config: &mut Map<String, Value>) -> Vec<Value> {
    match config.remove("hosts") {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// Names that lead to several hosts, which then differ by their ports.
fn shared_names(list: &[Value]) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let name = |host: &Value| match host {
        Value::String(name) => Some(name.clone()),
        host => Some(host.get("hostname")?.as_str()?.to_owned()),
    };
    let names = list.iter().filter_map(name);
    names.filter(|name| !seen.insert(name.clone())).collect()
}

/// A host's parameters by its name; a bare name has none. Where its key lies on the user's disk is not a change.
fn by_name(
    list: Vec<Value>,
    shared: &BTreeSet<String>,
    common_port: u64,
) -> BTreeMap<String, Map<String, Value>> {
    list.into_iter()
        .filter_map(|host| match host {
            Value::String(name) => Some((name, Map::new())),
            Value::Object(mut map) => {
                map.retain(|key, value| !value.is_null() && !is_key(key));
                if let Some(Value::Object(jump)) = map.get_mut("proxy_jump") {
                    jump.retain(|key, value| !value.is_null() && !is_key(key));
                }
                let name = map.remove("hostname")?.as_str()?.to_owned();
                Some((name, map))
            }
            _ => None,
        })
        .map(|(name, map)| {
            if !shared.contains(&name) {
                return (name, map);
            }
            let port = map.get("port").and_then(Value::as_u64);
            (format!("{name}:{}", port.unwrap_or(common_port)), map)
        })
        .collect()
}

fn is_key(field: &str) -> bool {
    matches!(field, "identity_file" | "ssh_key")
}

fn hosts(
    mut old: Map<String, Value>,
    mut new: Map<String, Value>,
    update: &mut FleetUpdate,
) -> Result<(), FleetFixed> {
    let port = |config: &Map<String, Value>| {
        let port = config.get("port").and_then(Value::as_u64);
        port.unwrap_or(22)
    };
    let (ours, theirs) = (host_list(&mut old), host_list(&mut new));
    let mut shared = shared_names(&ours);
    shared.extend(shared_names(&theirs));
    let ours = by_name(ours, &shared, port(&old));
    let theirs = by_name(theirs, &shared, port(&new));
    for config in [&mut old, &mut new] {
        config.retain(|key, _| !is_key(key));
        if let Some(Value::Object(jump)) = config.get_mut("proxy_jump") {
            jump.retain(|key, value| !value.is_null() && !is_key(key));
        }
    }
    if old != new {
        return Err(FleetFixed::Fields("ssh_config".into()));
    }
    for (name, host) in &theirs {
        match ours.get(name) {
            None => {
                update.added_hosts.insert(name.clone());
            }
            Some(before) if before != host => return Err(FleetFixed::Host(name.clone())),
            Some(_) => {}
        }
    }
    update.removed_hosts.extend(
        ours.keys()
            .filter(|name| !theirs.contains_key(*name))
            .cloned(),
    );
    if !update.added_hosts.is_empty() || !update.removed_hosts.is_empty() {
        update.changed.push("ssh_config".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(configuration: Value) -> FleetSpec {
        serde_json::from_value(
            json!({"configuration": configuration, "profile": {"name": "default"}}),
        )
        .unwrap()
    }

    fn update(old: Value, new: Value) -> Result<FleetUpdate, FleetFixed> {
        fleet_update(&spec(old), &spec(new))
    }

    #[test]
    fn nodes_and_resources_of_a_cloud_fleet_change_in_place() {
        let old = json!({"type": "fleet", "name": "f", "nodes": 2, "resources": {"gpu": 1}});
        assert_eq!(update(old.clone(), old.clone()), Ok(FleetUpdate::default()));
        let new = json!({"type": "fleet", "nodes": "1..4", "resources": {"gpu": 2}});
        assert_eq!(
            update(old.clone(), new).unwrap().changed,
            ["nodes", "resources"]
        );
        let fixed =
            json!({"type": "fleet", "name": "f", "nodes": 2, "blocks": 2, "resources": {"gpu": 1}});
        assert_eq!(update(old, fixed), Err(FleetFixed::Fields("blocks".into())));
    }

    #[test]
    fn hosts_come_and_go_but_do_not_change() {
        let fleet = |hosts: Value| {
            let config = json!({"user": "u", "identity_file": "k", "hosts": hosts});
            json!({"type": "fleet", "name": "f", "ssh_config": config})
        };
        let both = fleet(json!(["a", {"hostname": "b", "port": 23, "identity_file": "x"}]));
        let one = update(both.clone(), fleet(json!(["a", "c"]))).unwrap();
        assert_eq!(one.added_hosts, BTreeSet::from(["c".to_owned()]));
        assert_eq!(one.removed_hosts, BTreeSet::from(["b".to_owned()]));
        let key = fleet(json!(["a", {"hostname": "b", "port": 23, "identity_file": "y"}]));
        assert_eq!(update(both.clone(), key), Ok(FleetUpdate::default()));
        let port = fleet(json!(["a", {"hostname": "b", "port": 24}]));
        assert_eq!(
            update(both.clone(), port),
            Err(FleetFixed::Host("b".into()))
        );
        let cloud = json!({"type": "fleet", "name": "f", "nodes": 1});
        assert_eq!(update(both, cloud), Err(FleetFixed::Kind));
        let port = |port: u16| json!({"hostname": "nat", "port": port});
        let one = update(fleet(json!([port(22)])), fleet(json!([port(22), port(23)]))).unwrap();
        assert_eq!(one.added_hosts, BTreeSet::from(["nat:23".to_owned()]));
        assert!(one.removed_hosts.is_empty());
    }
}

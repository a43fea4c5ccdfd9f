//! Answers for clients of earlier releases, which know some fields in another form.
//!
//! | client below | what changes |
//! |---|---|
//! | 0.20.8 | `probes: null` of a service is `[]` |
//! | 0.20.12 | `https: null` of a service is `true` |
//! | 0.20.14 | `fleets` are texts, not objects |
//! | 0.20.20 | `gateway` of a service is a text, not an object |
//! | 0.21.3 | `groups` of a service are a list under `replicas`, with `count` |

use serde_json::{Map, Value};

use super::Client;

/// The newest release for which something changes.
const LAST: [u64; 3] = [0, 21, 3];

/// Whether this client needs [`patch`] at all.
pub(crate) fn is_needed(client: &Client) -> bool {
    client.older_than(LAST)
}

/// Rewrites every configuration inside an answer.
pub(crate) fn patch(value: &mut Value, client: &Client) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| patch(item, client)),
        Value::Object(map) => {
            if map.get("type").and_then(Value::as_str) == Some("service")
                && map.contains_key("port")
            {
                service(map, client);
            }
            if client.older_than([0, 20, 14])
                && let Some(Value::Array(fleets)) = map.get_mut("fleets")
            {
                fleets.iter_mut().for_each(reference);
            }
            map.values_mut().for_each(|item| patch(item, client));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn service(map: &mut Map<String, Value>, client: &Client) {
    let mut default = |key: &str, value: Value| {
        if map.get(key).is_some_and(Value::is_null) {
            map.insert(key.to_owned(), value);
        }
    };
    if client.older_than([0, 20, 8]) {
        default("probes", Value::Array(Vec::new()));
    }
    if client.older_than([0, 20, 12]) {
        default("https", Value::Bool(true));
    }
    if client.older_than([0, 20, 20])
        && let Some(gateway) = map.get_mut("gateway")
    {
        reference(gateway);
    }
    if client.older_than(LAST)
        && let Some(Value::Array(mut groups)) = map.remove("groups")
    {
        for group in groups.iter_mut().filter_map(Value::as_object_mut) {
            if let Some(replicas) = group.remove("replicas") {
                group.insert("count".to_owned(), replicas);
            }
        }
        map.insert("replicas".to_owned(), Value::Array(groups));
    }
}

/// `{project, name}` as `project/name` or `name`.
fn reference(value: &mut Value) {
    let Some(name) = value.get("name").and_then(Value::as_str) else {
        return;
    };
    let text = match value.get("project").and_then(Value::as_str) {
        Some(project) => format!("{project}/{name}"),
        None => name.to_owned(),
    };
    *value = Value::String(text);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{is_needed, patch};
    use crate::compat::{Client, version::Version};

    #[test]
    fn each_release_gets_its_form() {
        let answer = json!([{"configuration": {
            "type": "service", "port": 80, "probes": null, "https": null, "replicas": null,
            "gateway": {"project": "a", "name": "gw"}, "fleets": [{"project": null, "name": "f"}],
            "groups": [{"name": "x", "replicas": {"min": 1, "max": 2}}],
        }}]);
        for (version, probes, https, fleet, gateway, replicas) in [
            (
                "0.20.7",
                json!([]),
                json!(true),
                json!("f"),
                json!("a/gw"),
                json!([{"name": "x", "count": {"min": 1, "max": 2}}]),
            ),
            (
                "0.20.19",
                json!(null),
                json!(null),
                json!({"project": null, "name": "f"}),
                json!("a/gw"),
                json!([{"name": "x", "count": {"min": 1, "max": 2}}]),
            ),
            (
                "0.22.5",
                json!(null),
                json!(null),
                json!({"project": null, "name": "f"}),
                json!({"project": "a", "name": "gw"}),
                json!(null),
            ),
        ] {
            let client = Client {
                version: Version::parse(version),
                ours: false,
            };
            let mut ours = answer.clone();
            if is_needed(&client) {
                patch(&mut ours, &client);
            }
            let it = &ours[0]["configuration"];
            assert_eq!(
                (
                    &it["probes"],
                    &it["https"],
                    &it["fleets"][0],
                    &it["gateway"],
                    &it["replicas"]
                ),
                (&probes, &https, &fleet, &gateway, &replicas),
                "{version}"
            );
        }
    }
}

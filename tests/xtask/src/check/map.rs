//! The walls: which of our crates may depend on which.

use cargo_metadata::{DependencyKind, Metadata};

/// Each room and the rooms it may name in its manifest. The same table is in CONTRIBUTING.md.
const MAP: &[(&str, &[&str])] = &[
    ("dstack-backend-types", &[]),
    ("dstack-backend-catalog", &["dstack-backend-types"]),
    ("dstack-backend-abi", &[]),
    (
        "dstack-backend-sdk",
        &["dstack-backend-abi", "dstack-backend-types"],
    ),
    (
        "dstack-backend-loader",
        &["dstack-backend-abi", "dstack-backend-types"],
    ),
    ("dstack-backend-scaffold", &["dstack-backend-types"]),
    (
        "dstack-backend-conformance",
        &[
            "dstack-backend-loader",
            "dstack-backend-abi",
            "dstack-backend-types",
        ],
    ),
    ("dstack-agent-protocol", &[]),
    ("dstack-agent-kit", &["dstack-agent-protocol"]),
    (
        "dstack-shim",
        &["dstack-agent-kit", "dstack-agent-protocol"],
    ),
    (
        "dstack-runner",
        &["dstack-agent-kit", "dstack-agent-protocol"],
    ),
    ("dstack-api", &["dstack-backend-types"]),
    ("dstack-engine", &["dstack-api", "dstack-backend-types"]),
    (
        "dstack-store",
        &["dstack-engine", "dstack-api", "dstack-backend-types"],
    ),
    (
        "dstack-plugins",
        &[
            "dstack-backend-catalog",
            "dstack-backend-loader",
            "dstack-backend-abi",
            "dstack-backend-types",
        ],
    ),
    (
        "dstack-remote",
        &[
            "dstack-agent-protocol",
            "dstack-api",
            "dstack-backend-types",
        ],
    ),
    (
        "dstack-server",
        &[
            "dstack-backend-catalog",
            "dstack-store",
            "dstack-plugins",
            "dstack-remote",
            "dstack-engine",
            "dstack-api",
            "dstack-backend-types",
            "dstack-agent-protocol",
        ],
    ),
    (
        "dstack-cli",
        &[
            "dstack-backend-catalog",
            "dstack-api",
            "dstack-backend-types",
            "dstack-backend-conformance",
            "dstack-backend-scaffold",
            "dstack-agent-protocol",
        ],
    ),
    (
        "dstack",
        &[
            "dstack-cli",
            "dstack-server",
            "dstack-plugins",
            "dstack-backend-loader",
            "dstack-backend-types",
        ],
    ),
];

/// Whether the crate is under a folder whose crates ship nowhere and may use anything.
fn is_test_room(path: &str) -> bool {
    path.starts_with("tests/")
}

/// One line for each edge that the map does not know.
pub(super) fn findings(metadata: &Metadata) -> Vec<String> {
    let mut found = Vec::new();
    let ours: Vec<_> = metadata.workspace_packages();
    let names: Vec<String> = ours
        .iter()
        .map(|package| package.name.to_string())
        .collect();
    for package in &ours {
        let name = package.name.as_str();
        let path = package.manifest_path.strip_prefix(&metadata.workspace_root);
        let path = path.map_or_else(|_| package.manifest_path.as_str(), camino_str);
        if is_test_room(path) {
            continue;
        }
        let allowed: Vec<&str> = match MAP.iter().find(|(room, _)| *room == name) {
            Some((_, allowed)) => allowed.to_vec(),
            None if name.starts_with("dstack-backend-") => vec!["dstack-backend-sdk"],
            None => {
                found.push(format!(
                    "{name}: not in the map of crates (tests/xtask/src/check/map.rs)"
                ));
                continue;
            }
        };
        for dependency in &package.dependencies {
            let to = dependency.name.as_str();
            if !names.iter().any(|known| known == to) || allowed.contains(&to) {
                continue;
            }
            if dependency.kind == DependencyKind::Development
                && matches!(
                    to,
                    "dstack-test-support" | "dstack-backend-sdk" | "dstack-backend-conformance"
                )
            {
                continue;
            }
            found.push(format!(
                "{name} -> {to}: this wall is closed; see the map in CONTRIBUTING.md"
            ));
        }
    }
    found
}

fn camino_str(path: &cargo_metadata::camino::Utf8Path) -> &str {
    path.as_str()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use cargo_metadata::{Metadata, MetadataCommand};
    use serde_json::{Value, json};

    use super::{MAP, findings};
    use crate::process::root;

    /// The manifests as they are, and as JSON to be changed.
    fn manifests() -> Value {
        let metadata = MetadataCommand::new()
            .manifest_path(root().join("Cargo.toml"))
            .no_deps()
            .exec()
            .unwrap();
        serde_json::to_value(&metadata).unwrap()
    }

    fn judged(manifests: &Value) -> Vec<String> {
        let metadata: Metadata = serde_json::from_value(manifests.clone()).unwrap();
        findings(&metadata)
    }

    /// Adds the line `to = { … }` to the manifest of `from`.
    fn with_edge(manifests: &Value, from: &str, to: &str, kind: Value) -> Value {
        let mut changed = manifests.clone();
        let package = changed["packages"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .find(|package| package["name"] == from)
            .unwrap_or_else(|| panic!("no crate {from}"));
        package["dependencies"].as_array_mut().unwrap().push(json!({
            "name": to, "kind": kind, "req": "*", "optional": false, "uses_default_features": true, "features": [],
        }));
        changed
    }

    #[test]
    fn a_wall_that_is_broken_is_named() {
        let manifests = manifests();
        assert_eq!(judged(&manifests), [] as [&str; 0]);
        for (from, to) in [
            // No crate of the host names a backend,
            ("dstack-server", "dstack-backend-local"),
            ("dstack-plugins", "dstack-backend-local"),
            ("dstack", "dstack-backend-local"),
            ("dstack-engine", "dstack-backend-hello"),
            ("dstack-cli", "dstack-backend-fake"),
            // no backend names the host, or another backend, or what is below the SDK,
            ("dstack-backend-local", "dstack-server"),
            ("dstack-backend-local", "dstack-plugins"),
            ("dstack-backend-local", "dstack-api"),
            ("dstack-backend-hello", "dstack-engine"),
            ("dstack-backend-hello", "dstack-backend-local"),
            ("dstack-backend-hello", "dstack-backend-types"),
            // and the SDK and the pure rooms name nothing above them.
            ("dstack-backend-sdk", "dstack-plugins"),
            ("dstack-backend-types", "dstack-api"),
            ("dstack-engine", "dstack-store"),
            ("dstack-cli", "dstack-server"),
        ] {
            for kind in [Value::Null, json!("build"), json!("dev")] {
                let found = judged(&with_edge(&manifests, from, to, kind.clone()));
                assert!(
                    found.len() == 1 && found[0].starts_with(&format!("{from} -> {to}: ")),
                    "{kind} {found:?}"
                );
            }
        }
        // Tests of a backend may use what its author has for them, and tests of the host the SDK.
        for (from, to) in [
            ("dstack-backend-local", "dstack-backend-conformance"),
            ("dstack-plugins", "dstack-backend-sdk"),
        ] {
            let dev = with_edge(&manifests, from, to, json!("dev"));
            assert_eq!(judged(&dev), [] as [&str; 0], "{from} -> {to}");
            let plain = with_edge(&manifests, from, to, Value::Null);
            assert_eq!(judged(&plain).len(), 1, "{from} -> {to}");
        }
        // A crate that nobody has put on the map.
        let mut other = manifests.clone();
        let packages = other["packages"].as_array_mut().unwrap();
        let engine = packages
            .iter_mut()
            .find(|package| package["name"] == "dstack-engine");
        engine.unwrap()["name"] = json!("dstack-newcomer");
        let found = judged(&other);
        assert!(
            found.len() == 1 && found[0].contains("dstack-newcomer: not in the map"),
            "{found:?}"
        );
    }

    /// `backend-sdk/types` of `dstack-backend-types`.
    fn room(name: &str) -> String {
        let (folder, rest) = match name.strip_prefix("dstack-") {
            None => ("host", name),
            Some(agent @ ("shim" | "runner")) => ("agents", agent),
            Some(rest) => match (rest.strip_prefix("backend-"), rest.strip_prefix("agent-")) {
                (Some(rest), _) => ("backend-sdk", rest),
                (_, Some(rest)) => ("agents", rest),
                _ => ("host", rest),
            },
        };
        format!("{folder}/{rest}")
    }

    #[test]
    fn contributors_read_the_same_table() {
        let text = include_str!("../../../../CONTRIBUTING.md");
        let mut shown: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for row in text.lines().filter(|line| line.starts_with("| ")) {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let &[_, rooms, _, uses, _, _] = cells.as_slice() else {
                continue;
            };
            for room in rooms.split(", ") {
                let uses = uses.split(", ").filter(|name| *name != "–").collect();
                shown.insert(room.trim_matches('`').to_owned(), uses);
            }
        }
        for (name, allowed) in MAP {
            let rooms: Vec<String> = allowed.iter().map(|name| room(name)).collect();
            let short: BTreeSet<&str> = rooms
                .iter()
                .filter_map(|room| room.split('/').next_back())
                .collect();
            assert_eq!(shown.get(&room(name)), Some(&short), "{name}");
        }
    }
}

//! What comes from outside: licences, sources, crates that are there twice.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::Metadata;

/// Licences that may be linked into the product.
const LICENCES: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "0BSD",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "CC0-1.0",
    "MIT-0",
];

/// Crates with another licence, each with the reason why it may stay.
const LICENCE_EXCEPTIONS: &[(&str, &str)] = &[(
    "generational-arena",
    "MPL-2.0: used unchanged, by abi_stable, which is the border's fixed base",
)];

/// Crates that are there in several versions, each with who needs the older ones.
const DOUBLES: &[(&str, &str)] = &[
    (
        "syn",
        "abi_stable's derive needs 1, most derives 2, the newest 3",
    ),
    (
        "libloading",
        "abi_stable needs 0.7 for its own loader, which we do not call",
    ),
    (
        "getrandom",
        "ring needs 0.2, tungstenite's rand 0.3, our rand 0.4",
    ),
    ("r-efi", "follows getrandom; not built on Linux"),
    ("rand", "tungstenite needs 0.9"),
    ("rand_core", "follows rand"),
    ("base64", "ureq, bollard and tungstenite need 0.22"),
    ("sha1", "tungstenite needs 0.10"),
    ("digest", "follows sha1"),
    ("block-buffer", "follows sha1"),
    ("crypto-common", "follows sha1"),
    ("cpufeatures", "follows sha1"),
    ("generic-array", "follows sha1 and ssh-key"),
    ("tower-http", "reqwest needs 0.6"),
    ("fallible-iterator", "postgres-protocol needs 0.2"),
    ("wasi", "follows getrandom; not built on Linux"),
    ("strum", "oci-client needs 0.27"),
    ("strum_macros", "follows strum"),
    (
        "bit-vec",
        "jsonschema and rcgen, which only tests use, need 0.8 and 0.9",
    ),
    (
        "synstructure",
        "x509-parser, which rcgen names and nobody builds, needs 0.13",
    ),
    (
        "num-bigint",
        "jsonschema, which only tests use, needs 0.4, russh 0.5",
    ),
];

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// One line for each crate that breaks a rule.
pub(super) fn findings(metadata: &Metadata) -> Vec<String> {
    let mut found = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let Some(source) = &package.source else {
            continue;
        };
        if source.repr != REGISTRY {
            found.push(format!(
                "{name}: comes from {source}; only crates.io is a source"
            ));
        }
        versions
            .entry(name)
            .or_default()
            .insert(package.version.to_string());
        let licence = package.license.as_deref().unwrap_or("none");
        if !allowed(licence) && !LICENCE_EXCEPTIONS.iter().any(|(known, _)| *known == name) {
            found.push(format!("{name}: licence {licence} is not on the list"));
        }
    }
    for (known, _) in DOUBLES {
        if versions.get(known).is_none_or(|all| all.len() < 2) {
            found.push(format!(
                "{known}: no longer there twice; take it from the exceptions in tests/xtask/src/check/supply.rs"
            ));
        }
    }
    for (name, all) in versions {
        if all.len() > 1
            && !DOUBLES.iter().any(|(known, _)| *known == name)
            && !name.starts_with("windows")
        {
            let all: Vec<String> = all.into_iter().collect();
            found.push(format!(
                "{name}: there in {} versions ({}); choose one, or give the reason in tests/xtask/src/check/supply.rs",
                all.len(),
                all.join(", ")
            ));
        }
    }
    found
}

/// Whether an SPDX expression leaves a choice that is on the list: any of `OR`, all of `AND`.
fn allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace(['(', ')'], " ");
    expression.split(" OR ").any(|choice| {
        choice.split(" AND ").all(|licence| {
            LICENCES.contains(
                &licence
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ")
                    .as_str(),
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn a_choice_is_enough_and_a_conjunction_needs_all() {
        assert!(allowed("MIT OR GPL-3.0"));
        assert!(allowed("Apache-2.0 AND ISC"));
        assert!(allowed("MIT/Apache-2.0"));
        assert!(!allowed("GPL-3.0"));
        assert!(!allowed("MIT AND GPL-3.0"));
        assert!(!allowed("none"));
    }
}

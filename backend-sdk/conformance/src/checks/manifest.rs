//! What the file says of itself.

use std::collections::BTreeSet;

use dstack_backend_types::capability;

use super::{Check, Verdict};
use crate::cx::{Cx, ensure};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "manifest.fields",
        title: "the manifest has version, SDK version and encoding",
        why: "an operator sees from it what runs, and a host what it can call, without running anything",
        needs: None,
        run: fields,
    },
    Check {
        id: "manifest.capabilities",
        title: "capabilities are known words and fit together",
        why: "a host calls only what the manifest claims; a wrong word is a feature that nobody gets",
        needs: None,
        run: capabilities,
    },
];

const EXPORT: &str = "export the backend by `export_backend!`, which writes the manifest";

fn fields(cx: &Cx<'_>) -> Verdict {
    let manifest = &cx.plan.manifest;
    ensure(
        manifest.schema == 1,
        "schema 1",
        || manifest.schema.to_string(),
        EXPORT,
    )?;
    let is_version = |text: &str| {
        let core = text.split(['-', '+']).next().unwrap_or_default();
        let numbers: Vec<&str> = core.split('.').collect();
        numbers.len() == 3 && numbers.iter().all(|part| part.parse::<u64>().is_ok())
    };
    for (what, text) in [("version", &manifest.version), ("sdk", &manifest.sdk)] {
        ensure(
            is_version(text),
            &format!("`{what}` like 1.2.3"),
            || format!("{text:?}"),
            "take it from the crate's version",
        )?;
    }
    ensure(
        manifest.encodings.is_empty() || manifest.encodings.iter().any(|word| word == "json"),
        "the encoding `json`",
        || manifest.encodings.join(", "),
        EXPORT,
    )?;
    ensure(
        manifest
            .provisioning_timeout_s
            .is_none_or(|seconds| (1..=86_400).contains(&seconds)),
        "a provisioning timeout between a second and a day",
        || format!("{:?} s", manifest.provisioning_timeout_s),
        "state how long a machine takes from the request to its first answer, in seconds",
    )
}

fn capabilities(cx: &Cx<'_>) -> Verdict {
    let words = &cx.plan.manifest.capabilities;
    let mut seen = BTreeSet::new();
    for word in words {
        ensure(
            seen.insert(word),
            "each capability once",
            || format!("`{word}` twice"),
            "name it once in `export_backend!`",
        )?;
        ensure(
            capability::is_known(word),
            "capability words of this SDK",
            || format!("`{word}`"),
            "correct the word, or build the suite from the SDK that knows it",
        )?;
    }
    let needs = [
        (capability::CREATE_INSTANCE, capability::PRIVILEGED),
        (capability::CREATE_INSTANCE, capability::INSTANCE_VOLUMES),
        (capability::GATEWAY_LOAD_BALANCER, capability::GATEWAY),
        (capability::PRIVATE_GATEWAY, capability::GATEWAY),
    ];
    for (word, needed) in needs {
        ensure(
            !cx.has(word) || cx.has(needed),
            &format!("`{needed}` beside `{word}`"),
            || words.join(", "),
            &format!(
                "add \"{needed}\" to `export_backend!`: the shim on a machine brings it, and gateways belong together"
            ),
        )?;
    }
    Ok(())
}

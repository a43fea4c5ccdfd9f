//! Numbers and words are for ever, so they are written down once more here.

use dstack_backend_types::backend_type::{BackendType, KNOWN_BACKENDS};
use dstack_backend_types::{BackendError, ErrorKind, capability, methods};
use serde_json::json;

#[test]
fn numbers_are_unique_and_lie_in_their_capability() {
    let mut seen = std::collections::BTreeSet::new();
    for (number, name, owner) in methods::ALL {
        assert!(seen.insert(*number), "{name} shares its number");
        assert_eq!(capability::of_method(*number), Some(*owner), "{name}");
    }
    assert_eq!(capability::of_method(300), None);
    assert_eq!(capability::of_method(0), None);
}

#[test]
fn numbers_never_change() {
    let numbers: Vec<u32> = methods::ALL.iter().map(|(number, ..)| *number).collect();
    let frozen = [
        1, 2, 3, 4, 6, 16, 32, 33, 48, 49, 50, 51, 64, 65, 80, 81, 82, 83, 96, 97, 98, 99, 100,
        101, 112, 113, 256, 257, 258, 259, 260,
    ];
    assert_eq!(numbers, frozen);
    assert_eq!(methods::name_of(16), Some("create_instance"));
}

#[test]
fn error_kinds_are_read_with_an_unknown_one_as_internal() {
    let error: BackendError =
        serde_json::from_value(json!({"kind": "from_the_future", "message": "m"})).unwrap();
    assert_eq!(error, BackendError::internal("m"));
    let error: BackendError = serde_json::from_value(json!({
        "kind": "no_capacity", "message": "m", "retry_after_ms": null, "details": {"zone": "a"}, "new": 1
    }))
    .unwrap();
    assert!(error.kind.tries_next_offer());
    assert_eq!(error.details["zone"], "a");
    for kind in [
        ErrorKind::NotYetTerminated,
        ErrorKind::PlacementGroupInUse,
        ErrorKind::SkipOffer,
        ErrorKind::NoCatalog,
    ] {
        assert_eq!(json!(kind), json!(kind.as_str()));
    }
    let auth = BackendError::auth("refused", ["creds.api_key"]);
    assert_eq!(auth.details["fields"], json!(["creds.api_key"]));
}

#[test]
fn backend_names_are_checked() {
    for good in ["aws", "a", "my_cloud-2", "abcdefghijklmnopqrstuvwxyz012345"] {
        assert_eq!(BackendType::parse(good).unwrap().as_str(), good);
    }
    for bad in [
        "",
        "AWS",
        "1a",
        "-a",
        "a.b",
        "abcdefghijklmnopqrstuvwxyz0123456",
    ] {
        assert!(BackendType::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn known_backends_have_the_recorded_facts() {
    let listed: Vec<&str> = KNOWN_BACKENDS
        .iter()
        .filter(|facts| facts.listed)
        .map(|facts| facts.name)
        .collect();
    assert_eq!(listed.len(), 22);
    let with = |word: &str| -> Vec<&str> {
        KNOWN_BACKENDS
            .iter()
            .filter(|facts| facts.listed && facts.has(word))
            .map(|facts| facts.name)
            .collect()
    };
    assert_eq!(
        with(capability::GATEWAY),
        ["aws", "azure", "gcp", "kubernetes"]
    );
    assert_eq!(
        with(capability::VOLUMES),
        ["aws", "daytona", "gcp", "kubernetes", "lium", "runpod"]
    );
    assert_eq!(with(capability::RESERVATION), ["aws", "gcp"]);
    assert_eq!(with(capability::GROUP_PROVISIONING), ["runpod", "slurm"]);
    assert_eq!(BackendType::new("lambda").catalog_provider(), "lambdalabs");
}

//! Each defect is found by the check that is for it.

use std::collections::BTreeSet;

use dstack_backend_conformance::{FakeProvider, Isolation, Outcome, Reply, Report, Suite, checks};
use serde_json::{Value, json};

use crate::cloud;

/// Defect, and the check that must fail.
const DEFECTS: &[(&str, &str)] = &[
    ("accepts_any_config", "config.refused"),
    ("auth_is_internal", "faults.auth"),
    ("blind_post", "faults.retries"),
    ("changes_id", "create.completes"),
    ("clear_secret", "config.round_trip"),
    ("deletes_once", "listing.delete"),
    ("deletes_others", "listing.delete"),
    ("double_offers", "offers.chunks"),
    ("endless_retries", "faults.rate_limit"),
    ("first_machine", "border.concurrency"),
    ("forgets_disk", "faults.partial"),
    ("forgets_disk", "ledger.end"),
    ("gateway_twice", "gateways.replica"),
    ("gib_memory", "offers.normalised"),
    ("gone_is_starting", "terminate.gone"),
    ("half_listing", "listing.whole"),
    ("ignores_late_failure", "faults.no_capacity_late"),
    ("impatient", "faults.slow"),
    ("leak_in_error", "secrets.nowhere"),
    ("leak_in_log", "secrets.nowhere"),
    ("ledger_after", "ledger.before"),
    ("negative_price", "offers.sane"),
    ("never_detached", "volumes.attach"),
    ("never_ready", "create.completes"),
    ("no_capacity_is_internal", "faults.no_capacity"),
    ("no_primary", "listing.found"),
    ("no_reference", "create.reference"),
    ("node_left_behind", "groups.all_or_none"),
    ("not_idempotent", "create.idempotent"),
    ("not_idempotent", "create.lost_answer"),
    ("one_node", "groups.lifecycle"),
    ("outsider_is_an_error", "gateways.load_balancer"),
    ("panics_on_nonsense", "border.panic"),
    ("placement_asks", "placement.lifecycle"),
    ("public_view_leaks", "config.public_view"),
    ("quota_is_internal", "faults.quota"),
    ("refuses_unknown_fields", "config.unknown_fields"),
    ("registers_anything", "volumes.register"),
    ("server_error_is_internal", "faults.server_error"),
    ("short_replies", "border.large"),
    ("swallows_cancel", "border.cancel"),
    ("swallows_cancel", "faults.cut"),
    ("terminate_lies", "terminate.confirmed"),
    ("two_volumes", "volumes.create"),
    ("unfiltered_offers", "offers.requirements"),
    ("unknown_is_an_error", "terminate.idempotent"),
    ("unsorted_offers", "offers.order"),
    ("vendor_gpu_name", "offers.normalised"),
    ("wrong_region", "create.made"),
];

#[test]
fn each_defect_is_found_by_its_check() {
    let mut missed = Vec::new();
    for (defect, check) in DEFECTS {
        let report = cloud::suite(defect)
            .only([*check])
            .isolation(Isolation::InProcess)
            .report()
            .unwrap();
        let result = report.result(check).unwrap();
        match &result.outcome {
            Outcome::Failed(failure) => {
                assert!(!failure.remedy.is_empty() && !failure.expected.is_empty());
                let text = report.to_string();
                assert!(!text.contains(cloud::TOKEN), "{defect}: {text}");
            }
            other => missed.push(format!("{defect} passes {check}: {other:?}")),
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Plugin, how it is opened, and the check that must fail: what cannot be wrong in a backend that the SDK exports.
const WITHOUT_THE_SDK: &[(&str, &str, &str)] = &[
    ("dstack-backend-raw", "good", "border.nonsense"),
    ("dstack-backend-raw", "good", "border.unknown_method"),
    ("dstack-backend-raw", "good", "config.schema"),
    ("dstack-backend-raw", "good", "config.secrets"),
    ("dstack-backend-raw", "good", "config.unconfigured"),
    ("dstack-backend-raw", "good", "manifest.fields"),
    ("dstack-backend-raw", "strict", "border.unknown_fields"),
    ("dstack-backend-future", "", "manifest.capabilities"),
];

fn checked(package: &str, config: Value, check: &str) -> Report {
    Suite::new(crate::built::plugins(&[package]).remove(0))
        .config(config)
        .provider(FakeProvider::new(|| ()).start())
        .only([check])
        .isolation(Isolation::InProcess)
        .report()
        .unwrap()
}

#[test]
fn what_only_a_plugin_without_the_sdk_gets_wrong_is_found() {
    for (package, mode, check) in WITHOUT_THE_SDK {
        let config = json!({"mode": mode, "token": "t"});
        let report = checked(package, config, check);
        let failed: Vec<_> = report.failures().map(|(result, _)| &result.id).collect();
        assert_eq!(failed, [check], "{package} {mode}: {report}");
    }
}

/// What a provider of containers is told, and the check that must fail for it.
const CONTAINERS: &[(bool, bool, usize, &str)] = &[
    (false, true, 16, "container.image"),
    (true, false, 16, "container.image"),
    (true, true, 15, "container.entrypoint"),
];

#[test]
fn a_container_that_is_not_told_whole_is_found() {
    let report = |image: bool, login: bool, keys: usize| {
        let provider = FakeProvider::new(|| ())
            .route("POST /pods", |(), _| Reply::json(201, &json!({"id": 1})))
            .start();
        let told = json!({"image": image, "login": login, "keys": keys});
        Suite::new(crate::built::plugins(&["dstack-backend-probe"]).remove(0))
            .config(json!({"container": told}))
            .provider(provider)
            .only(["container"])
            .isolation(Isolation::InProcess)
            .report()
            .unwrap()
    };
    let right = report(true, true, 16);
    assert_eq!(right.counts(), (2, 0, 0), "{right}");
    for (image, login, keys, check) in CONTAINERS {
        let report = report(*image, *login, *keys);
        let failed: Vec<_> = report.failures().map(|(result, _)| &result.id).collect();
        assert_eq!(failed, [check], "{report}");
    }
}

/// Whoever adds a check adds the defect that it finds.
#[test]
fn every_check_has_failed_once() {
    let failing = DEFECTS
        .iter()
        .map(|(_, check)| *check)
        .chain(WITHOUT_THE_SDK.iter().map(|(_, _, check)| *check))
        .chain(CONTAINERS.iter().map(|(_, _, _, check)| *check))
        .chain(["config.accepted"]);
    let failing: BTreeSet<&str> = failing.collect();
    let all: BTreeSet<&str> = checks().map(|(id, ..)| id).collect();
    assert_eq!(failing, all);
}

#[test]
fn a_configuration_that_the_provider_refuses_is_named() {
    let report = Suite::new(cloud::plugin())
        .config(json!({"token": "another-token"}))
        .provider(cloud::provider())
        .only(["config.accepted"])
        .isolation(Isolation::InProcess)
        .report()
        .unwrap();
    let (_, failure) = report.failures().next().unwrap();
    assert!(failure.seen.contains("error `auth`"), "{report}");
}

#[test]
fn a_plugin_that_ends_its_process_fails_one_check_only() {
    let report = cloud::suite("abort")
        .only([
            "offers.sane",
            "border.unknown_fields",
            "terminate.idempotent",
        ])
        .isolation(Isolation::Process)
        .report()
        .unwrap();
    let failed: Vec<&str> = report
        .failures()
        .map(|(result, _)| result.id.as_str())
        .collect();
    assert_eq!(failed, ["border.unknown_fields"], "{report}");
    assert!(report.to_string().contains("it ended"), "{report}");
    assert_eq!(report.results.len(), 3);
}

#[test]
#[should_panic(expected = "look for what carries the reference")]
fn a_failed_suite_panics_with_the_table() {
    cloud::suite("not_idempotent")
        .only(["create.idempotent"])
        .isolation(Isolation::InProcess)
        .run();
}

//! Each defect is found by the check that is for it.

use dstack_backend_conformance::{Isolation, Outcome};

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
    ("forgets_disk", "ledger.end"),
    ("forgets_disk", "faults.partial"),
    ("gateway_twice", "gateways.replica"),
    ("gib_memory", "offers.normalised"),
    ("half_listing", "listing.whole"),
    ("ignores_late_failure", "faults.no_capacity_late"),
    ("leak_in_error", "secrets.nowhere"),
    ("leak_in_log", "secrets.nowhere"),
    ("ledger_after", "ledger.before"),
    ("negative_price", "offers.sane"),
    ("never_ready", "create.completes"),
    ("node_left_behind", "groups.all_or_none"),
    ("no_capacity_is_internal", "faults.no_capacity"),
    ("not_idempotent", "create.idempotent"),
    ("not_idempotent", "create.lost_answer"),
    ("outsider_is_an_error", "gateways.load_balancer"),
    ("panics_on_nonsense", "border.panic"),
    ("placement_asks", "placement.lifecycle"),
    ("public_view_leaks", "config.public_view"),
    ("refuses_unknown_fields", "config.unknown_fields"),
    ("swallows_cancel", "border.cancel"),
    ("terminate_lies", "terminate.confirmed"),
    ("two_volumes", "volumes.create"),
    ("unfiltered_offers", "offers.requirements"),
    ("unknown_is_an_error", "terminate.idempotent"),
    ("unsorted_offers", "offers.order"),
    ("vendor_gpu_name", "offers.normalised"),
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

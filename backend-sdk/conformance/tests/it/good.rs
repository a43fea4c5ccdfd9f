//! Plugins that are right.

use std::fs;

use dstack_backend_conformance::{Isolation, Outcome, Suite};
use serde_json::json;

use crate::cloud;

/// Ids of the checks that were skipped.
fn skipped(report: &dstack_backend_conformance::Report) -> Vec<&str> {
    report
        .results
        .iter()
        .filter(|result| matches!(result.outcome, Outcome::Skipped { .. }))
        .map(|result| result.id.as_str())
        .collect()
}

#[test]
fn a_right_plugin_passes_everything_that_it_claims() {
    let report = cloud::suite("none").run();
    assert_eq!(report.isolation, "process");
    assert_eq!(
        skipped(&report),
        ["container.entrypoint", "container.image"]
    );
}

#[test]
fn the_fake_cloud_passes() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = crate::built::plugins(&["dstack-backend-fake"]).remove(0);
    let report = Suite::new(plugin)
        .config(json!({"folder": folder.path(), "token": "fake-token-1"}))
        .isolation(Isolation::InProcess)
        .run();
    let (passed, failed, _) = report.counts();
    assert!(passed >= 20 && failed == 0, "{report}");
    let left = fs::read_dir(folder.path().join("machines")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "machines that the suite left behind");
}

#[test]
fn a_recording_is_replayed_without_a_provider() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cloud.jsonl");
    let only = ["offers", "config.accepted"];
    cloud::suite("none")
        .only(only)
        .isolation(Isolation::InProcess)
        .record(&file)
        .run();
    assert!(!fs::read_to_string(&file).unwrap().contains(cloud::TOKEN));
    Suite::new(cloud::plugin())
        .config(json!({"token": "another-token"}))
        .only(only)
        .isolation(Isolation::InProcess)
        .replay(&file)
        .run();
}

#[test]
fn without_a_configuration_one_is_made_up() {
    let report = Suite::new(cloud::plugin())
        .provider(cloud::provider())
        .only(["manifest", "config"])
        .isolation(Isolation::InProcess)
        .report()
        .unwrap();
    assert!(report.is_passed(), "{report}");
    assert!(
        report.notes.iter().any(|note| note.contains("--config")),
        "{report}"
    );
}

#[test]
fn without_a_provider_what_asks_it_is_skipped() {
    let report = Suite::new(cloud::plugin())
        .config(json!({"token": "any-token"}))
        .isolation(Isolation::InProcess)
        .report()
        .unwrap();
    let (passed, failed, _) = report.counts();
    assert!(passed >= 10 && failed == 0, "{report}");
    assert!(skipped(&report).contains(&"create.made"), "{report}");
    assert!(report.to_string().contains("--provider"), "{report}");
}

#[test]
fn set_ups_that_make_no_sense_say_so() {
    let unknown = Suite::new(cloud::plugin())
        .only(["nonsense"])
        .report()
        .unwrap_err()
        .to_string();
    assert!(
        unknown.contains("nonsense") && unknown.contains("terminate.confirmed"),
        "{unknown}"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    let no_plugin = Suite::new(file.path())
        .isolation(Isolation::InProcess)
        .report()
        .unwrap_err();
    assert!(
        no_plugin.to_string().contains("not an ELF file"),
        "{no_plugin}"
    );
    let report = cloud::suite("none")
        .only(["offers.order"])
        .without("offers.order", "ranked by the provider")
        .isolation(Isolation::InProcess)
        .report()
        .unwrap();
    assert!(report.to_string().contains("ranked by the provider"));
}

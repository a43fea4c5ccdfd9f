//! The configuration corpus: every input parses, plans or is refused as in the reference system.

use std::path::PathBuf;

use crate::runner::{Report, run_files, run_vectors};

fn contract(folder: &str) -> PathBuf {
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap())
        .join("../../tests/contract")
        .join(folder)
}

fn check(report: &Report, least: usize) {
    let failed: Vec<_> = report
        .failed
        .iter()
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {} failed:\n{}",
        failed.len(),
        failed.len() + report.passed,
        failed.join("\n")
    );
    assert!(report.passed >= least, "only {} were there", report.passed);
}

#[test]
fn every_edge_configuration_gives_the_right_answer() {
    let report = run_files(&contract("config-corpus")).unwrap();
    assert!(report.skipped.len() <= 2, "{:?}", report.skipped);
    check(&report, 440);
}

#[test]
fn every_vector_of_this_room_gives_the_right_answer() {
    check(
        &run_vectors(&contract("config-corpus/vectors")).unwrap(),
        930,
    );
}

/// Other people's files, which are not in this repository; they are run where the shared folder is.
#[test]
fn published_configurations_give_the_right_answer() {
    let shared = std::env::var("DSTACK_SHARED").unwrap_or_else(|_| "../shared".to_owned());
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../..");
    let folder = root.join(shared).join("spec/config-corpus");
    if !folder.is_dir() {
        println!("skipped: no corpus at {}", folder.display());
        return;
    }
    check(&run_files(&folder).unwrap(), 684);
}

//! Runs a folder of configurations with right answers, and its `vectors/`; `cargo xtask corpus DIR` starts it.
#![expect(
    clippy::print_stdout,
    reason = "a tool for developers; its output is the result"
)]

use std::path::PathBuf;
use std::process::ExitCode;

use dstack_test_support::corpus::{Report, run_files, run_vectors};

fn main() -> anyhow::Result<ExitCode> {
    let folder: PathBuf = std::env::args_os()
        .nth(1)
        .unwrap_or_else(|| ".".into())
        .into();
    let mut reports = vec![("files", run_files(&folder)?)];
    let vectors = folder.join("vectors");
    if vectors.is_dir() {
        reports.push(("rows", run_vectors(&vectors)?));
    }
    let failed = reports
        .iter()
        .map(|(what, report)| show(what, report))
        .sum::<usize>();
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints a report; the number of its failures.
fn show(what: &str, report: &Report) -> usize {
    for (name, why) in &report.failed {
        println!("FAIL {name}: {why}");
    }
    for (name, why) in &report.skipped {
        println!("skip {name}: {why}");
    }
    let (passed, failed) = (report.passed, report.failed.len());
    println!(
        "{what}: {passed} right, {failed} wrong, {} left out",
        report.skipped.len()
    );
    failed
}

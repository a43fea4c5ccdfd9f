//! Runs a folder of configurations with right answers, and its `vectors/`; `cargo xtask corpus DIR` starts it.
#![expect(
    clippy::print_stdout,
    reason = "a tool for developers; its output is the result"
)]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use dstack_test_support::corpus::run_folder;

fn main() -> anyhow::Result<ExitCode> {
    let folder: PathBuf = std::env::args_os()
        .nth(1)
        .unwrap_or_else(|| ".".into())
        .into();
    let report = run_folder(&folder).with_context(|| format!("cannot run {}", folder.display()))?;
    for (name, why) in &report.refused {
        println!("refused on purpose: {name}: {why}");
    }
    for (name, what) in &report.open {
        println!("open: {name}: {what}");
    }
    for (name, why) in &report.failed {
        println!("FAIL {name}: {why}");
    }
    println!("{} passed, {} failed", report.passed, report.failed.len());
    Ok(if report.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

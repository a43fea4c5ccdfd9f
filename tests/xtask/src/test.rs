//! The one test command: sets the machine up, builds once, runs everything.

use std::process::Command;

use anyhow::Result;

use crate::build::{Selection, build};
use crate::process::{cargo, run as run_command, succeeds, target};
use crate::setup;

/// Install what tests need, build everything, run every test
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only tests whose name contains one of these
    filters: Vec<String>,
}

/// The chore.
///
/// # Errors
/// If something cannot be installed or built, or a test fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::prepare()?;
    let built = build(Selection::Workspace, false)?;
    println!("==> tests");
    let mut tests = cargo();
    if succeeds("cargo-nextest", &["nextest", "--version"]) {
        tests.args([
            "nextest",
            "run",
            "--workspace",
            "--locked",
            "--no-fail-fast",
        ]);
        tests.args(&args.filters);
    } else {
        tests.args([
            "test",
            "--workspace",
            "--locked",
            "--no-fail-fast",
            "--",
            "--test-threads=2",
        ]);
        tests.args(&args.filters);
    }
    tests.env("DSTACK_TEST_BIN", &built.bin);
    run_command(&mut tests)?;
    if args.filters.is_empty() {
        println!("==> examples in the documentation");
        run_command(cargo().args(["test", "--workspace", "--doc", "--locked", "--quiet"]))?;
    }
    tidy();
    Ok(())
}

/// Containers that a killed test left would hold ports of the next run.
fn tidy() {
    let left = crate::process::output(Command::new("docker").args([
        "ps",
        "-aq",
        "--filter",
        "label=dstack.test",
    ]));
    for id in left.unwrap_or_default().lines() {
        if !succeeds("docker", &["rm", "-f", id]) {
            eprintln!(
                "xtask: container {id} of a test is left; {}",
                target().display()
            );
        }
    }
}

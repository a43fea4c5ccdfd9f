//! Runs the benchmarks.

use anyhow::Result;

use crate::build::{Selection, build};
use crate::process::{cargo, run as run_command};

/// Measure, and print ratios against the reference and against the targets
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these measures
    names: Vec<String>,
}

/// The chore.
///
/// # Errors
/// If a build or a measure fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    let built = build(Selection::Product, true)?;
    run_command(
        cargo()
            .args([
                "run",
                "--release",
                "--locked",
                "--package",
                "dstack-bench",
                "--",
            ])
            .args(&args.names)
            .env("DSTACK_TEST_BIN", &built.bin),
    )
}

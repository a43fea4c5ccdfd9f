//! Runs the vectors of a folder of configurations.

use std::path::PathBuf;

use anyhow::{Result, bail};

/// Run every vector of a folder of configurations with right answers
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder; its `vectors/` are included
    dir: PathBuf,
}

/// The chore.
///
/// # Errors
/// If the folder cannot be read or a vector gives another answer.
pub(crate) fn run(args: &Args) -> Result<()> {
    let status = crate::process::cargo()
        .args([
            "run",
            "--quiet",
            "--locked",
            "--package",
            "dstack-test-support",
            "--bin",
            "corpus",
            "--",
        ])
        .arg(std::path::absolute(&args.dir)?)
        .status()?;
    if !status.success() {
        bail!("the corpus has differences");
    }
    Ok(())
}

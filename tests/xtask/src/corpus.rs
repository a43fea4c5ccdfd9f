//! Runs the vectors of a folder of configurations.

use std::path::PathBuf;
use std::process::ExitCode;

/// Run every vector of a folder of configurations with right answers
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder; its `vectors/` are included
    dir: PathBuf,
}

/// The chore. Its last line is the result, so that nothing is said about a failure here.
pub(crate) fn run(args: &Args) -> ExitCode {
    let status = std::path::absolute(&args.dir).and_then(|dir| {
        crate::process::cargo()
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
            .arg(dir)
            .status()
    });
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

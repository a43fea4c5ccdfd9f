//! The `dstack-runner` binary.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use dstack_runner::{Args, Command};

fn main() -> ExitCode {
    let args = Args::parse();
    let Command::Start(start) = args.command;
    match dstack_runner::start(args.log_level, start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // With a closed stderr there is nobody to tell.
            drop(writeln!(std::io::stderr(), "dstack-runner: {error}"));
            ExitCode::FAILURE
        }
    }
}

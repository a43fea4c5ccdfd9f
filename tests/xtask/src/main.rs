//! `cargo xtask …`: every chore of the project as one program.
//!
//! Used by people, by `.ci/run` and by nothing that ships. It builds with the ordinary compiler only and
//! installs what a chore needs by itself, so a fresh machine needs nothing but Rust and a C compiler.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool for developers"
)]

mod bench;
mod build;
mod catalog_snapshot;
mod check;
mod corpus;
mod new_backend;
mod process;
mod quickstart;
mod setup;
mod test;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    about = "Chores of the project",
    max_term_width = 100
)]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Build what is needed, start a server, run the first task and show its log
    Quickstart(quickstart::Args),
    /// Install what tests need, build everything, run every test
    Test(test::Args),
    /// Formatting, lints, the map of crates, file lengths, licences, sources, doubled crates
    Check(check::Args),
    /// Build backends and agents and put them where the `dstack` binary finds them
    Plugins(build::Args),
    /// Build the agents for another processor, such as ARM, and put them beside the others
    Agents(build::AgentArgs),
    /// Measure, and print ratios against the reference and against the targets
    Bench(bench::Args),
    /// Make the crate of a new backend in `backends/`; it builds, loads and conforms as it is
    NewBackend(new_backend::Args),
    /// Make the catalog that is part of the program, of a folder with CSV files
    CatalogSnapshot(catalog_snapshot::Args),
    /// Run every vector of a folder of configurations with right answers
    Corpus(corpus::Args),
}

fn main() -> std::process::ExitCode {
    let done = match Args::parse().chore {
        Chore::Quickstart(args) => quickstart::run(&args),
        Chore::Test(args) => test::run(&args),
        Chore::Check(args) => check::run(&args),
        Chore::Plugins(args) => build::run(&args),
        Chore::Agents(args) => build::run_agents(&args),
        Chore::Bench(args) => bench::run(&args),
        Chore::NewBackend(args) => new_backend::run(&args),
        Chore::CatalogSnapshot(args) => catalog_snapshot::run(&args),
        Chore::Corpus(args) => return corpus::run(&args),
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

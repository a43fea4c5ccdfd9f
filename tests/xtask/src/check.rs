//! `cargo xtask check`: what a reviewer should not have to look for.

mod files;
mod map;
mod supply;

use anyhow::{Result, bail};
use cargo_metadata::{CargoOpt, MetadataCommand};

use crate::process::{cargo, root, run as run_command};

/// Formatting, lints, the map of crates, file lengths, licences, sources, doubled crates
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave out formatting and lints, which compile
    #[arg(long)]
    quick: bool,
}

/// The chore.
///
/// # Errors
/// Lists every finding.
pub(crate) fn run(args: &Args) -> Result<()> {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .features(CargoOpt::AllFeatures)
        .other_options(vec!["--locked".to_owned()])
        .exec()?;
    let mut findings = map::findings(&metadata);
    findings.extend(files::findings(&root())?);
    findings.extend(supply::findings(&metadata));
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} finding(s)", findings.len());
    }
    println!("map, files, licences, sources, doubles: ok");
    if args.quick {
        return Ok(());
    }
    run_command(cargo().args(["fmt", "--all", "--check"]))?;
    println!("formatting: ok");
    run_command(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))?;
    println!("lints: ok");
    Ok(())
}

//! Builds backends and agents and installs them beside the `dstack` binary, which looks there without any variable set.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::process::{cargo, output, root, run as run_command, target};

/// Build backends and agents and put them where the `dstack` binary finds them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Optimised host and backends, small agents
    #[arg(long)]
    release: bool,
}

/// What is selected in one call of cargo. Features are unified by selection, so whoever builds the
/// workspace and then a part of it compiles shared crates twice: each chore keeps to one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// The `dstack` binary and the backends: what runs.
    Product,
    /// Everything, tests too.
    Workspace,
}

/// Where the build has put things.
#[derive(Debug, Clone)]
pub(crate) struct Built {
    /// The folder of the `dstack` binary.
    pub(crate) bin: PathBuf,
}

impl Built {
    /// The `dstack` binary.
    pub(crate) fn dstack(&self) -> PathBuf {
        self.bin.join("dstack")
    }
}

/// The chore.
///
/// # Errors
/// If a build fails or a file cannot be put in place.
pub(crate) fn run(args: &Args) -> Result<()> {
    let built = build(Selection::Product, args.release)?;
    println!(
        "backends and agents are beside {}",
        built.dstack().display()
    );
    Ok(())
}

/// Builds the selection, the agents, and installs both.
///
/// # Errors
/// If a build fails or a file cannot be put in place.
pub(crate) fn build(selection: Selection, release: bool) -> Result<Built> {
    let profile = if release { "release" } else { "debug" };
    step("host and backends", || host(selection, release))?;
    let agents = step("agents (static)", || agents(release))?;
    let bin = target().join(profile);
    install(&bin, &agents)?;
    Ok(Built { bin })
}

fn step<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("==> building {what}");
    let started = Instant::now();
    let done = work()?;
    println!("    {what}: {:.1} s", started.elapsed().as_secs_f32());
    Ok(done)
}

fn host(selection: Selection, release: bool) -> Result<()> {
    let mut command = cargo();
    command.args(["build", "--locked"]);
    match selection {
        Selection::Workspace => {
            command.arg("--workspace");
        }
        Selection::Product => {
            command.args(["--package", "dstack"]);
            for backend in backends()? {
                command.args(["--package", &backend]);
            }
        }
    }
    if release {
        command.arg("--release");
    }
    run_command(&mut command)
}

/// Agents run on machines and in images that we know nothing about, so they bring their C library with them.
/// Flags of the compiler rebuild everything, hence the folder of their own.
fn agents(release: bool) -> Result<PathBuf> {
    let triple = triple()?;
    let folder = target().join("agents");
    let mut command = cargo();
    command
        .args([
            "build",
            "--locked",
            "--package",
            "dstack-shim",
            "--package",
            "dstack-runner",
            "--bins",
        ])
        .args(["--target", &triple, "--target-dir"])
        .arg(&folder)
        .env("RUSTFLAGS", "-C target-feature=+crt-static");
    if release {
        command.args(["--profile", "agent"]);
    }
    run_command(&mut command)?;
    Ok(folder
        .join(triple)
        .join(if release { "agent" } else { "debug" }))
}

fn triple() -> Result<String> {
    let text = output(Command::new("rustc").arg("-vV"))?;
    let triple = text
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc -vV names no host")?;
    Ok(triple.to_owned())
}

/// Names of the packages below `backends/`.
fn backends() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join("backends"))? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").is_file() {
            names.push(format!(
                "dstack-backend-{}",
                entry.file_name().to_string_lossy()
            ));
        }
    }
    names.sort();
    Ok(names)
}

fn install(bin: &Path, agents: &Path) -> Result<()> {
    let folder = bin.join("backends");
    fs::create_dir_all(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
    let wanted: Vec<String> = backends()?
        .iter()
        .map(|name| format!("lib{}.so", name.replace('-', "_")))
        .collect();
    for entry in fs::read_dir(&folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !wanted.contains(&name) {
            fs::remove_file(entry.path())?; // a backend that was removed or renamed
        }
    }
    for name in &wanted {
        put(&bin.join(name), &folder.join(name), 0o644)?;
    }
    let place = bin.join("agents").join(std::env::consts::ARCH);
    fs::create_dir_all(&place)?;
    for name in ["dstack-shim", "dstack-runner"] {
        put(&agents.join(name), &place.join(name), 0o755)?;
    }
    run_command(
        Command::new(bin.join("dstack"))
            .args(["backend", "lock"])
            .arg(&folder),
    )
}

/// Copies beside the target and renames: overwriting a mapped file in place kills the process that mapped it.
fn put(from: &Path, to: &Path, mode: u32) -> Result<()> {
    if !from.is_file() {
        bail!("the build left no {}", from.display());
    }
    let temporary = to.with_extension(format!("new.{}", std::process::id()));
    fs::copy(from, &temporary)
        .with_context(|| format!("cannot copy to {}", temporary.display()))?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(mode))?;
    fs::rename(&temporary, to).with_context(|| format!("cannot put {} in place", to.display()))
}

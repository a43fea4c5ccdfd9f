//! Builds backends and agents and installs them beside the `dstack` binary, which looks there without any variable set.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::process::{cargo, output, root, run as run_command, succeeds, target};

/// The programs that run on machines.
const AGENTS: [&str; 2] = ["dstack-shim", "dstack-runner"];

/// Build backends and agents and put them where the `dstack` binary finds them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Optimised host and backends, small agents
    #[arg(long)]
    release: bool,
}

/// Build the agents for another processor and put them beside the others
#[derive(Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// The processor of the machines
    #[arg(long, value_parser = ["x86_64", "aarch64"])]
    arch: String,
    /// Small and optimised
    #[arg(long)]
    release: bool,
    /// The folder of the `dstack` binary they are for; default: the one that the build has
    #[arg(long)]
    beside: Option<PathBuf>,
}

/// The chore.
///
/// # Errors
/// Names what is missing for that processor; else if the build fails or is not what was asked for.
pub(crate) fn run_agents(args: &AgentArgs) -> Result<()> {
    let triple = format!("{}-unknown-linux-gnu", args.arch);
    if args.arch != std::env::consts::ARCH {
        let gcc = format!("{}-linux-gnu-gcc", args.arch);
        let libraries =
            output(Command::new("rustc").args(["--print", "target-libdir", "--target", &triple]))?;
        let has_linker = succeeds(&gcc, &["--version"]);
        if let Some(why) = lacks(&args.arch, has_linker, Path::new(&libraries)) {
            bail!(why);
        }
    }
    let built = step(&format!("agents for {}", args.arch), || {
        agents_for(&triple, args.release)
    })?;
    for name in AGENTS {
        check_elf(&built.join(name), &args.arch)?;
    }
    let profile = if args.release { "release" } else { "debug" };
    let bin = args
        .beside
        .clone()
        .unwrap_or_else(|| target().join(profile));
    install_agents(&bin, &built, &args.arch)
}

/// What this machine lacks to build for another processor, with the remedy.
fn lacks(arch: &str, has_linker: bool, libraries: &Path) -> Option<String> {
    if !has_linker {
        let package = format!("gcc-{}-linux-gnu", arch.replace('_', "-"));
        let word = if arch == "aarch64" { "arm64" } else { "amd64" };
        return Some(format!(
            "the agents for {arch} need a linker for it: apt-get install {package} libc6-dev-{word}-cross"
        ));
    }
    if !libraries.is_dir() {
        let triple = format!("{arch}-unknown-linux-gnu");
        return Some(format!(
            "the Rust library for {triple} is not installed: rustup target add {triple}"
        ));
    }
    None
}

/// Refuses a file for another processor, or one that needs a C library of the machine.
fn check_elf(file: &Path, arch: &str) -> Result<()> {
    let content =
        fs::read(file).with_context(|| format!("the build left no {}", file.display()))?;
    let machine = match content.get(18..20) {
        Some([low, high]) => u16::from_le_bytes([*low, *high]),
        _ => 0,
    };
    let wanted = if arch == "aarch64" { 183 } else { 62 };
    if !content.starts_with(b"\x7fELF") || machine != wanted {
        bail!(
            "{} is no program for {arch} (machine {machine})",
            file.display()
        );
    }
    let loader = b"/lib64/ld-linux";
    let other = b"/lib/ld-linux";
    let head = content.get(..4096).unwrap_or(&content);
    let interpreted = [&loader[..], &other[..]]
        .iter()
        .any(|name| head.windows(name.len()).any(|at| at == *name));
    if interpreted {
        bail!(
            "{} is not static: old machines could not run it",
            file.display()
        );
    }
    Ok(())
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
    agents_for(&triple()?, release)
}

fn agents_for(triple: &str, release: bool) -> Result<PathBuf> {
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
        .args(["--target", triple, "--target-dir"])
        .arg(&folder)
        .env("RUSTFLAGS", "-C target-feature=+crt-static");
    if triple.split('-').next() != Some(std::env::consts::ARCH) {
        let variable = format!(
            "CARGO_TARGET_{}_LINKER",
            triple.replace('-', "_").to_uppercase()
        );
        let arch = triple.split('-').next().unwrap_or_default();
        command.env(variable, format!("{arch}-linux-gnu-gcc"));
    }
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
    for name in AGENTS {
        check_elf(&agents.join(name), std::env::consts::ARCH)?;
    }
    install_agents(bin, agents, std::env::consts::ARCH)?;
    run_command(
        Command::new(bin.join("dstack"))
            .args(["backend", "lock"])
            .arg(&folder),
    )
}

fn install_agents(bin: &Path, agents: &Path, arch: &str) -> Result<()> {
    let place = bin.join("agents").join(arch);
    fs::create_dir_all(&place)?;
    for name in AGENTS {
        put(&agents.join(name), &place.join(name), 0o755)?;
    }
    println!("the agents are in {}", place.display());
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_for_another_processor_comes_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let (there, missing) = (folder.path(), folder.path().join("none"));
        let no_linker = lacks("aarch64", false, there).unwrap();
        assert!(
            no_linker.ends_with("apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
            "{no_linker}"
        );
        let other = lacks("x86_64", false, there).unwrap();
        assert!(
            other.ends_with("apt-get install gcc-x86-64-linux-gnu libc6-dev-amd64-cross"),
            "{other}"
        );
        let no_library = lacks("aarch64", true, &missing).unwrap();
        assert!(
            no_library.ends_with("rustup target add aarch64-unknown-linux-gnu"),
            "{no_library}"
        );
        assert_eq!(lacks("aarch64", true, there), None);
    }

    #[test]
    fn only_static_programs_for_the_processor_are_installed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent");
        let program = |machine: u8, more: &[u8]| {
            let mut content = b"\x7fELF".to_vec();
            content.resize(18, 0);
            content.extend([machine, 0]);
            content.resize(200, 0);
            content.extend(more);
            fs::write(&file, content).unwrap();
        };
        program(183, b"");
        check_elf(&file, "aarch64").unwrap();
        let other = check_elf(&file, "x86_64").unwrap_err().to_string();
        assert!(other.contains("no program for x86_64"), "{other}");
        program(62, b"/lib64/ld-linux-x86-64.so.2");
        let dynamic = check_elf(&file, "x86_64").unwrap_err().to_string();
        assert!(dynamic.contains("not static"), "{dynamic}");
        fs::write(&file, "#!/bin/sh\n").unwrap();
        assert!(check_elf(&file, "x86_64").is_err());
    }
}

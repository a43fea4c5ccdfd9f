//! Running other programs, and where things are.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the work tree.
pub(crate) fn root() -> PathBuf {
    let here =
        variable("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").to_owned());
    Path::new(&here)
        .ancestors()
        .nth(2)
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The folder that cargo builds into.
pub(crate) fn target() -> PathBuf {
    variable("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// A variable of the environment; unset, empty and not UTF-8 are all `None`.
#[expect(
    clippy::disallowed_methods,
    reason = "xtask has no settings of its own"
)]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Cargo, as the one that runs us, in the root of the work tree.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(variable("CARGO").unwrap_or_else(|| "cargo".to_owned()));
    // What cargo sets for the package of xtask would make build scripts of others rebuild.
    for name in [
        "CARGO_MANIFEST_DIR",
        "CARGO_PKG_NAME",
        "CARGO_PKG_VERSION",
        "CARGO_MANIFEST_PATH",
    ] {
        command.env_remove(name);
    }
    command.current_dir(root());
    command
}

/// Runs a command to its end.
///
/// # Errors
/// Names the command if it cannot start or ends with another code than 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", line(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", line(command));
    }
    Ok(())
}

/// Whether a command can be started and ends with 0; its output is dropped.
pub(crate) fn succeeds(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// What a command prints, trimmed.
///
/// # Errors
/// Names the command if it cannot start or fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let out = command
        .output()
        .with_context(|| format!("cannot start {}", line(command)))?;
    if !out.status.success() {
        bail!(
            "{} ended with {}: {}",
            line(command),
            out.status,
            String::from_utf8_lossy(&out.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// A command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let args = command.get_args().map(OsStr::to_string_lossy);
    std::iter::once(command.get_program().to_string_lossy())
        .chain(args)
        .collect::<Vec<_>>()
        .join(" ")
}

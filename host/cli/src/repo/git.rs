//! Git itself, as a child that asks nothing.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::error::CliError;

/// A `git` that shows no question and speaks English.
pub(super) fn git(home: &Path) -> Command {
    let mut git = Command::new("git");
    git.env("HOME", home)
        .env("LC_ALL", "C")
        .env("GIT_TERMINAL_PROMPT", "0")
        // Says nothing where a window would ask.
        .env("GIT_ASKPASS", "true")
        .stdin(Stdio::null());
    git
}

/// Settings of one call, by way of the environment: command lines are shown to everybody on the machine.
pub(super) fn configured<'a>(git: &'a mut Command, settings: &[(&str, &str)]) -> &'a mut Command {
    git.env("GIT_CONFIG_COUNT", settings.len().to_string());
    for (at, (key, value)) in settings.iter().enumerate() {
        git.env(format!("GIT_CONFIG_KEY_{at}"), key);
        git.env(format!("GIT_CONFIG_VALUE_{at}"), value);
    }
    git
}

/// Runs it to its end.
pub(super) fn run(git: &mut Command) -> Result<Output, CliError> {
    git.output().map_err(|error| {
        CliError::message(format!(
            "cannot start git: {error}; install it (Debian: git), or use `files` to bring code along"
        ))
    })
}

/// What it printed, without the last line break; `None` if it failed.
pub(super) fn asked(git: &mut Command) -> Result<Option<String>, CliError> {
    let output = run(git)?;
    let text = String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned();
    Ok(output.status.success().then_some(text))
}

/// The last words of a failure.
pub(super) fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("Warning: Permanently added"))
        .collect();
    let from = lines.len().saturating_sub(3);
    lines.get(from..).unwrap_or_default().join("; ")
}

//! From arguments to an exit code.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::FromArgMatches;
use jiff::Timestamp;

use crate::ServerArgs;
use crate::args::{Cli, command};
use crate::cx::Cx;
use crate::error::CliError;
use crate::settings::{COMPATIBLE_VERSION, ProcessVars, Settings, VERSION, Vars};
use crate::ui::{Terminal, Tone, Ui};

/// What only a build with the server in it can do; the binary hands it in.
pub trait Local {
    /// Runs the server until it is stopped.
    ///
    /// # Errors
    /// Why it could not start or go on, for people.
    fn server(&self, args: &ServerArgs) -> Result<(), String>;
    /// What a plugin file says of itself, as an object.
    ///
    /// # Errors
    /// Why it is not a plugin, for people.
    fn inspect(&self, file: &Path) -> Result<serde_json::Value, String>;
    /// Writes the lock file of a folder; the names that are in it.
    ///
    /// # Errors
    /// Why it cannot be written, for people.
    fn lock(&self, folder: &Path) -> Result<Vec<String>, String>;
    /// Compares a folder with its lock file: a list with `name`, `version`, `hash`, `path` and `problem` of each plugin.
    ///
    /// # Errors
    /// Why it cannot be read, for people.
    fn verify(&self, folder: &Path) -> Result<serde_json::Value, String>;
    /// Loads a plugin file in a process of its own and asks what it takes: `manifest` and `schema`.
    ///
    /// # Errors
    /// Why it does not answer, for people.
    fn describe(&self, file: &Path) -> Result<serde_json::Value, String>;
    /// The OpenAPI document of the server's API.
    ///
    /// # Errors
    /// If there is no server in this build.
    fn api_document(&self) -> Result<serde_json::Value, String>;
}

/// A build without a server.
#[derive(Debug, Clone, Copy)]
pub struct ClientOnly;

impl ClientOnly {
    fn refuse<T>() -> Result<T, String> {
        Err("this build of dstack is a client only; use one with the server in it".to_owned())
    }
}

impl Local for ClientOnly {
    fn server(&self, _args: &ServerArgs) -> Result<(), String> {
        Self::refuse()
    }
    fn inspect(&self, _file: &Path) -> Result<serde_json::Value, String> {
        Self::refuse()
    }
    fn lock(&self, _folder: &Path) -> Result<Vec<String>, String> {
        Self::refuse()
    }
    fn verify(&self, _folder: &Path) -> Result<serde_json::Value, String> {
        Self::refuse()
    }
    fn describe(&self, _file: &Path) -> Result<serde_json::Value, String> {
        Self::refuse()
    }
    fn api_document(&self) -> Result<serde_json::Value, String> {
        Self::refuse()
    }
}

/// What `--version` prints: the bare own version first, for scripts.
#[must_use]
pub fn version() -> String {
    format!("{VERSION} (compatible with {COMPATIBLE_VERSION})")
}

/// What a command sees of the world; a test gives its own.
pub struct Surroundings<'a> {
    /// The environment.
    pub vars: &'a dyn Vars,
    /// The folder the command is started in.
    pub folder: PathBuf,
    /// Input and output.
    pub terminal: Terminal,
    /// What needs the server in the same binary.
    pub local: &'a dyn Local,
    /// What time it is, for `5 mins ago`.
    pub clock: fn() -> Timestamp,
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// Runs one command of this process; 0 if it did what it was asked.
///
/// Usage errors end with 2, as usual for command lines; every other error with 1.
pub fn main(args: impl IntoIterator<Item = OsString>, local: &dyn Local) -> u8 {
    run_in(
        args,
        Surroundings {
            vars: &ProcessVars,
            folder: std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
            terminal: Terminal::standard(),
            local,
            clock: Timestamp::now,
        },
    )
}

/// Runs one command in the given surroundings.
pub fn run_in(args: impl IntoIterator<Item = OsString>, around: Surroundings<'_>) -> u8 {
    let settings = Settings::from_env(around.vars);
    let ui = Ui::new(around.terminal, settings.is_plain);
    let Surroundings {
        vars,
        folder,
        local,
        clock,
        ..
    } = around;
    let mut cx = Cx {
        settings,
        ui,
        local,
        vars,
        folder,
        clock,
    };
    let parsed = command()
        .try_get_matches_from(args)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe is nobody's fault.
            drop(cx.ui.usage(&error));
            return if error.use_stderr() { 2 } else { 0 };
        }
    };
    match cli.command.run(&mut cx) {
        Ok(()) => 0,
        Err(CliError::Quiet) => 1,
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => 1,
        Err(error) => {
            let text = cx.ui.paint_note(Tone::Bad, &error.to_string());
            drop(cx.ui.note(text));
            if matches!(error, CliError::Usage(_)) {
                2
            } else {
                1
            }
        }
    }
}

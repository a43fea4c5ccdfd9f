//! From arguments to an exit code.

use std::ffi::OsString;
use std::path::Path;

use clap::FromArgMatches;

use crate::args::{Cli, command};
use crate::ServerArgs;
use crate::cx::Cx;
use crate::error::CliError;
use crate::settings::{COMPATIBLE_VERSION, ProcessVars, Settings, VERSION};
use crate::ui::Tone;

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
}

/// What `--version` prints: the bare own version first, for scripts.
#[must_use]
pub fn version() -> String {
    format!("{VERSION} (compatible with {COMPATIBLE_VERSION})")
}

/// Runs one command; 0 if it did what it was asked.
///
/// Usage errors end with 2, as usual for command lines; every other error with 1.
pub fn main(args: impl IntoIterator<Item = OsString>, local: &dyn Local) -> u8 {
    let settings = Settings::from_env(&ProcessVars);
    let mut cx = Cx::new(settings, local);
    let matches = match command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => {
            // Help goes to standard output, complaints to standard error; a closed pipe is nobody's fault.
            drop(error.print());
            return if error.use_stderr() { 2 } else { 0 };
        }
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => {
            drop(error.print());
            return 2;
        }
    };
    match cli.command.run(&mut cx) {
        Ok(()) => 0,
        Err(CliError::Quiet) => 1,
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => 1,
        Err(error) => {
            let text = cx.ui.paint(Tone::Bad, &error.to_string());
            drop(cx.ui.note(text));
            1
        }
    }
}

//! What a person reads when a command fails.

use std::path::PathBuf;

use crate::local_config::ConfigError;

/// Why a command did not do what it was asked; the text says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The server is not there.
    #[error(
        "cannot reach the server at {url}: {reason}\nIs it running? Start one with `dstack server`, or check the address with `dstack project list`."
    )]
    Unreachable {
        /// The address that was tried.
        url: String,
        /// What the system said.
        reason: String,
    },
    /// 401 and 403.
    #[error("Access to {url} is denied. Please check your server token{detail}")]
    Denied {
        /// The address that was asked.
        url: String,
        /// What the server said, with a leading `: `, or nothing.
        detail: String,
    },
    /// The server has no such project, or hides it from this user.
    #[error(
        "{server} has no project {project} that your token may see; `dstack project list` shows what is configured, `dstack project add` corrects it"
    )]
    NoProject {
        /// The project.
        project: String,
        /// The server's address.
        server: String,
    },
    /// 400: the request makes no sense for the server's state.
    #[error("{message}")]
    Refused {
        /// The server's words, a line for each finding.
        message: String,
        /// The machine-readable reason, such as `resource_not_exists`.
        code: Option<String>,
    },
    /// Any other status.
    #[error("Status code {status} when requesting {url}: {body}")]
    Status {
        /// The status.
        status: u16,
        /// The address that was asked.
        url: String,
        /// The start of the answer.
        body: String,
    },
    /// The answer cannot be read.
    #[error(
        "the server at {url} answered something that this client cannot read: {reason}\nIs it a dstack server of a compatible version?"
    )]
    Unreadable {
        /// The address that was asked.
        url: String,
        /// Where reading stopped.
        reason: String,
    },
    /// Our own keys cannot be sent to another server.
    #[error(
        "{fields}: only this implementation's server knows these fields, and {url} is another one; remove them"
    )]
    ForeignServer {
        /// The fields, joined by commas.
        fields: String,
        /// The server.
        url: String,
    },
    /// The client's configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file that was named cannot be read or written.
    #[error("cannot {verb} {path}: {source}")]
    File {
        /// `read` or `write`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Anything that needs only words.
    #[error("{0}")]
    Message(String),
    /// The options do not fit together, or not to the file.
    #[error("error: {0}")]
    Usage(String),
    /// The output was closed, or the terminal failed.
    #[error("cannot write to the terminal: {0}")]
    Output(std::io::Error),
    /// The command did its work, and the answer is no: nothing more is printed.
    #[error("")]
    Quiet,
}

impl CliError {
    /// A message made of words only.
    pub(crate) fn message(text: impl Into<String>) -> Self {
        Self::Message(text.into())
    }

    /// Whether asking again may help: the server, or what stands before it, is away for the moment.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Status {
                    status: 502..=504,
                    ..
                }
        )
    }

    /// Whether the server said that the named thing does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: Some(code), .. } if code == "resource_not_exists")
    }
}

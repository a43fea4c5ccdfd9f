//! Logs of jobs. In files: one per submission and producer, one JSON object a line, only ever appended to.
//!
//! ```text
//! <root>/projects/<project>/logs/<run>/<submission>/job.log
//!                                                   runner.log
//! ```
//! or, where several servers share a database and no folder, in the database. A page's token in a file is a byte offset, so that the last page of a long log costs as much as the first one.

mod database;
mod file;
mod line;
mod news;

use std::path::PathBuf;
use std::time::Duration;

use dstack_api::logs::JobSubmissionLogs;
use jiff::Timestamp;
use uuid::Uuid;

pub use database::DatabaseLogs;
pub use file::FileLogs;

/// Where logs are kept.
#[derive(Debug, Clone)]
pub enum Logs {
    /// In files of this machine, or of a folder that several machines share.
    Files(FileLogs),
    /// In the database that several servers share.
    Database(DatabaseLogs),
}

impl Logs {
    /// Adds entries at the end, in their order. When this answers, a reader sees them.
    ///
    /// # Errors
    /// The file system or the database; then none of the entries may be taken as stored.
    pub async fn append<I>(&self, key: &LogKey, entries: I) -> Result<(), LogError>
    where
        I: IntoIterator<Item = LogEntry>,
        I::IntoIter: Send + 'static,
    {
        match self {
            Self::Files(logs) => logs.append(key, entries).await,
            Self::Database(logs) => logs.append(key, entries.into_iter().collect()).await,
        }
    }

    /// Reads a page; if it is empty, waits up to `patience` for something to be appended and reads again.
    ///
    /// # Errors
    /// As [`Logs::poll`].
    pub async fn poll_patiently(
        &self,
        key: &LogKey,
        query: LogQuery,
        patience: Duration,
    ) -> Result<LogPage, LogError> {
        match self {
            Self::Files(logs) => logs.poll_patiently(key, query, patience).await,
            Self::Database(logs) => logs.poll_patiently(key, query, patience).await,
        }
    }

    /// Reads a page. A log that is not there is empty.
    ///
    /// # Errors
    /// A token that is none of ours, the file system or the database.
    pub async fn poll(&self, key: &LogKey, query: LogQuery) -> Result<LogPage, LogError> {
        match self {
            Self::Files(logs) => logs.poll(key, query).await,
            Self::Database(logs) => logs.poll(key, query).await,
        }
    }
}

/// Whose output it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Producer {
    /// The job's commands.
    Job,
    /// The runner itself.
    Runner,
}

/// The log of one submission. The names come from the database, never from a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogKey {
    /// Project.
    pub project: String,
    /// Run.
    pub run: String,
    /// Submission of the job.
    pub submission: Uuid,
    /// Whose output.
    pub producer: Producer,
}

/// A piece of output: usually a line, with its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// When it was written.
    pub at: Timestamp,
    /// The bytes as they were written.
    pub message: Vec<u8>,
}

/// Which part of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogQuery {
    /// Only what is later than this.
    pub after: Option<Timestamp>,
    /// Only what is earlier than this.
    pub before: Option<Timestamp>,
    /// Newest first.
    pub descending: bool,
    /// Token of the previous page.
    pub token: Option<String>,
    /// Entries at most.
    pub limit: usize,
}

impl LogQuery {
    /// Refuses a token that is none of ours, also where there is nothing to read.
    ///
    /// # Errors
    /// [`LogError::BadToken`].
    pub(crate) fn check_token(&self) -> Result<Option<u64>, LogError> {
        let Some(token) = &self.token else {
            return Ok(None);
        };
        let digits = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
        token
            .parse()
            .ok()
            .filter(|_| digits)
            .map(Some)
            .ok_or_else(|| LogError::BadToken(token.clone()))
    }
}

/// Why logs cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The token is none of ours.
    #[error("Invalid next_token: {0}. Must be a non-negative integer.")]
    BadToken(String),
    /// The database refused.
    #[error("cannot use the logs of the database")]
    Database(#[from] dstack_store::DbError),
    /// The file system refused.
    #[error("cannot use the log file {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// A page of a log, as the API answers it.
pub type LogPage = JobSubmissionLogs;

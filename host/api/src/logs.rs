//! Logs of jobs.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::words::wire_enum;

wire_enum! {
    /// Where a piece of log came from.
    pub enum LogEventSource {
        /// Standard output, and everything that was stored.
        Stdout = "stdout",
        /// Standard error.
        Stderr = "stderr",
    }
}

/// A piece of log: bytes as they were written, usually with their line end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogEvent {
    /// When it was written.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub timestamp: Timestamp,
    /// Where it came from.
    pub log_source: LogEventSource,
    /// The bytes, in base64.
    pub message: String,
}

impl LogEvent {
    /// Packs bytes.
    #[must_use]
    pub fn new(timestamp: Timestamp, bytes: &[u8]) -> Self {
        use base64::Engine as _;
        let message = base64::engine::general_purpose::STANDARD.encode(bytes);
        Self {
            timestamp,
            log_source: LogEventSource::Stdout,
            message,
        }
    }

    /// Unpacks the bytes.
    ///
    /// # Errors
    /// The message is no base64.
    pub fn bytes(&self) -> Result<Vec<u8>, base64::DecodeError> {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.decode(&self.message)
    }
}

/// Answer of `logs/poll`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobSubmissionLogs {
    /// This page.
    pub logs: Vec<LogEvent>,
    /// Where a person can see the logs in an external storage.
    #[serde(default)]
    pub external_url: Option<String>,
    /// Where the next page begins; none at the end.
    #[serde(default)]
    pub next_token: Option<String>,
}

/// `POST /api/project/{project}/logs/poll`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PollLogsRequest {
    /// Run.
    pub run_name: String,
    /// Job's try.
    #[schemars(with = "crate::schema::Id")]
    pub job_submission_id: Uuid,
    /// Only what is later than this.
    #[serde(default, with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub start_time: Option<Timestamp>,
    /// Only what is earlier than this.
    #[serde(default, with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub end_time: Option<Timestamp>,
    /// Newest first.
    #[serde(default)]
    pub descending: bool,
    /// Token of the previous page.
    #[serde(default)]
    pub next_token: Option<String>,
    /// Page size, at most 1000.
    #[serde(default = "hundred")]
    pub limit: u32,
    /// The runner's own log instead of the job's.
    #[serde(default)]
    pub diagnose: bool,
}

const fn hundred() -> u32 {
    100
}

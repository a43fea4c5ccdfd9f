//! Settings of what is kept for a time: metrics and logs of jobs, health reports of machines.

use std::time::Duration;

use super::{Reader, SettingsError, Vars};

/// How long what is measured is kept, and how often it is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// `DSTACK_SERVER_METRICS_RUNNING_TTL_SECONDS` (1 h): metrics of running jobs.
    pub metrics_running: Duration,
    /// `DSTACK_SERVER_METRICS_FINISHED_TTL_SECONDS` (7 days): metrics of other jobs.
    pub metrics_finished: Duration,
    /// `DSTACK_SERVER_INSTANCE_HEALTH_TTL_SECONDS` (7 days): health reports.
    pub health: Duration,
    /// `DSTACK_SERVER_LOGS_TTL_SECONDS` (0, for ever): logs of jobs that are in this server's folder or database.
    pub logs: Option<Duration>,
}

pub(super) fn kept<V: Vars>(read: &Reader<'_, V>) -> Result<Kept, SettingsError> {
    const WEEK: u64 = 7 * 24 * 3600;
    Ok(Kept {
        metrics_running: read.seconds("DSTACK_SERVER_METRICS_RUNNING_TTL_SECONDS", 3600)?,
        metrics_finished: read.seconds("DSTACK_SERVER_METRICS_FINISHED_TTL_SECONDS", WEEK)?,
        health: read.seconds("DSTACK_SERVER_INSTANCE_HEALTH_TTL_SECONDS", WEEK)?,
        logs: read.ttl("DSTACK_SERVER_LOGS_TTL_SECONDS", 0)?,
    })
}

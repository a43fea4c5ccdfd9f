//! Whether an ended job is submitted again, and when.

use std::time::Duration;

use dstack_api::jobs::{JobStatus, JobTerminationReason, RetryEvent};
use jiff::Timestamp;

use crate::model::{JobRow, RunRow};

/// Delays before a pending run is submitted again, by attempt, in seconds; the last one repeats.
const PENDING_DELAYS: [u64; 6] = [15, 30, 60, 120, 300, 600];

/// The verdict over an ended (or ending) submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It ended well, or wants nothing.
    Fine,
    /// It is to be submitted again.
    Retry,
    /// It failed, and its policy does not cover that.
    Fail,
    /// It failed, and only the time for retries is over, or their number is reached.
    TooLate,
}

/// The delay before attempt number `attempt` of a pending run.
pub fn pending_delay(attempt: u32) -> Duration {
    let at = usize::try_from(attempt)
        .unwrap_or(usize::MAX)
        .min(PENDING_DELAYS.len() - 1);
    Duration::from_secs(PENDING_DELAYS[at])
}

/// Judges the newest submission of a job. `all` are the submissions of that job, in any order.
///
/// | event | clock starts |
/// |---|---|
/// | no capacity, never had a machine | submission of the run, or its trigger |
/// | no capacity after it once had one, interruption, error | last time of the latest submission with a machine |
///
/// With `max_attempts`, a job is tried again at most that often since its first submission (or since the trigger).
pub fn judge(run: &RunRow, job: &JobRow, all: &[&JobRow], now: Timestamp) -> Verdict {
    let Some(reason) = job.termination_reason else {
        return if job.status == JobStatus::Done {
            Verdict::Fine
        } else {
            Verdict::Fail
        };
    };
    if matches!(
        reason,
        JobTerminationReason::DoneByRunner | JobTerminationReason::ScaledDown
    ) {
        return Verdict::Fine;
    }
    let (Some(policy), Some(event)) = (&job.spec.retry, reason.retry_event()) else {
        return Verdict::Fail;
    };
    if !policy.on_events.contains(&event) {
        return Verdict::Fail;
    }
    let ran = all
        .iter()
        .filter(|other| other.provisioning_data.is_some())
        .max_by_key(|other| other.submission_num);
    let start = match (event, ran) {
        (RetryEvent::NoCapacity, None) => run.next_triggered_at.unwrap_or(run.submitted_at),
        (_, Some(ran)) => ran.finished_at.unwrap_or(ran.last_processed_at),
        (_, None) => job.submitted_at,
    };
    let tries = |first: &JobRow| job.submission_num.saturating_sub(first.submission_num);
    let first = all.iter().min_by_key(|other| other.submission_num);
    let no_more = policy
        .max_attempts
        .is_some_and(|most| first.is_some_and(|first| tries(first) >= most));
    if no_more || now.duration_since(start).as_secs() > policy.duration {
        Verdict::TooLate
    } else {
        Verdict::Retry
    }
}

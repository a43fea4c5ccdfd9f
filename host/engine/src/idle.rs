//! How long idle machines are kept.

use jiff::Timestamp;

use crate::model::InstanceRow;

/// Default for machines that a run made, in seconds.
pub const RUN_DEFAULT: i64 = 300;
/// Default for machines of a fleet, in seconds (3 days).
pub const FLEET_DEFAULT: i64 = 259_200;

/// The limit in seconds that an `idle_duration` of a profile means; `None` keeps the machine for good.
pub fn limit(idle_duration: Option<i64>, default: i64) -> Option<i64> {
    let seconds = idle_duration.unwrap_or(default);
    (seconds >= 0).then_some(seconds)
}

/// Since when an instance without jobs has been idle.
pub fn since(instance: &InstanceRow) -> Timestamp {
    instance.last_job_at.unwrap_or(instance.created_at)
}

/// Seconds until an idle instance is to be destroyed; 0 or less means now, `None` never.
pub fn seconds_left(instance: &InstanceRow, now: Timestamp) -> Option<i64> {
    let limit = instance.idle_limit?;
    Some(limit - now.duration_since(since(instance)).as_secs())
}

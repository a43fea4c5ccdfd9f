//! From what a runner reports to the log files of a job.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dstack_agent_protocol::runner::{LogEvent, PullResponse};
use dstack_engine::model::JobRow;
use jiff::Timestamp;
use uuid::Uuid;

use super::Context;
use crate::logs::{LogEntry, LogError, LogKey, Producer};

/// The last stored time of each log in use, in microseconds.
///
/// A runner reports again what came after the position in the database. If the server died between writing the
/// file and writing that position, the file is ahead; what it has is left out then.
#[derive(Default)]
pub(crate) struct LastTimes(Mutex<HashMap<(Uuid, Producer), i64>>);

impl LastTimes {
    fn all(&self) -> MutexGuard<'_, HashMap<(Uuid, Producer), i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stores what came; false if it could not be stored, and then nothing advances and the same comes again.
pub(super) async fn store(
    cx: &Context,
    project: &str,
    run: &str,
    job: &JobRow,
    answer: PullResponse,
) -> bool {
    for (producer, events) in [
        (Producer::Job, answer.job_logs),
        (Producer::Runner, answer.runner_logs),
    ] {
        if events.is_empty() {
            continue;
        }
        let key = LogKey {
            project: project.to_owned(),
            run: run.to_owned(),
            submission: job.id.0,
            producer,
        };
        if let Err(error) = append(cx, &key, events).await {
            tracing::error!(job.id = %job.id, %error, "cannot store logs; they will be read again");
            return false;
        }
    }
    true
}

async fn append(cx: &Context, key: &LogKey, events: Vec<LogEvent>) -> Result<(), LogError> {
    let id = (key.submission, key.producer);
    let known = cx.log_times.all().get(&id).copied();
    let last = match known {
        // Another server may have written since; providers are not asked each time, and forget nothing.
        Some(last) if !cx.store.is_shared() || !cx.logs.is_here() => last,
        _ => cx.logs.stored_until(key).await?,
    };
    let mut events = timed(events);
    events.retain(|(at, _)| at.as_microsecond() > last);
    let Some(newest) = events.last().map(|(at, _)| at.as_microsecond()) else {
        return Ok(());
    };
    // Decoded where it is written: a page of a log is large, and one copy of it is enough.
    let entries = events.into_iter().map(|(at, event)| LogEntry {
        at,
        message: decoded(event.message),
    });
    let stored = cx.logs.append(key, entries).await;
    let mut times = cx.log_times.all();
    match &stored {
        Ok(()) => times.insert(id, newest),
        // A part may be there.
        Err(_) => times.remove(&id),
    };
    stored
}

fn decoded(message: String) -> Vec<u8> {
    STANDARD
        .decode(&message)
        .unwrap_or_else(|_| message.into_bytes())
}

/// Forgets a finished job.
pub(super) fn forget(cx: &Context, job: Uuid) {
    let mut all = cx.log_times.all();
    all.remove(&(job, Producer::Job));
    all.remove(&(job, Producer::Runner));
}

/// Gives every event a time of its own: the runner's millisecond, and its place within that in microseconds. All
/// events of a millisecond come in one answer, so the same event has the same time whenever it is read.
fn timed(events: Vec<LogEvent>) -> Vec<(Timestamp, LogEvent)> {
    let (mut millisecond, mut place) = (i64::MIN, 0);
    let each = events.into_iter().map(move |event| {
        place = if event.timestamp == millisecond {
            (place + 1).min(999)
        } else {
            0
        };
        millisecond = event.timestamp;
        let at =
            Timestamp::from_microsecond(event.timestamp.saturating_mul(1000).saturating_add(place));
        (at.unwrap_or(Timestamp::UNIX_EPOCH), event)
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_millisecond_have_times_of_their_own() {
        let event = |timestamp, message: &str| LogEvent {
            timestamp,
            message: STANDARD.encode(message),
        };
        let times: Vec<i64> = timed(vec![event(5, "a"), event(5, "b"), event(6, "c")])
            .iter()
            .map(|(at, _)| at.as_microsecond())
            .collect();
        assert_eq!(times, [5000, 5001, 6000]);
    }
}

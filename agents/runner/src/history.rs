//! What the server pulls: state changes, the job's log and our own log, in one order.
//!
//! One lock holds the clock and the entries, since a pull's `last_updated` must never hide an entry that comes later.
//! Timestamps are unique, so a bounded answer may end at any entry and the next pull goes on after it.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use dstack_agent_protocol::runner::JobState;
use tokio::sync::watch;

use crate::spool::{Piece, Reader, Spool};

/// Log bytes in one answer, before base64. An entry is at most 32 KiB, so answers stay near this.
const PULL_LIMIT: usize = 16 * 1024 * 1024;

/// How a job ended or that it runs; everything of a state event but its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) state: JobState,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) exit_status: Option<i32>,
}

impl Change {
    pub(crate) fn to(state: JobState) -> Self {
        Self {
            state,
            reason: "",
            message: String::new(),
            exit_status: None,
        }
    }

    pub(crate) fn because(self, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            ..self
        }
    }

    pub(crate) fn with_exit_status(self, status: i32) -> Self {
        Self {
            exit_status: Some(status),
            ..self
        }
    }
}

#[derive(Debug)]
pub(crate) struct History {
    inner: Mutex<Inner>,
    pub(crate) reader: Reader,
    latest: watch::Sender<i64>,
    limit: usize,
}

#[derive(Debug)]
struct Inner {
    clock: Clock,
    entries: Vec<(i64, Entry)>,
    spool: Spool,
}

/// Kept small: a job that writes all the time has a million a day.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    State(Box<Change>),
    JobLog(Piece),
    RunnerLog(Piece),
}

/// What one answer takes of the entries. Their bytes stay on the disk until they are written out.
#[derive(Debug)]
pub(crate) struct Selection {
    pub(crate) entries: Vec<(i64, Entry)>,
    pub(crate) last_updated: i64,
    /// Whether it is all there was.
    pub(crate) is_complete: bool,
    pub(crate) log_bytes: usize,
}

/// Gives unique, growing timestamps near the wall clock, in milliseconds. Wall clock jumps do not reach it.
#[derive(Debug)]
struct Clock {
    started: Instant,
    started_ms: i64,
    last: i64,
}

impl Clock {
    fn new() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let started_ms = i64::try_from(since.as_millis()).unwrap_or_default();
        Self {
            started: Instant::now(),
            started_ms,
            last: 0,
        }
    }

    fn issue(&mut self) -> i64 {
        let elapsed = i64::try_from(self.started.elapsed().as_millis()).unwrap_or_default();
        self.last = (self.started_ms + elapsed).max(self.last + 1);
        self.last
    }
}

impl History {
    pub(crate) fn create(dir: &Path) -> io::Result<Self> {
        Self::with_limit(dir, PULL_LIMIT)
    }

    fn with_limit(dir: &Path, limit: usize) -> io::Result<Self> {
        let spool = Spool::create(dir)?;
        let reader = spool.reader()?;
        let inner = Mutex::new(Inner {
            clock: Clock::new(),
            entries: Vec::new(),
            spool,
        });
        Ok(Self {
            inner,
            reader,
            latest: watch::Sender::new(0),
            limit,
        })
    }

    pub(crate) fn add_state(&self, change: Change) {
        self.add(|_| Entry::State(Box::new(change)));
    }

    pub(crate) fn add_job_log(&self, bytes: &[u8]) {
        self.add(|spool| Entry::JobLog(spool.append(bytes)));
    }

    pub(crate) fn add_runner_log(&self, bytes: &[u8]) {
        self.add(|spool| Entry::RunnerLog(spool.append(bytes)));
    }

    fn add(&self, entry: impl FnOnce(&mut Spool) -> Entry) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entry(&mut inner.spool);
        let timestamp = inner.clock.issue();
        inner.entries.push((timestamp, entry));
        // Inside the lock: a later timestamp must not be told before an earlier one.
        self.latest.send_replace(timestamp);
    }

    /// Everything later than `timestamp`, up to the limit of one answer.
    pub(crate) fn select(&self, timestamp: i64) -> Selection {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let from = inner.entries.partition_point(|(at, _)| *at <= timestamp);
        let later = inner.entries.get(from..).unwrap_or_default();
        let mut log_bytes = 0;
        let entries: Vec<(i64, Entry)> = later
            .iter()
            .take_while(|(_, entry)| {
                let fits = log_bytes < self.limit;
                log_bytes += match entry {
                    Entry::State(_) => 0,
                    Entry::JobLog(piece) | Entry::RunnerLog(piece) => piece.len(),
                };
                fits
            })
            .cloned()
            .collect();
        let is_complete = entries.len() == later.len();
        let last_updated = match entries.last() {
            Some((at, _)) if !is_complete => *at,
            _ => inner.clock.last,
        };
        Selection {
            entries,
            last_updated,
            is_complete,
            log_bytes,
        }
    }

    /// Waits until there is something later than `timestamp`.
    pub(crate) async fn newer_than(&self, timestamp: i64) {
        // The sender lives as long as `self`.
        drop(
            self.latest
                .subscribe()
                .wait_for(|latest| *latest > timestamp)
                .await,
        );
    }
}

/// Takes our own log lines.
#[derive(Debug, Clone)]
pub(crate) struct RunnerLog(pub(crate) std::sync::Arc<History>);

impl Write for RunnerLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.add_runner_log(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Takes the job's output from the terminal to its readers.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::history::History;
use crate::raw_log::RawLog;
use crate::stripper::Stripper;

/// Longest sleep: how soon the end of the command is noticed when its terminal stays open.
const NAP: Duration = Duration::from_millis(250);
/// Output is awaited this long after the command ended, if something else keeps the terminal open.
const DRAIN: Duration = Duration::from_secs(5);

/// Bytes taken from the terminal in one go.
const BUFFER: usize = 64 * 1024;
/// What the kernel hands over of a terminal in one read, or nearly so. A job that fills it writes faster than we read.
const FULL_READ: usize = 2048;
/// A pause after a full read: what the job writes meanwhile is taken at once, instead of being woken for each page.
const GATHER: Duration = Duration::from_millis(1);

/// Bytes of log allowed in an hour, counted from the submission.
#[derive(Debug)]
pub(crate) struct Quota {
    limit: u64,
    since: Instant,
    hour: u64,
    used: u64,
}

impl Quota {
    /// No quota for `None` and 0.
    pub(crate) fn new(limit: Option<u64>, since: Instant) -> Option<Self> {
        let limit = limit.filter(|limit| *limit > 0)?;
        Some(Self {
            limit,
            since,
            hour: 0,
            used: 0,
        })
    }

    /// Counts a write; `false` if it is one too many.
    fn allows(&mut self, len: usize, now: Instant) -> bool {
        let hour = now.duration_since(self.since).as_secs() / 3600;
        if hour != self.hour {
            (self.hour, self.used) = (hour, 0);
        }
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        if self.used.saturating_add(len) > self.limit {
            return false;
        }
        self.used += len;
        true
    }
}

/// The pump from the terminal to the logs. Runs on a thread of its own until the terminal closes.
pub(crate) struct Pump {
    pub(crate) terminal: File,
    pub(crate) raw: Arc<RawLog>,
    pub(crate) history: Arc<History>,
    pub(crate) quota: Arc<Mutex<Option<Quota>>>,
    /// Set when the command has ended.
    pub(crate) has_ended: Arc<AtomicBool>,
    /// Called once when the quota is used up.
    pub(crate) over_quota: Box<dyn FnMut() + Send>,
}

/// What a look at the terminal found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// So many bytes, and whether there may be more at once.
    Bytes {
        len: usize,
        is_flood: bool,
    },
    Nothing,
    /// Nobody has the terminal open.
    Closed,
}

impl Pump {
    pub(crate) fn run(mut self) {
        let mut stripper = Stripper::new(Instant::now());
        let mut buffer = vec![0; BUFFER];
        let mut ended_at = None;
        let mut is_over = false;
        let mut is_raw_failing = false;
        set_nonblocking(&self.terminal);
        loop {
            let now = Instant::now();
            let mut log = |piece: &[u8]| {
                Self::log(
                    &self.history,
                    &self.quota,
                    &mut is_over,
                    &mut self.over_quota,
                    piece,
                )
            };
            stripper.flush_due(now, &mut log);
            if self.has_ended.load(Ordering::Acquire) {
                let since = *ended_at.get_or_insert(now);
                if now.duration_since(since) > DRAIN {
                    tracing::warn!("output after the end of the command is dropped");
                    break;
                }
            }
            let nap = stripper
                .next_flush()
                .map_or(NAP, |due| due.saturating_duration_since(now).min(NAP));
            if !is_readable(&self.terminal, nap) {
                continue;
            }
            match look(&self.terminal, &mut buffer) {
                Look::Bytes { len, is_flood } => {
                    let bytes = buffer.get(..len).unwrap_or_default();
                    if let Err(error) = self.raw.append(unix_seconds(), bytes)
                        && !std::mem::replace(&mut is_raw_failing, true)
                    {
                        tracing::warn!(%error, "the job's raw log has holes from here");
                    }
                    stripper.write(bytes, Instant::now(), &mut log);
                    if is_flood {
                        std::thread::sleep(GATHER);
                    }
                }
                Look::Nothing => {}
                // For good if the command ended, else it may be opened again.
                Look::Closed if ended_at.is_some() => break,
                Look::Closed => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        let mut log = |piece: &[u8]| {
            Self::log(
                &self.history,
                &self.quota,
                &mut is_over,
                &mut self.over_quota,
                piece,
            )
        };
        stripper.finish(&mut log);
        self.raw.end();
    }

    fn log(
        history: &History,
        quota: &Mutex<Option<Quota>>,
        is_over: &mut bool,
        over_quota: &mut Box<dyn FnMut() + Send>,
        piece: &[u8],
    ) {
        if *is_over {
            return;
        }
        let mut quota = quota.lock().unwrap_or_else(PoisonError::into_inner);
        if quota
            .as_mut()
            .is_none_or(|quota| quota.allows(piece.len(), Instant::now()))
        {
            history.add_job_log(piece);
        } else {
            *is_over = true;
            over_quota();
        }
    }
}

/// Takes what is there without waiting for more.
fn look(mut terminal: &File, buffer: &mut [u8]) -> Look {
    let (mut len, mut last) = (0, 0);
    loop {
        match terminal.read(buffer.get_mut(len..).unwrap_or_default()) {
            Ok(read) if read > 0 => (len, last) = (len + read, read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What was read comes first; the end is found again by the next look.
            _ if len > 0 => {
                let is_flood = last >= FULL_READ;
                return Look::Bytes { len, is_flood };
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Look::Nothing,
            _ => return Look::Closed,
        }
    }
}

/// Without it a look would wait for the next byte instead of ending.
fn set_nonblocking(file: &File) {
    let set = fcntl(file, FcntlArg::F_GETFL)
        .map(|flags| OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK)
        .and_then(|flags| fcntl(file, FcntlArg::F_SETFL(flags)));
    if let Err(error) = set {
        tracing::warn!(%error, "the log of the job comes in bursts");
    }
}

fn is_readable(file: &File, within: Duration) -> bool {
    let mut polled = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
    // Rounded up, or the last millisecond would be spent turning round.
    let millis = u16::try_from(within.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
    matches!(poll(&mut polled, PollTimeout::from(millis)), Ok(ready) if ready > 0)
}

fn unix_seconds() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quota_starts_anew_each_hour() {
        let start = Instant::now();
        let mut quota = Quota::new(Some(10), start).unwrap();
        assert!(quota.allows(6, start));
        assert!(!quota.allows(5, start));
        assert!(quota.allows(4, start));
        assert!(!quota.allows(1, start + Duration::from_secs(3599)));
        assert!(quota.allows(10, start + Duration::from_secs(3600)));
        assert!(Quota::new(Some(0), start).is_none());
        assert!(Quota::new(None, start).is_none());
    }
}

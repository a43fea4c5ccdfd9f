//! When a pipeline looks at its rows next: at once after a hint, else when the next row is due.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dstack_engine::changes::{Hint, Pipeline};
use tokio::sync::Notify;
use uuid::Uuid;

/// Wakes pipelines. Clones share the same alarm clocks.
#[derive(Debug, Clone)]
pub struct Hints(Arc<HashMap<Pipeline, Wake>>);

impl Default for Hints {
    fn default() -> Self {
        Self(Arc::new(
            Pipeline::ALL
                .into_iter()
                .map(|pipeline| (pipeline, Wake::default()))
                .collect(),
        ))
    }
}

impl Hints {
    /// Wakes the pipelines of rows that a committed transaction has made due.
    pub fn send(&self, hints: &[Hint]) {
        for hint in hints {
            if let Some(wake) = self.0.get(&hint.pipeline) {
                wake.hinted(hint.id);
            }
        }
    }

    pub(crate) fn of(&self, pipeline: Pipeline) -> Option<&Wake> {
        self.0.get(&pipeline)
    }
}

/// The alarm clock of one pipeline.
#[derive(Debug)]
pub(crate) struct Wake {
    notify: Notify,
    began: Instant,
    /// Milliseconds after `began`; `u64::MAX` when nothing is due.
    next_ms: AtomicU64,
    /// There were more due rows than free workers.
    has_backlog: AtomicBool,
    /// Rows that are being worked on, and whether a hint came meanwhile.
    in_flight: Mutex<HashMap<Uuid, bool>>,
}

impl Default for Wake {
    fn default() -> Self {
        Self {
            notify: Notify::new(),
            began: Instant::now(),
            next_ms: AtomicU64::new(0),
            has_backlog: AtomicBool::new(false),
            in_flight: Mutex::default(),
        }
    }
}

impl Wake {
    /// A row is due now. If it is being worked on, its pipeline looks again when that ends.
    fn hinted(&self, row: Uuid) {
        if let Some(hinted) = self.rows().get_mut(&row) {
            *hinted = true;
            return;
        }
        self.after(Duration::ZERO);
    }

    /// A row is due after this time.
    pub(crate) fn after(&self, delay: Duration) {
        let at = self.now_ms().saturating_add(millis(delay));
        if self.next_ms.fetch_min(at, Ordering::AcqRel) > at {
            self.notify.notify_one();
        }
    }

    /// Waits until a row is due.
    pub(crate) async fn due(&self) {
        loop {
            let (now, next) = (self.now_ms(), self.next_ms.load(Ordering::Acquire));
            if next <= now {
                // Before the claim: what becomes due during it sets the clock again.
                self.next_ms.store(u64::MAX, Ordering::Release);
                return;
            }
            let sleep = tokio::time::sleep(Duration::from_millis((next - now).min(3_600_000)));
            tokio::select! {
                () = self.notify.notified() => {}
                () = sleep => {}
            }
        }
    }

    pub(crate) fn begin(&self, row: Uuid) {
        self.rows().insert(row, false);
    }

    /// A step ended; its row is due again after `look_again`, if that is known.
    pub(crate) fn end(&self, row: Uuid, look_again: Option<Duration>) {
        let was_hinted = self.rows().remove(&row) == Some(true);
        if was_hinted || self.has_backlog.swap(false, Ordering::AcqRel) {
            self.after(Duration::ZERO);
        } else if let Some(delay) = look_again {
            self.after(delay);
        }
    }

    pub(crate) fn backlog(&self) {
        self.has_backlog.store(true, Ordering::Release);
    }

    fn rows(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, bool>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        millis(self.began.elapsed())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(id: Uuid) -> Hint {
        Hint {
            pipeline: Pipeline::Runs,
            id,
        }
    }

    #[tokio::test]
    async fn a_hint_wakes_at_once_and_a_timer_later() {
        let hints = Hints::default();
        let wake = hints.of(Pipeline::Runs).unwrap();
        wake.due().await; // the first look after the start
        wake.after(Duration::from_secs(3600));
        hints.send(&[hint(Uuid::nil())]);
        tokio::time::timeout(Duration::from_secs(5), wake.due())
            .await
            .unwrap();
        wake.after(Duration::from_millis(5));
        tokio::time::timeout(Duration::from_secs(5), wake.due())
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_hint_during_a_step_is_kept_until_its_end() {
        let hints = Hints::default();
        let wake = hints.of(Pipeline::Runs).unwrap();
        wake.due().await;
        let row = Uuid::from_u128(7);
        wake.begin(row);
        hints.send(&[hint(row)]);
        let early = tokio::time::timeout(Duration::from_millis(20), wake.due()).await;
        assert!(
            early.is_err(),
            "the row is leased: looking now finds nothing"
        );
        wake.end(row, None);
        tokio::time::timeout(Duration::from_secs(5), wake.due())
            .await
            .unwrap();
    }
}

//! When a pipeline looks at its rows next: at once after a hint, else when the next row is due.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dstack_engine::changes::{Hint, Pipeline};
use dstack_store::{News, Store};
use tokio::sync::Notify;
use uuid::Uuid;

/// Wakes pipelines, here and on the other servers of the database. Clones share the same alarm clocks.
#[derive(Clone, Default)]
pub struct Hints {
    wakes: Wakes,
    store: Option<Store>,
}

impl std::fmt::Debug for Hints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Hints").field(&self.wakes).finish()
    }
}

/// The alarm clocks of this server. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Wakes(Arc<HashMap<Pipeline, Wake>>);

impl Default for Wakes {
    fn default() -> Self {
        Self(Arc::new(
            Pipeline::ALL
                .into_iter()
                .map(|pipeline| (pipeline, Wake::default()))
                .collect(),
        ))
    }
}

impl Wakes {
    /// Another server has made these rows due.
    pub(crate) fn wake(&self, hints: &[Hint]) {
        for hint in hints {
            if let Some(wake) = self.0.get(&hint.pipeline) {
                wake.hinted(hint.id);
            }
        }
    }

    /// Any row may be due.
    pub(crate) fn wake_all(&self) {
        for wake in self.0.values() {
            wake.all_hinted();
        }
    }
}

impl Hints {
    /// Wakes the pipelines of rows that a committed transaction has made due.
    pub fn send(&self, hints: &[Hint]) {
        self.wakes.wake(hints);
        if let Some(store) = &self.store
            && !hints.is_empty()
        {
            store.tell(News::Hints(hints.to_vec()));
        }
    }

    /// Also for the other servers of this database.
    #[must_use]
    pub fn of(store: Store) -> Self {
        Self {
            wakes: Wakes::default(),
            store: Some(store),
        }
    }

    pub(crate) fn wakes(&self) -> Wakes {
        self.wakes.clone()
    }

    pub(crate) fn clock(&self, pipeline: Pipeline) -> Option<&Wake> {
        self.wakes.0.get(&pipeline)
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

    /// Any row may be due, also one that is being worked on.
    fn all_hinted(&self) {
        for hinted in self.rows().values_mut() {
            *hinted = true;
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
        let wake = hints.clock(Pipeline::Runs).unwrap();
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
        let wake = hints.clock(Pipeline::Runs).unwrap();
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

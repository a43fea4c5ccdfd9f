//! What the pipelines count: steps, how long they took, what waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dstack_engine::changes::Pipeline;
use dstack_store::{DbError, Store, lease};
use jiff::Timestamp;

/// Upper bounds of the classes of step times, in seconds; the last class has none.
pub(crate) const BOUNDS_S: [f64; 9] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0];
const CLASSES: usize = BOUNDS_S.len() + 1;

/// The counters of every pipeline. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Stats(Arc<HashMap<Pipeline, Counters>>);

impl Default for Stats {
    fn default() -> Self {
        let all = Pipeline::ALL.into_iter();
        Self(Arc::new(all.map(|it| (it, Counters::default())).collect()))
    }
}

/// The counters of one pipeline.
#[derive(Debug, Default)]
struct Counters {
    done: AtomicU64,
    failed: AtomicU64,
    running: AtomicU64,
    nanos: AtomicU64,
    classes: [AtomicU64; CLASSES],
    waiting: AtomicU64,
    lag_ms: AtomicU64,
}

/// The counters of one pipeline at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Counted {
    /// Which pipeline.
    pub(crate) pipeline: Pipeline,
    /// Steps that ended well.
    pub(crate) done: u64,
    /// Steps that ended with an error.
    pub(crate) failed: u64,
    /// Steps that run on this server.
    pub(crate) running: u64,
    /// What all ended steps took, in seconds.
    pub(crate) seconds: f64,
    /// Ended steps by how long they took; not summed up.
    pub(crate) classes: [u64; CLASSES],
    /// Rows that are due and that nobody works on, in the whole database.
    pub(crate) waiting: u64,
    /// How long the oldest of them has been due.
    pub(crate) lag: Duration,
}

impl Stats {
    /// A step began.
    pub(super) fn begin(&self, pipeline: Pipeline) {
        if let Some(it) = self.0.get(&pipeline) {
            it.running.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A step ended.
    pub(super) fn end(&self, pipeline: Pipeline, took: Duration, is_good: bool) {
        let Some(it) = self.0.get(&pipeline) else {
            return;
        };
        it.running.fetch_sub(1, Ordering::Relaxed);
        let ended = if is_good { &it.done } else { &it.failed };
        ended.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        it.nanos.fetch_add(nanos, Ordering::Relaxed);
        let seconds = took.as_secs_f64();
        let class = BOUNDS_S.iter().position(|bound| seconds <= *bound);
        if let Some(class) = it.classes.get(class.unwrap_or(CLASSES - 1)) {
            class.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Looks into the database for what waits.
    ///
    /// # Errors
    /// The database.
    pub(crate) async fn look(&self, store: &Store) -> Result<(), DbError> {
        let now = store.now();
        let found = store
            .read(move |tx| {
                let waiting = |it| Ok((it, lease::waiting(tx, it, now)?));
                Pipeline::ALL
                    .into_iter()
                    .map(waiting)
                    .collect::<Result<Vec<_>, DbError>>()
            })
            .await?;
        for (pipeline, (count, oldest)) in found {
            if let Some(it) = self.0.get(&pipeline) {
                it.waiting.store(count, Ordering::Relaxed);
                it.lag_ms.store(late_ms(oldest, now), Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// All counters now.
    pub(crate) fn counted(&self) -> Vec<Counted> {
        let of = |pipeline| {
            let it = self.0.get(&pipeline)?;
            let get = |it: &AtomicU64| it.load(Ordering::Relaxed);
            Some(Counted {
                pipeline,
                done: get(&it.done),
                failed: get(&it.failed),
                running: get(&it.running),
                seconds: Duration::from_nanos(get(&it.nanos)).as_secs_f64(),
                classes: std::array::from_fn(|class| it.classes.get(class).map_or(0, get)),
                waiting: get(&it.waiting),
                lag: Duration::from_millis(get(&it.lag_ms)),
            })
        };
        Pipeline::ALL.into_iter().filter_map(of).collect()
    }
}

fn late_ms(oldest: Option<Timestamp>, now: Timestamp) -> u64 {
    let late = oldest.map(|oldest| now.duration_since(oldest).as_millis());
    u64::try_from(late.unwrap_or(0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_by_pipeline_outcome_and_time() {
        let stats = Stats::default();
        for _ in 0..3 {
            stats.begin(Pipeline::Runs);
        }
        stats.end(Pipeline::Runs, Duration::from_millis(3), true);
        stats.end(Pipeline::Runs, Duration::from_secs(1000), false);
        let all = stats.counted();
        let runs = all.iter().find(|it| it.pipeline == Pipeline::Runs).unwrap();
        assert_eq!((runs.done, runs.failed, runs.running), (1, 1, 1));
        assert_eq!(runs.classes, [0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!((runs.seconds - 1000.003).abs() < 1e-6);
    }
}

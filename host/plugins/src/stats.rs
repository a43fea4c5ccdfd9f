//! What is counted of each plugin, for `backend list` and the metrics. Counts go on when a plugin's file is replaced.

use dstack_backend_types::BackendError;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Upper bounds of the classes of durations, in seconds; the last class has none.
pub const DURATION_BOUNDS_S: [f64; 13] = [
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

/// How often a method was called, how it ended, and how long it took.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MethodStats {
    /// Calls that have ended.
    pub calls: u64,
    /// Of these, with an error, by the word of its kind.
    pub errors: BTreeMap<&'static str, u64>,
    /// Calls by duration: one class for each of [`DURATION_BOUNDS_S`], and the last for all that took longer.
    pub durations: [u64; DURATION_BOUNDS_S.len() + 1],
    /// All durations together.
    pub seconds: f64,
}

/// What was counted since the host began.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PluginStats {
    /// By the name of the method.
    pub methods: BTreeMap<&'static str, MethodStats>,
    /// Child processes that were started in place of one that ended.
    pub respawns: u64,
    /// Child processes that ended without being told to.
    pub deaths: u64,
    /// How often the breaker opened.
    pub breaker_opened: u64,
    /// Whether it is open now: calls are refused.
    pub is_breaker_open: bool,
    /// Calls that run now.
    pub running: usize,
    /// Calls that wait for their turn.
    pub waiting: usize,
    /// Threads that never came back (in process).
    pub lost_threads: usize,
}

impl PluginStats {
    /// All calls that have ended.
    pub fn calls(&self) -> u64 {
        self.methods.values().map(|method| method.calls).sum()
    }

    /// All calls that ended with an error.
    pub fn errors(&self) -> u64 {
        let errors = self
            .methods
            .values()
            .flat_map(|method| method.errors.values());
        errors.sum()
    }
}

/// The counters of one plugin.
#[derive(Debug, Default)]
pub(crate) struct Stats(Mutex<PluginStats>);

impl Stats {
    pub(crate) fn lock(&self) -> MutexGuard<'_, PluginStats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count<T>(
        &self,
        method: &'static str,
        took: Duration,
        result: &Result<T, BackendError>,
    ) {
        let seconds = took.as_secs_f64();
        let class = DURATION_BOUNDS_S.partition_point(|bound| *bound < seconds);
        let mut all = self.lock();
        let stats = all.methods.entry(method).or_default();
        stats.calls += 1;
        stats.seconds += seconds;
        if let Some(count) = stats.durations.get_mut(class) {
            *count += 1;
        }
        if let Err(error) = result {
            *stats.errors.entry(error.kind.as_str()).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DURATION_BOUNDS_S, Stats};
    use dstack_backend_types::BackendError;
    use std::time::Duration;

    #[test]
    fn calls_are_counted_by_end_and_duration() {
        let stats = Stats::default();
        stats.count("health", Duration::from_micros(10), &Ok(()));
        stats.count("health", Duration::from_secs(301), &Ok(()));
        let error: Result<(), _> = Err(BackendError::no_capacity("none"));
        stats.count("health", Duration::from_millis(5), &error);
        let all = stats.lock().clone();
        let health = &all.methods["health"];
        assert_eq!((all.calls(), all.errors()), (3, 1));
        assert_eq!(health.errors["no_capacity"], 1);
        assert_eq!((health.durations[0], health.durations[1]), (1, 1));
        assert_eq!(health.durations[DURATION_BOUNDS_S.len()], 1);
        assert!((health.seconds - 301.005_01).abs() < 1e-6);
    }
}

//! What is simulated, and what goes wrong in it.

use std::time::Duration;

/// What to simulate.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// About this many jobs at a time, most of them on a machine of their own.
    pub instances: u32,
    /// Simulated time in which users submit; the world is drained afterwards.
    pub time: Duration,
    /// Seed.
    pub seed: u64,
    /// What goes wrong.
    pub faults: Faults,
}

/// Probabilities of faults, each from 0 to 1.
#[derive(Debug, Clone, Copy)]
#[allow(
    missing_docs,
    reason = "each name says it; the comments say for what it is drawn"
)]
pub struct Faults {
    /// Per offer tried.
    pub no_capacity: f64,
    /// Per offer tried.
    pub skipped: f64,
    /// Per machine made: the answer never arrives. Half as often nothing was made either.
    pub lost_answer: f64,
    /// Per machine made: its agents never come up.
    pub stuck_boot: f64,
    /// Per spot machine made: taken back within the hour.
    pub reclaimed: f64,
    /// Per machine made: its end is "not yet" a few times.
    pub end_refused: f64,
    /// Per call to an agent, or to end a machine.
    pub call_failed: f64,
    /// Per task.
    pub broken_image: f64,
    /// Per job.
    pub job_fails: f64,
    /// Per pull.
    pub logs_not_stored: f64,
    /// Per step: the replica stands still for longer than its lease.
    pub replica_paused: f64,
    /// Per step: the replica dies between the call and writing down what came of it.
    pub replica_died: f64,
    /// Per run: its user stops it at some time.
    pub stopped: f64,
}

impl Faults {
    /// A good day.
    pub const NONE: Self = Self {
        no_capacity: 0.0,
        skipped: 0.0,
        lost_answer: 0.0,
        stuck_boot: 0.0,
        reclaimed: 0.0,
        end_refused: 0.0,
        call_failed: 0.0,
        broken_image: 0.0,
        job_fails: 0.0,
        logs_not_stored: 0.0,
        replica_paused: 0.0,
        replica_died: 0.0,
        stopped: 0.0,
    };

    /// A bad day.
    pub const MANY: Self = Self {
        no_capacity: 0.15,
        skipped: 0.05,
        lost_answer: 0.03,
        stuck_boot: 0.02,
        reclaimed: 0.3,
        end_refused: 0.1,
        call_failed: 0.005,
        broken_image: 0.02,
        job_fails: 0.1,
        logs_not_stored: 0.01,
        replica_paused: 0.0005,
        replica_died: 0.0005,
        stopped: 0.15,
    };
}

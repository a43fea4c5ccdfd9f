//! Call threads of a worker: made on demand. The host bounds how many calls there are.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

/// As for calls in the host's own process.
const STACK_BYTES: usize = 512 << 10;
/// How long a thread without work is kept.
const IDLE: Duration = Duration::from_secs(30);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    idle: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
pub(super) struct Threads(Arc<Shared>);

impl Threads {
    /// Runs it on a thread that has nothing to do, or on a new one.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.queue.push_back(Box::new(job));
        if state.queue.len() > state.idle {
            let shared = Arc::clone(&self.0);
            let spawned = std::thread::Builder::new()
                .name("be-call".to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || shared.work());
            // Without a thread it waits for one that comes back, or for its deadline.
            drop(spawned);
        }
        drop(state);
        self.0.wake.notify_one();
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
            state.idle += 1;
            let (woken, waited) = self
                .wake
                .wait_timeout(state, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.queue.is_empty() {
                return None;
            }
        }
    }
}

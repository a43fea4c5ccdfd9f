//! The call threads of one backend: made on demand, bounded, replaced when one is lost.

use crate::{call::CallState, config::Limits};
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Enough for JSON and a provider's client; the default of 2 MiB would be paid in page tables by hundreds of threads.
const STACK_BYTES: usize = 512 << 10;

/// A call waiting for a thread.
pub(crate) struct Work {
    pub call: Arc<CallState>,
    /// Whether it may only take a quarter of the threads.
    pub is_bulk: bool,
    /// Calls the plugin and hands the answer over.
    pub run: Box<dyn FnOnce() + Send>,
}

/// Why work was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// As many calls wait as may wait.
    QueueFull,
    /// Too many threads never came back.
    ThreadsLost(usize),
    /// The system gives no thread.
    NoThread,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Work>,
    /// Threads that work or wait for work; lost ones are not among them.
    threads: usize,
    /// Threads of these that are in the plugin.
    busy: usize,
    /// Threads in bulk work, lost ones included.
    bulk: usize,
    lost: usize,
}

struct Shared {
    name: String,
    limits: Limits,
    state: Mutex<State>,
    wake: Condvar,
}

/// A pool of call threads. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

impl Pool {
    pub(crate) fn new(backend: &str, limits: Limits) -> Self {
        Self(Arc::new(Shared {
            name: format!("be-{backend}"),
            limits,
            state: Mutex::default(),
            wake: Condvar::new(),
        }))
    }

    /// Hands work to a thread or puts it in line.
    pub(crate) fn submit(&self, work: Work) -> Result<(), Refused> {
        let mut state = self.0.lock();
        if state.lost >= self.0.limits.lost_threads {
            return Err(Refused::ThreadsLost(state.lost));
        }
        let waiting = state.queue.len();
        // What a thread will take at once is not in the line, even if it has not taken it yet.
        let free = self.0.limits.threads.saturating_sub(state.busy);
        if waiting >= self.0.limits.queue + free {
            return Err(Refused::QueueFull);
        }
        if state.threads - state.busy <= waiting && state.threads < self.0.limits.threads {
            let shared = Arc::clone(&self.0);
            let spawned = std::thread::Builder::new()
                .name(self.0.name.clone())
                .stack_size(STACK_BYTES)
                .spawn(move || shared.work());
            match spawned {
                Ok(_) => state.threads += 1,
                Err(_) if state.threads > 0 => {}
                Err(_) => return Err(Refused::NoThread),
            }
        }
        state.queue.push_back(work);
        drop(state);
        self.0.wake.notify_one();
        Ok(())
    }

    /// Gives up the thread that runs `call`, if it still does.
    pub(crate) fn lose(&self, call: &CallState) {
        let mut state = self.0.lock();
        if call.lose() {
            state.threads -= 1;
            state.busy -= 1;
            state.lost += 1;
            tracing::error!(
                backend = self.0.name.trim_start_matches("be-"),
                lost = state.lost,
                "a call does not come back; its thread is lost, run the backend with `isolation: process` to be safe from it"
            );
        }
    }

    /// Takes out work that nobody waits for any more.
    pub(crate) fn forget(&self, call_id: u64) {
        let mut state = self.0.lock();
        let at = state.queue.iter().position(|work| work.call.id == call_id);
        let work = at.and_then(|at| state.queue.remove(at));
        // What the work holds is dropped after the lock: it may be the last owner of a backend.
        drop(state);
        drop(work);
    }

    /// Calls that run, calls that wait, threads that are lost.
    pub(crate) fn load(&self) -> (usize, usize, usize) {
        let state = self.0.lock();
        (state.busy, state.queue.len(), state.lost)
    }

    /// Threads that are lost now.
    pub(crate) fn lost(&self) -> usize {
        self.0.lock().lost
    }

    /// Whether so many are lost that nothing is taken any more.
    pub(crate) fn is_off(&self) -> bool {
        self.lost() >= self.0.limits.lost_threads
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(work) = self.next() {
            let is_bulk = work.is_bulk;
            let mut is_ours = true;
            if work.call.start() {
                (work.run)();
                is_ours = work.call.finish();
                work.call.finished.cancel();
            }
            let mut state = self.lock();
            if is_bulk {
                state.bulk -= 1;
            }
            if !is_ours {
                // It was given up and replaced; now it is back, and there is one thread too many.
                state.lost -= 1;
                return;
            }
            state.busy -= 1;
        }
    }

    /// The next work for this thread; `None` ends it.
    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            let bulk_limit = (self.limits.threads / 4).max(1);
            let may_bulk = state.bulk < bulk_limit;
            let at = state
                .queue
                .iter()
                .position(|work| may_bulk || !work.is_bulk);
            if let Some(work) = at.and_then(|at| state.queue.remove(at)) {
                state.bulk += usize::from(work.is_bulk);
                state.busy += 1;
                return Some(work);
            }
            let (woken, waited) = self
                .wake
                .wait_timeout(state, self.limits.idle_thread.max(Duration::from_millis(1)))
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            // Bulk work may be in line that this thread must not take; another thread will, when it is done with its own.
            if waited.timed_out() && (state.queue.is_empty() || state.threads > 1) {
                state.threads -= 1;
                return None;
            }
        }
    }
}

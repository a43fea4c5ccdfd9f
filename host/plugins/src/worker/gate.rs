//! How many calls may be in a worker at once: what the pool's threads are for calls in process.

use crate::{config::Limits, pool::Refused};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) struct Gate {
    all: Arc<Semaphore>,
    /// Bulk work gets a quarter, so that offers that hang never hold up a termination.
    bulk: Arc<Semaphore>,
    threads: usize,
    queue: usize,
    waiting: AtomicUsize,
}

/// The right to be in the worker, until the call is really over.
#[derive(Debug)]
pub(crate) struct Permit {
    _all: OwnedSemaphorePermit,
    _bulk: Option<OwnedSemaphorePermit>,
}

struct Waits<'a>(&'a AtomicUsize);
impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Gate {
    pub(crate) fn new(limits: &Limits) -> Self {
        let threads = limits.threads.clamp(1, 256);
        Self {
            all: Arc::new(Semaphore::new(threads)),
            bulk: Arc::new(Semaphore::new((threads / 4).max(1))),
            threads,
            queue: limits.queue,
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits for a place, first come, first served.
    pub(crate) async fn enter(&self, is_bulk: bool) -> Result<Permit, Refused> {
        let waits = self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waits = Waits(&self.waiting);
        let free = self.all.available_permits();
        if waits >= self.queue + free {
            return Err(Refused::QueueFull);
        }
        let closed = |_| Refused::NoThread;
        let bulk = if is_bulk {
            let bulk = Arc::clone(&self.bulk).acquire_owned().await;
            Some(bulk.map_err(closed)?)
        } else {
            None
        };
        let all = Arc::clone(&self.all)
            .acquire_owned()
            .await
            .map_err(closed)?;
        Ok(Permit {
            _all: all,
            _bulk: bulk,
        })
    }

    pub(crate) fn running(&self) -> usize {
        self.threads - self.all.available_permits().min(self.threads)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }
}

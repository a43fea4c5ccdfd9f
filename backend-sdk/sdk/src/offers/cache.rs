//! Answers by key, for a time, fetched once at a time.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dstack_backend_types::{BackendError, InstanceOfferWithAvailability};

/// How long an answer is good.
pub(super) const TTL: Duration = Duration::from_secs(180);

type Offers = Arc<[InstanceOfferWithAvailability]>;

/// One key's answer. Its lock is held while it is fetched, so others wait for it.
#[derive(Debug, Default)]
struct Slot {
    answer: Mutex<Option<(Instant, Offers)>>,
}

#[derive(Debug)]
pub(super) struct Cache<K> {
    capacity: usize,
    ttl: Duration,
    /// Oldest use first.
    slots: Mutex<Vec<(K, Arc<Slot>)>>,
}

impl<K: Clone + PartialEq + Debug> Cache<K> {
    pub(super) fn new(capacity: usize) -> Self {
        Self::with_ttl(capacity, TTL)
    }

    pub(super) fn with_ttl(capacity: usize, ttl: Duration) -> Self {
        Self {
            capacity,
            ttl,
            slots: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn get_or_fetch(
        &self,
        key: &K,
        fetch: impl FnOnce() -> Result<Vec<InstanceOfferWithAvailability>, BackendError>,
    ) -> Result<Offers, BackendError> {
        let slot = self.slot(key);
        let mut answer = lock(&slot.answer);
        // Monotonic time of this process: unlike the host's wall clock it never jumps.
        if let Some((fetched, offers)) = answer.as_ref()
            && fetched.elapsed() < self.ttl
        {
            return Ok(Arc::clone(offers));
        }
        let offers: Offers = fetch()?.into();
        *answer = Some((Instant::now(), Arc::clone(&offers)));
        Ok(offers)
    }

    pub(super) fn clear(&self) {
        lock(&self.slots).clear();
    }

    fn slot(&self, key: &K) -> Arc<Slot> {
        let mut slots = lock(&self.slots);
        let slot = match slots.iter().position(|(known, _)| known == key) {
            Some(position) => slots.remove(position).1,
            None => Arc::default(),
        };
        if slots.len() >= self.capacity {
            slots.remove(0);
        }
        slots.push((key.clone(), Arc::clone(&slot)));
        slot
    }
}

/// A fetch that panicked has stored nothing, so the state behind a poisoned lock is sound.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The cache of opened backends: bounded, timed, and one computation for a key at a time.

use dstack_backend_types::services::{CacheGet, CachePut};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

const MAX_BYTES: usize = 64 << 20;
const MAX_TTL: Duration = Duration::from_secs(3600);

#[derive(Default)]
struct Scope {
    values: HashMap<String, (Instant, Arc<[u8]>)>,
    /// Key to the call that computes it.
    computing: HashMap<String, u64>,
}

impl Scope {
    fn bytes(&self) -> usize {
        self.values.values().map(|(_, value)| value.len()).sum()
    }

    fn fresh(&mut self, key: &str, now: Instant) -> Option<Arc<[u8]>> {
        let (until, value) = self.values.get(key)?;
        if *until > now {
            return Some(Arc::clone(value));
        }
        self.values.remove(key);
        None
    }

    fn make_room(&mut self, wanted: usize, now: Instant) {
        self.values.retain(|_, (until, _)| *until > now);
        while self.bytes() + wanted > MAX_BYTES {
            let oldest = self
                .values
                .iter()
                .min_by_key(|(_, (until, _))| *until)
                .map(|(key, _)| key.clone());
            let Some(key) = oldest else { return };
            self.values.remove(&key);
        }
    }
}

/// The caches of all opened backends; each sees only its own.
#[derive(Default)]
pub(crate) struct Cache {
    scopes: Mutex<HashMap<u64, Scope>>,
    changed: Notify,
}

impl Cache {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Scope>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, or `None`: then the caller computes it, if it said that it would. Waits for another call that does.
    pub(crate) async fn get(&self, scope: u64, call: u64, request: &CacheGet) -> Option<Arc<[u8]>> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Listening begins before the look, so that a change in between is not missed.
            changed.as_mut().enable();
            {
                let mut scopes = self.lock();
                let scope = scopes.entry(scope).or_default();
                if let Some(value) = scope.fresh(&request.key, Instant::now()) {
                    return Some(value);
                }
                if !request.will_compute {
                    return None;
                }
                let computes = *scope.computing.entry(request.key.clone()).or_insert(call);
                if computes == call {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Keeps a value and wakes those who wait for it.
    pub(crate) fn put(&self, scope: u64, head: &CachePut, value: &[u8]) {
        let now = Instant::now();
        let until = now + Duration::from_millis(head.ttl_ms).min(MAX_TTL);
        let mut scopes = self.lock();
        let scope = scopes.entry(scope).or_default();
        scope.computing.remove(&head.key);
        scope.values.remove(&head.key);
        if value.len() <= MAX_BYTES {
            scope.make_room(value.len(), now);
            scope.values.insert(head.key.clone(), (until, value.into()));
        }
        drop(scopes);
        self.changed.notify_waiters();
    }

    /// A call has ended: what it was computing is free for another.
    pub(crate) fn release(&self, scope: u64, call: u64) {
        let mut scopes = self.lock();
        let Some(scope) = scopes.get_mut(&scope) else {
            return;
        };
        let before = scope.computing.len();
        scope.computing.retain(|_, by| *by != call);
        let is_changed = scope.computing.len() != before;
        drop(scopes);
        if is_changed {
            self.changed.notify_waiters();
        }
    }

    /// A backend was closed.
    pub(crate) fn forget(&self, scope: u64) {
        self.lock().remove(&scope);
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, MAX_BYTES};
    use dstack_backend_types::services::{CacheGet, CachePut};
    use std::sync::Arc;

    fn get(key: &str, will_compute: bool) -> CacheGet {
        CacheGet {
            key: key.to_owned(),
            will_compute,
        }
    }
    fn put(key: &str, ttl_ms: u64) -> CachePut {
        CachePut {
            key: key.to_owned(),
            ttl_ms,
        }
    }

    #[tokio::test]
    async fn a_second_computation_waits_for_the_first() {
        let cache = Arc::new(Cache::default());
        assert!(cache.get(1, 10, &get("k", true)).await.is_none());
        let second = tokio::spawn({
            let cache = Arc::clone(&cache);
            async move { cache.get(1, 11, &get("k", true)).await }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        cache.put(1, &put("k", 60_000), b"v");
        assert_eq!(second.await.unwrap().as_deref(), Some(b"v".as_slice()));
    }

    #[tokio::test]
    async fn a_computation_that_ends_without_a_value_passes_to_the_next() {
        let cache = Arc::new(Cache::default());
        assert!(cache.get(1, 10, &get("k", true)).await.is_none());
        let second = tokio::spawn({
            let cache = Arc::clone(&cache);
            async move { cache.get(1, 11, &get("k", true)).await }
        });
        tokio::task::yield_now().await;
        cache.release(1, 10);
        assert_eq!(second.await.unwrap(), None);
    }

    #[tokio::test]
    async fn values_end_and_stay_in_their_scope() {
        let cache = Cache::default();
        cache.put(1, &put("old", 0), b"v");
        cache.put(1, &put("k", 60_000), b"v");
        assert!(cache.get(1, 1, &get("old", false)).await.is_none());
        assert!(cache.get(2, 1, &get("k", false)).await.is_none());
        assert!(cache.get(1, 1, &get("k", false)).await.is_some());
        cache.forget(1);
        assert!(cache.get(1, 1, &get("k", false)).await.is_none());
    }

    #[tokio::test]
    async fn what_ends_first_makes_room() {
        let cache = Cache::default();
        let big = vec![0; MAX_BYTES / 2];
        cache.put(1, &put("first", 1_000), &big);
        cache.put(1, &put("second", 60_000), &big);
        cache.put(1, &put("third", 60_000), b"more");
        assert!(cache.get(1, 1, &get("first", false)).await.is_none());
        assert!(cache.get(1, 1, &get("second", false)).await.is_some());
        assert!(cache.get(1, 1, &get("third", false)).await.is_some());
    }
}

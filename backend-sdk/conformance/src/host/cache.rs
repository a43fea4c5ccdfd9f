//! The cache service: timed on the virtual clock, one computation for a key at a time.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use dstack_backend_types::BackendError;
use dstack_backend_types::services::{CacheGet, CachePut};

use super::{Call, lock};

const MAX_TTL_MS: u64 = 3_600_000;

#[derive(Default)]
struct Inner {
    /// Key to the end of its time in microseconds, and value.
    values: HashMap<String, (i64, Vec<u8>)>,
    computing: HashMap<String, u64>,
}

#[derive(Default)]
pub(crate) struct Cache {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Cache {
    /// The value; `None` means that the caller computes it, if it said that it would.
    pub(super) fn get(
        &self,
        call: &Call,
        request: &CacheGet,
    ) -> Result<Option<Vec<u8>>, BackendError> {
        let mut inner = lock(&self.inner);
        loop {
            call.check()?;
            let now = call.session.now_us();
            if let Some((until, value)) = inner.values.get(&request.key)
                && *until > now
            {
                return Ok(Some(value.clone()));
            }
            if !request.will_compute {
                return Ok(None);
            }
            match inner.computing.get(&request.key) {
                Some(other) if *other != call.id => {}
                _ => {
                    inner.computing.insert(request.key.clone(), call.id);
                    return Ok(None);
                }
            }
            // Short waits, so that a cancel is seen too.
            inner = self
                .changed
                .wait_timeout(inner, Duration::from_millis(20))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    pub(super) fn put(&self, now_us: i64, head: &CachePut, value: &[u8]) {
        let ttl_us = i64::try_from(head.ttl_ms.min(MAX_TTL_MS) * 1000).unwrap_or_default();
        let mut inner = lock(&self.inner);
        inner.computing.remove(&head.key);
        inner.values.insert(
            head.key.clone(),
            (now_us.saturating_add(ttl_us), value.to_vec()),
        );
        drop(inner);
        self.changed.notify_all();
    }

    /// A call has ended, and with it what it was computing.
    pub(super) fn release(&self, call: u64) {
        lock(&self.inner).computing.retain(|_, by| *by != call);
        self.changed.notify_all();
    }
}

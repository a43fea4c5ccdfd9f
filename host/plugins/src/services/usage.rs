//! How much each backend asks of the host.

use dstack_backend_types::BackendError;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// What was asked of one service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ServiceUsage {
    /// Requests that were answered, well or badly.
    pub requests: u64,
    /// Of these, with an error.
    pub errors: u64,
    /// Bytes of the requests.
    pub bytes_in: u64,
    /// Bytes of the answers; those of errors are not counted.
    pub bytes_out: u64,
}

type ByBackend = BTreeMap<String, BTreeMap<u32, ServiceUsage>>;

/// The counters of all backends.
#[derive(Debug, Default)]
pub(crate) struct Usage(Mutex<ByBackend>);

impl Usage {
    pub(crate) fn count(
        &self,
        backend: &str,
        service: u32,
        request: &[u8],
        answer: &Result<Vec<u8>, BackendError>,
    ) {
        let bytes = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(backend) {
            all.insert(backend.to_owned(), BTreeMap::new());
        }
        let Some(of_backend) = all.get_mut(backend) else {
            return;
        };
        let usage = of_backend.entry(service).or_default();
        usage.requests += 1;
        usage.bytes_in += bytes(request);
        match answer {
            Ok(answer) => usage.bytes_out += bytes(answer),
            Err(_) => usage.errors += 1,
        }
    }

    pub(crate) fn of(&self, backend: &str) -> BTreeMap<u32, ServiceUsage> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(backend).cloned().unwrap_or_default()
    }
}

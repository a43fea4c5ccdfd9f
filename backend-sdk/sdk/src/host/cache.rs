//! Values that are kept between calls of one opened backend.

use super::{request, to_json};
use dstack_backend_types::{BackendError, ErrorKind, services as wire};
use serde::{Serialize, de::DeserializeOwned};
use std::time::Duration;

fn look(key: &str, will_compute: bool) -> Result<Option<Vec<u8>>, BackendError> {
    let query = wire::CacheGet {
        key: key.to_owned(),
        will_compute,
    };
    let reply = request(wire::CACHE_GET, &to_json(&query)?)?;
    let (head, value): (wire::CacheAnswer, _) = wire::unframe(reply.as_slice())
        .map_err(|e| BackendError::internal(format!("the host's answer is not understood: {e}")))?;
    Ok(head.is_found.then(|| value.to_vec()))
}

/// The value of a key, if there is one that is still good.
///
/// # Errors
/// `cancelled`, or `unsupported` outside of a host.
pub fn get(key: &str) -> Result<Option<Vec<u8>>, BackendError> {
    look(key, false)
}

/// Keeps a value for at most an hour. 64 MB are kept for a backend; what ends first makes room.
///
/// # Errors
/// `unsupported` outside of a host.
pub fn put(key: &str, ttl: Duration, value: &[u8]) -> Result<(), BackendError> {
    let head = wire::CachePut {
        key: key.to_owned(),
        ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
    };
    let message = wire::frame(&head, value).map_err(|e| BackendError::internal(e.to_string()))?;
    request(wire::CACHE_PUT, &message).map(|_| ())
}

/// The kept value, or a new one. Of several calls that want the same key at once one computes, the others wait for it; if it
/// fails, the next one tries.
///
/// # Errors
/// Those of `compute`; `cancelled`.
pub fn get_or_compute<T, F>(key: &str, ttl: Duration, compute: F) -> Result<T, BackendError>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce() -> Result<T, BackendError>,
{
    match look(key, true) {
        Ok(Some(value)) => match serde_json::from_slice(&value) {
            Ok(value) => return Ok(value),
            Err(error) => {
                tracing::warn!(key, %error, "a cached value is not understood; it is computed anew")
            }
        },
        Ok(None) => {}
        Err(error) if error.kind == ErrorKind::Unsupported => return compute(),
        Err(error) => return Err(error),
    }
    let value = compute()?;
    put(key, ttl, &to_json(&value)?)?;
    Ok(value)
}

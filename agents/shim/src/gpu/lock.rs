//! Which GPUs are in use. In memory only: after a restart the running containers tell.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// All GPUs and whether each is busy.
#[derive(Debug)]
pub(crate) struct GpuLock(Mutex<BTreeMap<String, bool>>);

/// Fewer GPUs are free than were asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no capacity: {wanted} GPUs requested, {free} available")]
pub(crate) struct NoCapacity {
    wanted: i64,
    free: usize,
}

impl GpuLock {
    pub(crate) fn new(ids: impl IntoIterator<Item = String>) -> Self {
        Self(Mutex::new(ids.into_iter().map(|id| (id, false)).collect()))
    }

    /// Takes `wanted` free GPUs, all or none; -1 takes every free one and never fails.
    pub(crate) fn acquire(&self, wanted: i64) -> Result<Vec<String>, NoCapacity> {
        let mut gpus = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free: Vec<_> = gpus.iter_mut().filter(|(_, is_busy)| !**is_busy).collect();
        if wanted != -1 {
            match usize::try_from(wanted) {
                Ok(count) if count <= free.len() => free.truncate(count),
                _ => {
                    return Err(NoCapacity {
                        wanted,
                        free: free.len(),
                    });
                }
            }
        }
        Ok(free
            .into_iter()
            .map(|(id, is_busy)| {
                *is_busy = true;
                id.clone()
            })
            .collect())
    }

    /// Takes those of `ids` that are known and free, and returns them.
    pub(crate) fn take(&self, ids: &[String]) -> Vec<String> {
        let mut gpus = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Vec::new();
        for id in ids {
            match gpus.get_mut(id) {
                Some(is_busy) if !*is_busy => {
                    *is_busy = true;
                    taken.push(id.clone());
                }
                Some(_) => tracing::warn!(gpu = id, "a restored task's GPU belongs to another"),
                None => tracing::warn!(gpu = id, "a restored task's GPU is not there any more"),
            }
        }
        taken
    }

    /// Gives GPUs back; unknown and free ones are ignored.
    pub(crate) fn release(&self, ids: &[String]) {
        let mut gpus = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for id in ids {
            if let Some(is_busy) = gpus.get_mut(id) {
                *is_busy = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_taken_all_or_none() {
        let lock = GpuLock::new(["a", "b", "c"].map(String::from));
        assert_eq!(lock.acquire(2).unwrap(), ["a", "b"]);
        let err = lock.acquire(2).unwrap_err();
        assert_eq!(
            err.to_string(),
            "no capacity: 2 GPUs requested, 1 available"
        );
        assert_eq!(lock.acquire(-1).unwrap(), ["c"]);
        assert!(lock.acquire(-1).unwrap().is_empty());
        assert!(lock.acquire(-2).is_err());
        lock.release(&["b".into(), "unknown".into()]);
        assert_eq!(lock.take(&["a".into(), "b".into(), "x".into()]), ["b"]);
        assert!(lock.acquire(0).unwrap().is_empty());
    }
}

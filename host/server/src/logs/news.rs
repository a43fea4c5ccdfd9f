//! Wakes those who wait for a log to grow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::LogKey;

/// Who waits for which log. Clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct News(Arc<Mutex<HashMap<LogKey, Arc<Notify>>>>);

/// An ear at one log, until it is dropped.
#[derive(Debug)]
pub(crate) struct Ear {
    news: News,
    key: LogKey,
    /// Notified at each growth.
    pub(crate) grown: Arc<Notify>,
}

impl News {
    fn all(&self) -> MutexGuard<'_, HashMap<LogKey, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn listen(&self, key: &LogKey) -> Ear {
        let grown = Arc::clone(self.all().entry(key.clone()).or_default());
        Ear {
            news: self.clone(),
            key: key.clone(),
            grown,
        }
    }

    pub(crate) fn tell(&self, key: &LogKey) {
        if let Some(grown) = self.all().get(key) {
            grown.notify_waiters();
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut all = self.news.all();
        // The table's and ours: nobody else listens.
        if Arc::strong_count(&self.grown) <= 2 {
            all.remove(&self.key);
        }
    }
}

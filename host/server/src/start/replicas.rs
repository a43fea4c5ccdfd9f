//! What this server does with the news of the other servers of its database.

use std::sync::Arc;

use dstack_store::{Heard, News, Store, Topic};

use crate::pipelines::Hints;
use crate::services::backends::Backends;
use crate::services::host_keys::StoredHostKeys;

/// Listens as long as the store lives. The store does not keep itself alive by that.
pub(super) fn listen(
    store: &Store,
    hints: &Hints,
    backends: &Arc<Backends>,
    host_keys: &Arc<StoredHostKeys>,
) {
    let (wakes, backends, host_keys) = (
        hints.wakes(),
        Arc::downgrade(backends),
        Arc::downgrade(host_keys),
    );
    store.listen(move |heard| match heard {
        Heard::News(News::Hints(hints)) => wakes.wake(&hints),
        Heard::News(News::Changed(Topic::Backends)) => {
            if let Some(backends) = backends.upgrade() {
                backends.reread();
            }
        }
        Heard::News(News::Changed(Topic::HostKeys)) => {
            if let Some(host_keys) = host_keys.upgrade() {
                host_keys.reread();
            }
        }
        Heard::Everything => {
            wakes.wake_all();
            if let Some(backends) = backends.upgrade() {
                backends.reread();
            }
            if let Some(host_keys) = host_keys.upgrade() {
                host_keys.reread();
            }
        }
    });
}

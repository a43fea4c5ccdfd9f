//! One call: its state, the sign to end, and where its chunks go.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A call moves `queued → running → done | lost`, or `queued → dropped`; each step by compare-and-swap, so the thread and the
/// one who waits never both think that they own the end of it.
const QUEUED: u8 = 0;
const RUNNING: u8 = 1;
const DONE: u8 = 2;
const LOST: u8 = 3;
const DROPPED: u8 = 4;

/// A call between the host and a plugin.
#[derive(Debug)]
pub(crate) struct CallState {
    pub id: u64,
    /// The plugin it is in: a plugin may name its own calls only.
    pub plugin: String,
    /// The opened backend it belongs to: the scope of its cache.
    pub scope: u64,
    /// Set when the call should end.
    pub cancel: CancellationToken,
    /// Set when the thread has left the plugin.
    pub finished: CancellationToken,
    /// Where `emit` goes, if the method streams.
    pub chunks: Option<mpsc::Sender<Vec<u8>>>,
    phase: AtomicU8,
}

impl CallState {
    fn step(&self, from: u8, to: u8) -> bool {
        self.phase
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
    /// Whether a thread may run it; false if nobody waits for it any more.
    pub(crate) fn start(&self) -> bool {
        self.step(QUEUED, RUNNING)
    }
    /// Whether it ended before it was given up.
    pub(crate) fn finish(&self) -> bool {
        self.step(RUNNING, DONE)
    }
    /// Whether it was given up before a thread took it.
    pub(crate) fn drop_queued(&self) -> bool {
        self.step(QUEUED, DROPPED)
    }
    /// Whether its thread counts as lost from now on.
    pub(crate) fn lose(&self) -> bool {
        self.step(RUNNING, LOST)
    }
}

/// The calls that are going on, by id, and ids for new ones.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    next: AtomicU64,
    active: Mutex<HashMap<u64, Arc<CallState>>>,
}

/// What a new call is about.
pub(crate) struct NewCall<'a> {
    pub plugin: &'a str,
    pub scope: u64,
    pub chunks: Option<mpsc::Sender<Vec<u8>>>,
}

impl Calls {
    fn active(&self) -> MutexGuard<'_, HashMap<u64, Arc<CallState>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a call. Ids begin at 1: 0 means outside of a call.
    pub(crate) fn begin(&self, new: NewCall<'_>) -> Arc<CallState> {
        let call = Arc::new(CallState {
            id: self.next.fetch_add(1, Ordering::Relaxed) + 1,
            plugin: new.plugin.to_owned(),
            scope: new.scope,
            cancel: CancellationToken::new(),
            finished: CancellationToken::new(),
            chunks: new.chunks,
            phase: AtomicU8::new(QUEUED),
        });
        self.active().insert(call.id, Arc::clone(&call));
        call
    }

    pub(crate) fn end(&self, id: u64) {
        self.active().remove(&id);
    }

    /// The call with this id, if it is going on in this plugin.
    pub(crate) fn find(&self, id: u64, plugin: &str) -> Option<Arc<CallState>> {
        let call = self.active().get(&id).cloned()?;
        (call.plugin == plugin).then_some(call)
    }

    /// Tells every call to end.
    pub(crate) fn cancel_all(&self) {
        for call in self.active().values() {
            call.cancel.cancel();
        }
    }
}

//! The host side of the border: what a plugin may ask for while the suite calls it.

mod border;
mod cache;
mod services;
mod session;
mod ssh;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dstack_backend_types::{BackendError, ErrorKind};

pub(crate) use session::{Event, Session, Settings, SshScript};
pub(crate) use ssh::SSH;

/// A lock that a panic of a check does not close.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One running call of a plugin.
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) session: Arc<Session>,
    /// Parts that were handed over while it ran; `None` if the method does not stream.
    pub(crate) parts: Option<Mutex<Vec<Vec<u8>>>>,
    /// How long it may wait, on the virtual clock.
    deadline_ms: u64,
    waited_ms: AtomicU64,
    is_cancelled: AtomicBool,
    /// Whether it waits in a service now.
    is_waiting: AtomicBool,
    bell: (Mutex<()>, Condvar),
}

impl Call {
    /// Tells the call to end: services that wait answer `cancelled` from now on.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
        let _held = lock(&self.bell.0);
        self.bell.1.notify_all();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::SeqCst)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::SeqCst)
    }

    /// An error if the call was told to end.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        if self.is_cancelled() {
            return Err(cancelled());
        }
        Ok(())
    }

    /// Waits on the virtual clock: it only moves on. A call that waits past its deadline is told to end, as by a host.
    pub(crate) fn wait_virtually(&self, ms: u64) -> Result<(), BackendError> {
        self.check()?;
        self.session.advance(Duration::from_millis(ms));
        let waited = self.waited_ms.fetch_add(ms, Ordering::SeqCst);
        if waited.saturating_add(ms) > self.deadline_ms {
            self.cancel();
        }
        self.check()
    }

    /// Waits for real until the call is told to end, at most `limit`.
    pub(crate) fn wait_for_cancel(&self, limit: Duration) -> Result<(), BackendError> {
        let end = Instant::now() + limit;
        self.is_waiting.store(true, Ordering::SeqCst);
        let mut held = lock(&self.bell.0);
        while !self.is_cancelled() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            held = self
                .bell
                .1
                .wait_timeout(held, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        drop(held);
        self.is_waiting.store(false, Ordering::SeqCst);
        self.check()
    }
}

fn cancelled() -> BackendError {
    BackendError::new(ErrorKind::Cancelled, "the call was told to end")
}

/// The host of one plugin. A plugin keeps it for the life of the process, so what changes from check to check is the session.
pub(crate) struct Host {
    calls: Mutex<HashMap<u64, Arc<Call>>>,
    next_call: AtomicU64,
    session: Mutex<Arc<Session>>,
}

impl Host {
    pub(crate) fn new(session: Arc<Session>) -> Arc<Self> {
        Arc::new(Self {
            calls: Mutex::new(HashMap::new()),
            next_call: AtomicU64::new(1),
            session: Mutex::new(session),
        })
    }

    /// What belongs to no call goes to this session from now on.
    pub(crate) fn begin(&self, session: Arc<Session>) {
        *lock(&self.session) = session;
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&lock(&self.session))
    }

    /// A new call.
    pub(crate) fn open_call(&self, streams: bool, deadline: Duration) -> Arc<Call> {
        let call = Arc::new(Call {
            id: self.next_call.fetch_add(1, Ordering::SeqCst),
            session: self.session(),
            parts: streams.then(Mutex::default),
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            waited_ms: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            bell: (Mutex::new(()), Condvar::new()),
        });
        lock(&self.calls).insert(call.id, Arc::clone(&call));
        call
    }

    /// The plugin has returned.
    pub(crate) fn close_call(&self, call: &Call) {
        lock(&self.calls).remove(&call.id);
        call.session.cache.release(call.id);
        call.session.streams.end_of(call.id);
    }

    fn call(&self, id: u64) -> Option<Arc<Call>> {
        lock(&self.calls).get(&id).cloned()
    }
}

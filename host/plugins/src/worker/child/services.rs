//! The host services as the plugin in a worker sees them: each request goes over the socket and blocks its thread alone.

use super::{Wire, lock};
use crate::worker::frame::{self, Kind, MAX_BODY};
use dstack_backend_abi::{HostServices, RResult, RSlice, RStr, RVec, Reply};
use dstack_backend_types::{BackendError, services as wire};
use std::{
    collections::{HashMap, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
};

type Answer = Result<Vec<u8>, Vec<u8>>;

/// Where requests of the plugin wait for their answers.
pub(super) struct Host {
    wire: Arc<Wire>,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, mpsc::Sender<Answer>>>,
    /// Calls that were told to end.
    cancelled: Mutex<HashSet<u64>>,
}

impl Host {
    pub(super) fn new(wire: Arc<Wire>) -> Arc<Self> {
        Arc::new(Self {
            wire,
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
            cancelled: Mutex::default(),
        })
    }

    /// What the plugin is given. It may call back as long as the process lives.
    pub(super) fn border(self: &Arc<Self>) -> HostServices {
        HostServices {
            context: Arc::into_raw(Arc::clone(self)).cast(),
            log,
            request,
        }
    }

    /// The host has answered a request.
    pub(super) fn answered(&self, id: u64, answer: Answer) {
        if let Some(waiting) = lock(&self.waiting).remove(&id) {
            // The thread that asked waits without end, so it is there.
            drop(waiting.send(answer));
        }
    }

    pub(super) fn cancel(&self, call: u64) {
        lock(&self.cancelled).insert(call);
    }

    /// A call has come back from the plugin.
    pub(super) fn over(&self, call: u64) {
        lock(&self.cancelled).remove(&call);
    }

    fn ask(&self, call: u64, service: u32, request: &[u8]) -> Answer {
        let error = |error: BackendError| Err(serde_json::to_vec(&error).unwrap_or_default());
        if service == wire::CANCELLED && lock(&self.cancelled).contains(&call) {
            let answer = wire::Cancelled { is_cancelled: true };
            return Ok(serde_json::to_vec(&answer).unwrap_or_default());
        }
        if request.len() > MAX_BODY / 2 {
            return error(BackendError::invalid(format!(
                "a request to the host of {} bytes, at most {}",
                request.len(),
                MAX_BODY / 2
            )));
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = mpsc::channel();
        lock(&self.waiting).insert(id, sender);
        let head = frame::numbered(call, service);
        self.wire.send(Kind::Ask, id, &[&head, request]);
        answer
            .recv()
            .unwrap_or_else(|_| error(BackendError::internal("the host did not answer")))
    }
}

/// # Safety
/// `context` must be the pointer of [`Host::border`].
unsafe fn host<'a>(context: *const ()) -> &'a Host {
    // SAFETY: the caller's promise; one count of the `Arc` is never given back.
    unsafe { &*context.cast::<Host>() }
}

extern "C" fn log(
    context: *const (),
    call_id: u64,
    level: u32,
    target: RStr<'_>,
    message: RStr<'_>,
    fields: RStr<'_>,
) {
    let logged = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: a plugin hands back the context it was given.
        let host = unsafe { host(context) };
        let (target, message, fields) = (target.as_str(), message.as_str(), fields.as_str());
        if target.len() + message.len() + fields.len() > MAX_BODY / 2 {
            return;
        }
        let head = frame::log_head(level, target, message);
        let parts = [
            &head,
            target.as_bytes(),
            message.as_bytes(),
            fields.as_bytes(),
        ];
        host.wire.send(Kind::Log, call_id, &parts);
    }));
    if let Err(payload) = logged {
        // Dropping the payload could panic again.
        std::mem::forget(payload);
    }
}

extern "C" fn request(
    context: *const (),
    call_id: u64,
    service: u32,
    request: RSlice<'_, u8>,
) -> Reply {
    let answered = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: a plugin hands back the context it was given.
        unsafe { host(context) }.ask(call_id, service, request.as_slice())
    }));
    match answered {
        Ok(Ok(bytes)) => RResult::ROk(RVec::from(bytes)),
        Ok(Err(error)) => RResult::RErr(RVec::from(error)),
        Err(payload) => {
            std::mem::forget(payload);
            let error = BackendError::internal(format!("host service {service} failed"));
            RResult::RErr(RVec::from(serde_json::to_vec(&error).unwrap_or_default()))
        }
    }
}

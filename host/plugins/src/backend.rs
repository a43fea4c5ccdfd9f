//! An opened backend and how a call goes through the pool.

use crate::{
    call::{CallState, NewCall},
    error::CallError,
    pool::{Pool, Work},
    slot::{Runs, Slot},
    worker::{
        Remote, Workers,
        link::{Failure, Link},
    },
};
use dstack_backend_loader::{self as loader, OpenedBackend};
use dstack_backend_types::{BackendError, ErrorKind, Manifest, methods};
use std::{
    fmt,
    ops::Deref,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, oneshot};

/// The largest request and reply.
const MAX_REQUEST_BYTES: usize = 8 << 20;
pub(crate) const MAX_REPLY_BYTES: usize = 64 << 20;

/// The bytes of a reply, wherever they came from.
pub struct ReplyBytes(Reply);

enum Reply {
    Plugin(loader::ReplyBytes),
    Worker(Vec<u8>),
}

impl Deref for ReplyBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Reply::Plugin(bytes) => bytes,
            Reply::Worker(bytes) => bytes,
        }
    }
}

impl fmt::Debug for ReplyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplyBytes({} bytes)", self.len())
    }
}

/// A backend opened with one configuration. Cheap to clone; closed when the last clone and the last running call are gone.
#[derive(Clone)]
pub struct Backend {
    pub(crate) slot: Arc<Slot>,
    pub(crate) opened: Arc<Opened>,
}

/// The handle and its scope.
pub(crate) struct Opened {
    place: Place,
    pub scope: u64,
    pub slot: Arc<Slot>,
}

enum Place {
    /// Always there until the drop.
    Here(Option<OpenedBackend>),
    Child(Remote),
}

impl Opened {
    pub(crate) fn here(backend: OpenedBackend, scope: u64, slot: Arc<Slot>) -> Self {
        Self {
            place: Place::Here(Some(backend)),
            scope,
            slot,
        }
    }

    pub(crate) fn in_child(config: Vec<u8>, scope: u64, slot: Arc<Slot>) -> Self {
        Self {
            place: Place::Child(Remote::new(config)),
            scope,
            slot,
        }
    }

    /// What its calls need, if they run in a worker.
    pub(crate) fn remote(&self) -> Option<(&Remote, &Workers)> {
        match (&self.place, &self.slot.runs) {
            (Place::Child(remote), Runs::Child(workers)) => Some((remote, workers)),
            _ => None,
        }
    }

    fn handle(&self) -> Option<&OpenedBackend> {
        match &self.place {
            Place::Here(backend) => backend.as_ref(),
            Place::Child(_) => None,
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.slot.host.closed(self.scope);
        let backend = match &mut self.place {
            Place::Child(remote) => return remote.close(),
            Place::Here(backend) => backend.take(),
        };
        // Closing is the plugin's code, which may take its time: never on a thread of the runtime.
        if tokio::runtime::Handle::try_current().is_ok() {
            let closing = std::thread::Builder::new()
                .name("be-close".to_owned())
                .spawn(move || drop(backend));
            if let Err(error) = closing {
                tracing::error!(backend = self.slot.manifest.name, %error, "no thread to close the backend on; it stays open");
            }
        }
    }
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Backend({})", self.slot.manifest.name)
    }
}

/// How a call ended, as far as the breaker cares.
pub(crate) enum CallRun {
    /// The plugin answered, well or badly.
    Answered,
    /// Its deadline passed.
    TimedOut,
    /// The plugin's process ended, which is noted once for all its calls.
    Died,
    /// It never reached the plugin.
    NotRun,
}

/// Where a call is.
enum At<'a> {
    Pool(&'a Pool),
    /// On its way to a worker.
    Way,
    Link(Arc<Link>),
}

/// Ends a call that nobody waits for any more, whether its deadline passed or its caller went away.
struct Waiting<'a> {
    call: Arc<CallState>,
    slot: Arc<Slot>,
    at: At<'a>,
    is_over: bool,
}

impl Waiting<'_> {
    fn give_up(&self) {
        let (call, slot) = (Arc::clone(&self.call), Arc::clone(&self.slot));
        call.cancel.cancel();
        let host = Arc::clone(&slot.host);
        match &self.at {
            At::Way => {
                call.finished.cancel();
                host.call_ended(&call);
            }
            At::Pool(pool) => {
                host.calls.end_if_queued(&call, pool);
                if call.finished.is_cancelled() {
                    return;
                }
                let pool = Pool::clone(pool);
                host.runtime.spawn(async move {
                    if !ends_within(&call, slot.limits.grace).await {
                        pool.lose(&call);
                    }
                });
            }
            At::Link(link) => {
                link.cancel(call.id);
                let link = Arc::clone(link);
                host.runtime.spawn(async move {
                    if !ends_within(&call, slot.limits.grace).await {
                        link.lose(call.id);
                    }
                });
            }
        }
    }
}

async fn ends_within(call: &CallState, grace: Duration) -> bool {
    tokio::time::timeout(grace, call.finished.cancelled())
        .await
        .is_ok()
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.give_up();
        }
    }
}

impl Backend {
    /// The plugin's manifest: name, version, capabilities.
    pub fn manifest(&self) -> &Manifest {
        &self.slot.manifest
    }

    /// Runs method number `method` with raw bytes. Prefer [`call`](Self::call).
    ///
    /// The call ends at `deadline`, waiting for a thread included; if the returned future is dropped, the call is told to end.
    ///
    /// # Errors
    /// [`CallError`] of the plugin, or of the host: `timeout`, `unavailable` (queue full, breaker open, threads lost).
    pub async fn call_raw(
        &self,
        method: u32,
        request: Vec<u8>,
        deadline: Duration,
        chunks: Option<mpsc::Sender<Vec<u8>>>,
    ) -> Result<ReplyBytes, CallError> {
        let name = methods::name_of(method).unwrap_or("call");
        let began = Instant::now();
        let (result, ended) = self.run(method, request, deadline, chunks).await;
        self.slot.health.stats.count(name, began.elapsed(), &result);
        self.slot.health.note(&ended);
        result.map_err(|error| self.error(name, error))
    }

    pub(crate) fn error(&self, method: &'static str, error: BackendError) -> CallError {
        CallError {
            backend: self.slot.manifest.name.clone(),
            method,
            error,
        }
    }

    async fn run(
        &self,
        method: u32,
        request: Vec<u8>,
        deadline: Duration,
        chunks: Option<mpsc::Sender<Vec<u8>>>,
    ) -> (Result<ReplyBytes, BackendError>, CallRun) {
        if request.len() > MAX_REQUEST_BYTES {
            let error = BackendError::invalid(format!(
                "the request has {} bytes, at most {MAX_REQUEST_BYTES}",
                request.len()
            ));
            return (Err(error), CallRun::NotRun);
        }
        if let Err(error) = self.slot.health.admit() {
            return (Err(error), CallRun::NotRun);
        }
        let call = self.slot.host.calls.begin(NewCall {
            plugin: &self.slot.manifest.name,
            scope: self.opened.scope,
            chunks,
        });
        let mut waiting = Waiting {
            call: Arc::clone(&call),
            slot: Arc::clone(&self.slot),
            at: At::Way,
            is_over: false,
        };
        let running = async {
            match &self.slot.runs {
                Runs::Here(here) => {
                    self.run_here(&here.pool, method, request, &mut waiting)
                        .await
                }
                Runs::Child(workers) => {
                    self.run_in_child(workers, method, &request, &mut waiting)
                        .await
                }
            }
        };
        match tokio::time::timeout(deadline, running).await {
            Ok(ended) => ended,
            Err(_) => {
                let message = format!("no answer within {} ms", deadline.as_millis());
                let is_cancelled = call.cancel.is_cancelled();
                let kind = if is_cancelled {
                    ErrorKind::Cancelled
                } else {
                    ErrorKind::Timeout
                };
                (Err(BackendError::new(kind, message)), CallRun::TimedOut)
            }
        }
    }

    async fn run_here<'a>(
        &self,
        pool: &'a Pool,
        method: u32,
        request: Vec<u8>,
        waiting: &mut Waiting<'a>,
    ) -> (Result<ReplyBytes, BackendError>, CallRun) {
        let host = &self.slot.host;
        let (answer, answered) = oneshot::channel();
        let (opened, host_of_call, running) = (
            Arc::clone(&self.opened),
            Arc::clone(host),
            Arc::clone(&waiting.call),
        );
        let work = Work {
            call: Arc::clone(&waiting.call),
            is_bulk: method == methods::GET_OFFERS,
            run: Box::new(move || {
                // Without one the answer's channel closes, which the caller sees.
                let Some(backend) = opened.handle() else {
                    return;
                };
                let reply = backend.call(method, running.id, &request);
                host_of_call.call_ended(&running);
                // Closing a backend is the plugin's code too: it runs here, not on the thread that waits for the answer.
                drop((opened, request));
                if answer.send(reply).is_err() {
                    tracing::debug!(
                        call = running.id,
                        "a call was answered after it was given up"
                    );
                }
            }),
        };
        if let Err(refused) = pool.submit(work) {
            host.calls.end(waiting.call.id);
            waiting.is_over = true;
            return (Err(self.slot.refused(&refused)), CallRun::NotRun);
        }
        waiting.at = At::Pool(pool);
        match answered.await {
            Ok(reply) => {
                waiting.is_over = true;
                (self.checked(reply), CallRun::Answered)
            }
            Err(_) => (
                Err(BackendError::internal(
                    "the call thread ended without an answer",
                )),
                CallRun::Answered,
            ),
        }
    }

    async fn run_in_child(
        &self,
        workers: &Workers,
        method: u32,
        request: &[u8],
        waiting: &mut Waiting<'_>,
    ) -> (Result<ReplyBytes, BackendError>, CallRun) {
        let mut permit = match workers.gate.enter(method == methods::GET_OFFERS).await {
            Ok(permit) => permit,
            Err(refused) => return (Err(self.slot.refused(&refused)), CallRun::NotRun),
        };
        let answered = loop {
            let (link, backend) = match self.opened.ready().await {
                Ok(ready) => ready,
                Err(error) => return (Err(error), CallRun::NotRun),
            };
            waiting.call.start();
            match link.call(backend, method, &waiting.call, request, permit) {
                Ok(answered) => {
                    waiting.at = At::Link(link);
                    break answered;
                }
                // The worker ended a moment ago, and nothing was sent: another one gets the call.
                Err(back) => permit = back,
            }
        };
        let answer = answered.await.unwrap_or(Err(Failure::NotSent));
        waiting.is_over = true;
        match answer {
            Ok(bytes) => (Ok(ReplyBytes(Reply::Worker(bytes))), CallRun::Answered),
            Err(Failure::Plugin(error)) => (Err(self.read_error(&error)), CallRun::Answered),
            Err(Failure::Died(death)) => {
                (Err(death.error(&self.slot.manifest.name)), CallRun::Died)
            }
            Err(Failure::NotSent) => (
                Err(BackendError::new(
                    ErrorKind::Transport,
                    "its process is gone",
                )),
                CallRun::Died,
            ),
        }
    }

    fn checked(
        &self,
        reply: Result<loader::ReplyBytes, loader::ReplyBytes>,
    ) -> Result<ReplyBytes, BackendError> {
        match reply {
            Ok(reply) if reply.len() > MAX_REPLY_BYTES => Err(BackendError::internal(format!(
                "the reply has {} bytes, at most {MAX_REPLY_BYTES}",
                reply.len()
            ))),
            Ok(reply) => Ok(ReplyBytes(Reply::Plugin(reply))),
            Err(error) => Err(self.read_error(&error)),
        }
    }

    fn read_error(&self, bytes: &[u8]) -> BackendError {
        let error = read_error(bytes);
        if error.kind == ErrorKind::Panic {
            tracing::error!(
                backend = self.slot.manifest.name,
                error = error.message,
                "the backend panicked"
            );
        }
        error
    }
}

/// The plugin's error; one that is no error JSON becomes `internal`.
pub(crate) fn read_error(bytes: &[u8]) -> BackendError {
    serde_json::from_slice(bytes).unwrap_or_else(|_| {
        let text: String = String::from_utf8_lossy(bytes).chars().take(500).collect();
        BackendError::internal(format!("an error that is not understood: {text}"))
    })
}

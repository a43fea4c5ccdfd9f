//! An opened backend and how a call goes through the pool.

use crate::{
    call::{CallState, NewCall},
    error::CallError,
    pool::Work,
    slot::Slot,
};
use dstack_backend_loader::{OpenedBackend, ReplyBytes};
use dstack_backend_types::{BackendError, ErrorKind, Manifest, methods};
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// The largest request and reply.
const MAX_REQUEST_BYTES: usize = 8 << 20;
const MAX_REPLY_BYTES: usize = 64 << 20;

/// A backend opened with one configuration. Cheap to clone; closed when the last clone and the last running call are gone.
#[derive(Clone)]
pub struct Backend {
    pub(crate) slot: Arc<Slot>,
    pub(crate) opened: Arc<Opened>,
}

/// The handle and its scope.
pub(crate) struct Opened {
    /// Always there until the drop.
    backend: Option<OpenedBackend>,
    pub scope: u64,
    pub slot: Arc<Slot>,
}

impl Opened {
    pub(crate) fn new(backend: OpenedBackend, scope: u64, slot: Arc<Slot>) -> Self {
        Self {
            backend: Some(backend),
            scope,
            slot,
        }
    }

    fn call(&self, method: u32, call_id: u64, request: &[u8]) -> Result<ReplyBytes, ReplyBytes> {
        let backend = self.backend.as_ref().expect("only the drop takes it");
        backend.call(method, call_id, request)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.slot.host.cache.forget(self.scope);
        let Some(backend) = self.backend.take() else {
            return;
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
    /// It never reached the plugin.
    NotRun,
}

/// Ends a call that nobody waits for any more, whether its deadline passed or its caller went away.
struct Waiting {
    call: Arc<CallState>,
    slot: Arc<Slot>,
    is_over: bool,
}

impl Waiting {
    fn give_up(&self) {
        self.call.cancel.cancel();
        self.slot
            .host
            .calls
            .end_if_queued(&self.call, &self.slot.pool);
        if self.call.finished.is_cancelled() {
            return;
        }
        let (call, slot) = (Arc::clone(&self.call), Arc::clone(&self.slot));
        self.slot.host.runtime.spawn(async move {
            if tokio::time::timeout(slot.limits.grace, call.finished.cancelled())
                .await
                .is_err()
            {
                slot.pool.lose(&call);
            }
        });
    }
}

impl Drop for Waiting {
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
        let outcome = self.run(method, request, deadline, chunks).await;
        let (result, ended) = outcome;
        self.slot.note(&ended);
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
        if let Err(error) = self.slot.admit() {
            return (Err(error), CallRun::NotRun);
        }
        let host = &self.slot.host;
        let call = host.calls.begin(NewCall {
            plugin: &self.slot.manifest.name,
            scope: self.opened.scope,
            chunks,
        });
        let (answer, answered) = oneshot::channel();
        let (opened, host_of_call, running) = (
            Arc::clone(&self.opened),
            Arc::clone(host),
            Arc::clone(&call),
        );
        let work = Work {
            call: Arc::clone(&call),
            is_bulk: method == methods::GET_OFFERS,
            run: Box::new(move || {
                let reply = opened.call(method, running.id, &request);
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
        let mut waiting = Waiting {
            call: Arc::clone(&call),
            slot: Arc::clone(&self.slot),
            is_over: false,
        };
        if let Err(refused) = self.slot.pool.submit(work) {
            host.calls.end(call.id);
            waiting.is_over = true;
            return (Err(self.slot.refused(&refused)), CallRun::NotRun);
        }
        match tokio::time::timeout(deadline, answered).await {
            Ok(Ok(reply)) => {
                waiting.is_over = true;
                (self.checked(reply), CallRun::Answered)
            }
            Ok(Err(_)) => (
                Err(BackendError::internal(
                    "the call thread ended without an answer",
                )),
                CallRun::Answered,
            ),
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

    fn checked(&self, reply: Result<ReplyBytes, ReplyBytes>) -> Result<ReplyBytes, BackendError> {
        match reply {
            Ok(reply) if reply.len() > MAX_REPLY_BYTES => Err(BackendError::internal(format!(
                "the reply has {} bytes, at most {MAX_REPLY_BYTES}",
                reply.len()
            ))),
            Ok(reply) => Ok(reply),
            Err(error) => {
                let error = read_error(&error);
                if error.kind == ErrorKind::Panic {
                    tracing::error!(
                        backend = self.slot.manifest.name,
                        error = error.message,
                        "the backend panicked"
                    );
                }
                Err(error)
            }
        }
    }
}

/// The plugin's error; one that is no error JSON becomes `internal`.
pub(crate) fn read_error(bytes: &[u8]) -> BackendError {
    serde_json::from_slice(bytes).unwrap_or_else(|_| {
        let text: String = String::from_utf8_lossy(bytes).chars().take(500).collect();
        BackendError::internal(format!("an error that is not understood: {text}"))
    })
}

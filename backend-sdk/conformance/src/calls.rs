//! Calls into the plugin, each on a thread of its own and on the tape.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use dstack_backend_loader::{OpenedBackend, Plugin};
use dstack_backend_types::methods::{self, DescribeConfigRequest};
use dstack_backend_types::{BackendError, ErrorKind, Method, capability};
use serde_json::Value;

use crate::host::{Call, Event, Host};

/// For real: how long a call may keep its thread. The virtual clock is what usual deadlines are measured with.
const REAL_LIMIT: Duration = Duration::from_secs(40);
const GRACE: Duration = Duration::from_secs(3);

/// The deadline that a host gives a method.
pub(crate) fn deadline(method: u32) -> Duration {
    let seconds = match method {
        methods::GET_OFFERS | methods::HEALTH | methods::UPDATE_PROVISIONING_DATA => 30,
        methods::IS_VOLUME_DETACHED => 30,
        methods::TERMINATE_INSTANCE | methods::TERMINATE_COMPUTE_GROUP => 60,
        _ => match capability::of_method(method) {
            Some(capability::CONFIGURATOR) => 30,
            Some(
                capability::GATEWAY
                | capability::GATEWAY_LOAD_BALANCER
                | capability::RESOURCE_LISTING,
            ) => 300,
            _ => 120,
        },
    };
    Duration::from_secs(seconds)
}

/// An opened backend, to be called from any thread.
#[derive(Clone)]
pub(crate) struct Caller {
    host: Arc<Host>,
    backend: Arc<OpenedBackend>,
}

/// A call under way.
pub(crate) struct Running {
    pub(crate) call: Arc<Call>,
    begun: Instant,
    method: &'static str,
    answer: mpsc::Receiver<Result<Vec<u8>, Vec<u8>>>,
}

/// What a call came to.
pub(crate) struct Ended {
    /// The reply's bytes; an error that is no `BackendError` is `Err(Err(bytes))`.
    pub(crate) outcome: Result<Vec<u8>, Result<BackendError, Vec<u8>>>,
    /// Parts handed over while it ran.
    pub(crate) parts: Vec<Vec<u8>>,
}

impl Ended {
    /// The reply or the error; an error that cannot be read says so.
    pub(crate) fn result(self) -> Result<Vec<u8>, BackendError> {
        self.outcome.map_err(|error| {
            error.unwrap_or_else(|bytes| {
                let text: String = String::from_utf8_lossy(&bytes).chars().take(200).collect();
                BackendError::internal(format!("an error that is not understood: {text:?}"))
            })
        })
    }
}

impl Caller {
    /// Opens a backend with these bytes of configuration.
    pub(crate) fn open(
        plugin: &Plugin,
        host: &Arc<Host>,
        config: &[u8],
    ) -> Result<Self, BackendError> {
        let session = host.session();
        session.note(Event::Begin { method: "open" });
        match plugin.open_backend(config) {
            Ok(backend) => Ok(Self {
                host: Arc::clone(host),
                backend: Arc::new(backend),
            }),
            Err(bytes) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                session.note(Event::Error {
                    method: "open",
                    text,
                });
                Err(serde_json::from_slice(&bytes).unwrap_or_else(|_| {
                    BackendError::internal("open failed with an error that is not understood")
                }))
            }
        }
    }

    /// Begins a call and comes back at once.
    pub(crate) fn start(&self, method: u32, request: Vec<u8>) -> Running {
        let name = methods::name_of(method).unwrap_or("unknown");
        let call = self
            .host
            .open_call(method == methods::GET_OFFERS, deadline(method));
        call.session.note(Event::Begin { method: name });
        let (sender, answer) = mpsc::channel();
        let (host, backend, state) = (
            Arc::clone(&self.host),
            Arc::clone(&self.backend),
            Arc::clone(&call),
        );
        thread::spawn(move || {
            let outcome = backend.call(method, state.id, &request);
            let outcome = match outcome {
                Ok(reply) => Ok(reply.to_vec()),
                Err(error) => Err(error.to_vec()),
            };
            drop(backend);
            host.close_call(&state);
            // Nobody listens any more if the check gave up.
            drop(sender.send(outcome));
        });
        Running {
            call,
            begun: Instant::now(),
            method: name,
            answer,
        }
    }

    /// Calls with raw bytes.
    pub(crate) fn raw(&self, method: u32, request: Vec<u8>) -> Ended {
        self.start(method, request).wait()
    }

    /// Calls a method and reads its reply.
    pub(crate) fn call<M: Method>(&self, request: &M) -> Result<M::Reply, BackendError> {
        let bytes =
            serde_json::to_vec(request).map_err(|e| BackendError::internal(e.to_string()))?;
        let reply = self.raw(M::NUMBER, bytes).result()?;
        serde_json::from_slice(&reply).map_err(|error| {
            BackendError::internal(format!(
                "a reply of {} that is not understood: {error}",
                M::NAME
            ))
        })
    }
}

impl Running {
    /// Waits for the end; a call that does not come back is given up.
    pub(crate) fn wait(self) -> Ended {
        let mut answer = self.answer.recv_timeout(REAL_LIMIT);
        if matches!(answer, Err(mpsc::RecvTimeoutError::Timeout)) {
            self.call.cancel();
            answer = self.answer.recv_timeout(GRACE);
        }
        let took = self.begun.elapsed();
        let outcome = answer.unwrap_or_else(|_| {
            let error = BackendError::new(
                ErrorKind::Timeout,
                format!(
                    "{} did not come back within {} s",
                    self.method,
                    took.as_secs()
                ),
            );
            Err(serde_json::to_vec(&error).unwrap_or_default())
        });
        let session = &self.call.session;
        let method = self.method;
        let parts = self
            .call
            .parts
            .as_ref()
            .map(|parts| std::mem::take(&mut *crate::host::lock(parts)))
            .unwrap_or_default();
        for bytes in parts.iter().chain(outcome.as_ref().ok()) {
            session.note(Event::Reply {
                method,
                text: String::from_utf8_lossy(bytes).into_owned(),
            });
        }
        if let Err(bytes) = &outcome {
            session.note(Event::Error {
                method,
                text: String::from_utf8_lossy(bytes).into_owned(),
            });
        }
        Ended {
            outcome: outcome.map_err(|bytes| serde_json::from_slice(&bytes).map_err(|_| bytes)),
            parts,
        }
    }
}

/// The plugin's schema, if it gives one.
pub(crate) fn describe(plugin: &Plugin, host: &Arc<Host>) -> Option<Value> {
    let caller = Caller::open(plugin, host, b"").ok()?;
    caller
        .call(&DescribeConfigRequest {})
        .ok()
        .map(|reply| reply.schema)
}

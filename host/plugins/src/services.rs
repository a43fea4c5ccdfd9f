//! The host services: what a plugin may ask for while it runs.

pub(crate) mod border;
mod cache;
pub(crate) mod machine;
mod unix_http;
mod unix_path;

use crate::{
    call::{CallState, Calls},
    config::PluginsConfig,
    pool::Pool,
};
use cache::Cache;
use dstack_backend_types::{BackendError, ErrorKind, services as wire};
use machine::Machine;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap, fmt, future::Future, pin::Pin, sync::Arc, time::Duration,
    time::SystemTime,
};
use tokio::runtime::Handle;

/// The only backend that may ask about this machine.
const MACHINE_BACKEND: &str = "local";
const MAX_RANDOM_BYTES: u32 = 65_536;

/// The answer of a service that is handed in.
pub type ServiceAnswer<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<u8>, BackendError>> + Send + 'a>>;

/// A service that needs another room. Its future is dropped when the call that asks is cancelled.
pub trait ExternalService: Send + Sync + fmt::Debug {
    /// Told to plugins by `describe`.
    fn version(&self) -> u32 {
        1
    }
    /// Answers one request of `backend`, in the service's own bytes.
    fn answer<'a>(&'a self, backend: &'a str, request: &'a [u8]) -> ServiceAnswer<'a>;
}

/// Services handed in, by their number: `http` 1, `catalog` 2, `ledger` 10, `ssh` 11. An absent one answers `unsupported`.
#[derive(Debug, Clone, Default)]
pub struct ExternalServices(BTreeMap<u32, Arc<dyn ExternalService>>);

impl ExternalServices {
    /// Adds a service.
    #[must_use]
    pub fn with(mut self, number: u32, service: Arc<dyn ExternalService>) -> Self {
        self.0.insert(number, service);
        self
    }
}

/// What all plugins share of the host.
pub(crate) struct Host {
    pub calls: Calls,
    pub cache: Cache,
    pub runtime: Handle,
    machine: Option<Machine>,
    external: ExternalServices,
    version: String,
}

impl Calls {
    /// Takes a call that no thread has begun out of the line.
    pub(crate) fn end_if_queued(&self, call: &CallState, pool: &Pool) {
        if call.drop_queued() {
            call.finished.cancel();
            self.end(call.id);
            pool.forget(call.id);
        }
    }
}

impl Host {
    pub(crate) fn new(config: &PluginsConfig) -> Self {
        Self {
            calls: Calls::default(),
            cache: Cache::default(),
            runtime: Handle::current(),
            machine: config.machine.clone().map(Machine::new),
            external: config.external.clone(),
            version: config.host_version.clone(),
        }
    }

    /// The host's own version.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// A number in 0..1 for spreading moments in time.
    #[allow(
        clippy::unused_self,
        reason = "chance belongs to the host, so that callers ask it"
    )]
    pub(crate) fn jitter(&self) -> f64 {
        rand::random()
    }

    /// The thread has left the plugin.
    pub(crate) fn call_ended(&self, call: &CallState) {
        self.calls.end(call.id);
        self.cache.release(call.scope, call.id);
    }

    /// Answers one request of a plugin, on the plugin's thread.
    pub(crate) fn answer(
        &self,
        plugin: &str,
        call_id: u64,
        service: u32,
        request: &[u8],
    ) -> Result<Vec<u8>, BackendError> {
        if let Some(answer) = self.at_once(plugin, service, request) {
            return answer;
        }
        self.runtime
            .block_on(self.answer_waiting(plugin, call_id, service, request))
    }

    /// The answer of a service that waits for nothing and needs no call.
    fn at_once(
        &self,
        plugin: &str,
        service: u32,
        request: &[u8],
    ) -> Option<Result<Vec<u8>, BackendError>> {
        match service {
            wire::DESCRIBE => Some(json(&self.describe(plugin))),
            wire::NOW => Some(json(&now())),
            wire::RANDOM => Some(random(request)),
            _ => None,
        }
    }

    /// Answers one request of a plugin, wherever it runs: as a task, or on the plugin's own thread.
    pub(crate) async fn answer_waiting(
        &self,
        plugin: &str,
        call_id: u64,
        service: u32,
        request: &[u8],
    ) -> Result<Vec<u8>, BackendError> {
        if let Some(answer) = self.at_once(plugin, service, request) {
            return answer;
        }
        // The rest may wait, and only a call has a deadline.
        let call = self.calls.find(call_id, plugin).ok_or_else(|| {
            BackendError::invalid(format!(
                "host service {service} needs the id of a running call, {call_id} is none"
            ))
        })?;
        if service == wire::CANCELLED {
            return json(&wire::Cancelled {
                is_cancelled: call.cancel.is_cancelled(),
            });
        }
        if service == wire::CACHE_PUT {
            let (head, value): (wire::CachePut, _) = wire::unframe(request).map_err(bad)?;
            self.cache.put(call.scope, &head, value);
            return json(&());
        }
        if service == wire::LEDGER {
            // Not raced with the cancel: what a cancelled call leaves behind must still be written down.
            return self.external(plugin, service, request).await;
        }
        tokio::select! {
            biased;
            () = call.cancel.cancelled() => Err(BackendError::new(ErrorKind::Cancelled, "the call was told to end")),
            answer = self.waiting(plugin, &call, service, request) => answer,
        }
    }

    async fn waiting(
        &self,
        plugin: &str,
        call: &CallState,
        service: u32,
        request: &[u8],
    ) -> Result<Vec<u8>, BackendError> {
        match service {
            wire::CACHE_GET => {
                let request: wire::CacheGet = read(request)?;
                let found = self.cache.get(call.scope, call.id, &request).await;
                let head = wire::CacheAnswer {
                    is_found: found.is_some(),
                };
                wire::frame(&head, found.as_deref().unwrap_or_default()).map_err(bad)
            }
            wire::SLEEP => {
                let request: wire::Sleep = read(request)?;
                tokio::time::sleep(Duration::from_millis(request.ms)).await;
                json(&())
            }
            wire::EMIT => {
                let Some(chunks) = &call.chunks else {
                    return Err(BackendError::unsupported("this method does not stream"));
                };
                let sent = chunks.send(request.to_vec()).await;
                sent.map_err(|_| {
                    BackendError::new(ErrorKind::Cancelled, "nobody waits for the answer any more")
                })?;
                json(&())
            }
            wire::MACHINE => {
                let machine = self.machine.as_ref().filter(|_| plugin == MACHINE_BACKEND);
                let machine = machine.ok_or_else(|| {
                    BackendError::unsupported("the service `machine` is for the local backend only")
                })?;
                machine.answer(read(request)?).await
            }
            _ => self.external(plugin, service, request).await,
        }
    }

    async fn external(
        &self,
        plugin: &str,
        service: u32,
        request: &[u8],
    ) -> Result<Vec<u8>, BackendError> {
        match self.external.0.get(&service) {
            Some(external) => external.answer(plugin, request).await,
            None => Err(BackendError::unsupported(format!(
                "this host has no service {service}"
            ))),
        }
    }

    fn describe(&self, plugin: &str) -> wire::Described {
        let mut numbers = vec![
            wire::DESCRIBE,
            wire::CACHE_GET,
            wire::CACHE_PUT,
            wire::NOW,
            wire::RANDOM,
            wire::SLEEP,
            wire::EMIT,
            wire::CANCELLED,
        ];
        if self.machine.is_some() && plugin == MACHINE_BACKEND {
            numbers.push(wire::MACHINE);
        }
        let own = numbers.into_iter().map(|number| (number.to_string(), 1));
        let external = self
            .external
            .0
            .iter()
            .map(|(number, service)| (number.to_string(), service.version()));
        wire::Described {
            host_version: self.version.clone(),
            log_level: border::log_level(),
            services: own.chain(external).collect(),
            agents: None,
        }
    }
}

fn now() -> wire::Now {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    wire::Now {
        unix_micros: i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
    }
}

fn random(request: &[u8]) -> Result<Vec<u8>, BackendError> {
    let request: wire::RandomBytes = read(request)?;
    if request.count > MAX_RANDOM_BYTES {
        return Err(BackendError::invalid(format!(
            "{} random bytes, at most {MAX_RANDOM_BYTES}",
            request.count
        )));
    }
    let mut bytes = vec![0; usize::try_from(request.count).unwrap_or_default()];
    rand::fill(bytes.as_mut_slice());
    Ok(bytes)
}

fn bad(error: serde_json::Error) -> BackendError {
    BackendError::invalid(format!(
        "a request to the host that is not understood: {error}"
    ))
}

fn read<T: DeserializeOwned>(request: &[u8]) -> Result<T, BackendError> {
    serde_json::from_slice(request).map_err(bad)
}

pub(crate) fn json<T: Serialize>(reply: &T) -> Result<Vec<u8>, BackendError> {
    serde_json::to_vec(reply).map_err(|e| BackendError::internal(e.to_string()))
}

//! The host services: what a plugin may ask for while it runs.

pub(crate) mod border;
mod cache;
mod catalog;
mod environment;
mod external;
mod http;
mod ledger;
pub(crate) mod machine;
mod ssh;
mod unix_http;
mod unix_path;
mod usage;

pub use environment::Variables;
pub use external::{Caller, ExternalService, ExternalServices, ServiceAnswer};
pub use http::{HttpConfig, HttpProxy, HttpTape};
pub use usage::ServiceUsage;

use crate::{
    call::{CallState, Calls},
    config::PluginsConfig,
    pool::Pool,
};
use cache::Cache;
use catalog::Catalogs;
use dstack_backend_types::{AgentUrls, BackendError, ErrorKind, Manifest, services as wire};
use http::Http;
use machine::Machine;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};
use tokio::runtime::Handle;

/// The only backend that may ask about this machine.
const MACHINE_BACKEND: &str = "local";
const MAX_RANDOM_BYTES: u32 = 65_536;

/// What all plugins share of the host.
pub(crate) struct Host {
    pub calls: Calls,
    pub cache: Cache,
    pub runtime: Handle,
    http: Http,
    pub(crate) catalogs: Arc<Catalogs>,
    machine: Option<Machine>,
    external: ExternalServices,
    variables: Option<Arc<dyn Variables>>,
    agents: Option<AgentUrls>,
    version: String,
    /// The plugins that may ask, by name.
    manifests: RwLock<HashMap<String, Arc<Manifest>>>,
    /// The projects that backends were opened for, by scope.
    projects: RwLock<HashMap<u64, String>>,
    usage: usage::Usage,
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
            http: Http::new(&config.http),
            catalogs: Catalogs::new(config),
            machine: config.machine.clone().map(Machine::new),
            external: config.external.clone(),
            variables: config.variables.clone(),
            agents: config.agents.clone(),
            version: config.host_version.clone(),
            manifests: RwLock::default(),
            projects: RwLock::default(),
            usage: usage::Usage::default(),
        }
    }

    /// A plugin may ask from now on; what it may ask for depends on its manifest.
    pub(crate) fn know(&self, manifest: &Manifest) {
        let mut all = self
            .manifests
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        all.insert(manifest.name.clone(), Arc::new(manifest.clone()));
    }

    fn manifest(&self, plugin: &str) -> Option<Arc<Manifest>> {
        let all = self
            .manifests
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        all.get(plugin).cloned()
    }

    /// A backend was opened for a project.
    pub(crate) fn belongs_to(&self, scope: u64, project: &str) {
        let mut all = self
            .projects
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        all.insert(scope, project.to_owned());
    }

    /// A backend was closed.
    pub(crate) fn closed(&self, scope: u64) {
        self.cache.forget(scope);
        let mut all = self
            .projects
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        all.remove(&scope);
    }

    fn caller(&self, call: &CallState) -> Caller {
        let projects = self.projects.read().unwrap_or_else(PoisonError::into_inner);
        Caller {
            backend: call.plugin.clone(),
            project: projects.get(&call.scope).cloned(),
            call: call.id,
        }
    }

    /// What a backend has asked of each service, by its number.
    pub(crate) fn usage(&self, backend: &str) -> BTreeMap<u32, ServiceUsage> {
        self.usage.of(backend)
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
        self.http.release(call.id);
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
        let answer = self.answer_call(plugin, call_id, service, request).await;
        self.usage.count(plugin, service, request, &answer);
        answer
    }

    async fn answer_call(
        &self,
        plugin: &str,
        call_id: u64,
        service: u32,
        request: &[u8],
    ) -> Result<Vec<u8>, BackendError> {
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
            let entry: wire::LedgerRequest = read(request)?;
            ledger::check(self.manifest(plugin).as_deref(), &entry)?;
            // Not raced with the cancel: what a cancelled call leaves behind must still be written down.
            return self
                .external
                .answer(&self.caller(&call), service, request)
                .await;
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
            wire::HTTP => self.http.answer(call, request).await,
            wire::CATALOG if !self.external.has(wire::CATALOG) => {
                json(&self.catalogs.query(read(request)?).await?)
            }
            wire::SSH => {
                let (command, stdin): (wire::SshRequest, _) =
                    wire::unframe(request).map_err(bad)?;
                ssh::check(&command, stdin)?;
                self.external
                    .answer(&self.caller(call), service, request)
                    .await
            }
            wire::ENVIRONMENT => {
                let manifest = self.manifest(plugin);
                json(&environment::answer(
                    self.variables.as_ref(),
                    manifest.as_deref(),
                    read(request)?,
                )?)
            }
            _ => {
                self.external
                    .answer(&self.caller(call), service, request)
                    .await
            }
        }
    }

    fn describe(&self, plugin: &str) -> wire::Described {
        let mut numbers = vec![
            wire::DESCRIBE,
            wire::HTTP,
            wire::CATALOG,
            wire::CACHE_GET,
            wire::CACHE_PUT,
            wire::NOW,
            wire::RANDOM,
            wire::SLEEP,
            wire::EMIT,
            wire::CANCELLED,
            wire::ENVIRONMENT,
        ];
        if self.machine.is_some() && plugin == MACHINE_BACKEND {
            numbers.push(wire::MACHINE);
        }
        let own = numbers.into_iter().map(|number| (number.to_string(), 1));
        let external = self
            .external
            .versions()
            .map(|(number, version)| (number.to_string(), version));
        wire::Described {
            host_version: self.version.clone(),
            log_level: border::log_level(),
            services: own.chain(external).collect(),
            agents: self.agents.clone(),
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

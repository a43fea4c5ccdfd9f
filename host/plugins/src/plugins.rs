//! All plugins of a host.

use crate::{
    backend::{Backend, Opened, read_error},
    config::PluginsConfig,
    discover::discover,
    error::CallError,
    methods::ConfiguratorHandle,
    services::Host,
    slot::Slot,
    status::PluginStatus,
};
use dstack_backend_types::{BackendError, ErrorKind, Manifest};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Opening does no input or output, so this is long; a plugin that takes longer hangs.
const OPEN_LIMIT: Duration = Duration::from_secs(30);

/// The plugins of this host. Cheap to clone.
#[derive(Clone)]
pub struct Plugins(Arc<Inner>);

struct Inner {
    usable: BTreeMap<String, Arc<Slot>>,
    rest: Vec<PluginStatus>,
    host: Arc<Host>,
    scopes: AtomicU64,
    /// Opened backends by project and type, each with the configuration that it was opened with.
    opened: Mutex<HashMap<(String, String), (Value, Backend)>>,
}

impl std::fmt::Debug for Plugins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.usable.keys()).finish()
    }
}

impl Plugins {
    /// Looks through the folders. Loads nothing: that happens at a plugin's first use. Never fails: what is wrong with a file
    /// stands in [`list`](Self::list).
    ///
    /// # Panics
    /// Outside of a tokio runtime, which the host services and deadlines need.
    pub fn load(config: PluginsConfig) -> Self {
        let found = discover(&config);
        let host = Arc::new(Host::new(&config));
        let usable = found
            .usable
            .into_iter()
            .map(|(name, (file, isolation))| {
                let slot = Slot::new(file, isolation, config.limits.clone(), Arc::clone(&host));
                (name, Arc::new(slot))
            })
            .collect();
        Self(Arc::new(Inner {
            usable,
            rest: found.rest,
            host,
            scopes: AtomicU64::new(0),
            opened: Mutex::default(),
        }))
    }

    /// Every file of the folders, usable ones first, both by name.
    pub fn list(&self) -> Vec<PluginStatus> {
        let mut rest = self.0.rest.clone();
        rest.sort_by(|a, b| (&a.name, &a.path).cmp(&(&b.name, &b.path)));
        self.0
            .usable
            .values()
            .map(|slot| slot.status())
            .chain(rest)
            .collect()
    }

    /// The manifest of a usable backend. Loads nothing.
    pub fn manifest(&self, name: &str) -> Option<&Manifest> {
        self.0.usable.get(name).map(|slot| &slot.manifest)
    }

    /// The manifests of all usable backends, by name. Loads nothing.
    pub fn manifests(&self) -> impl Iterator<Item = &Manifest> {
        self.0.usable.values().map(|slot| &slot.manifest)
    }

    /// Opens a backend with a configuration (credentials included).
    ///
    /// # Errors
    /// `not_found` if there is no such plugin, with the reason if there is a file that was refused; `unavailable` if it does not
    /// load; `invalid` or `auth` if it refuses the configuration.
    pub async fn open(&self, name: &str, config: &Value) -> Result<Backend, CallError> {
        self.open_bytes(name, config.to_string().into_bytes()).await
    }

    /// A backend's way with configurations.
    ///
    /// # Errors
    /// As [`open`](Self::open), but for the configuration.
    pub async fn configurator(&self, name: &str) -> Result<ConfiguratorHandle, CallError> {
        self.open_bytes(name, Vec::new())
            .await
            .map(ConfiguratorHandle)
    }

    /// The backend of a project: opened at first use, and anew when its configuration has changed.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn backend(
        &self,
        project: &str,
        name: &str,
        config: &Value,
    ) -> Result<Backend, CallError> {
        let key = (project.to_owned(), name.to_owned());
        if let Some((known, backend)) = self.opened().get(&key)
            && known == config
        {
            return Ok(backend.clone());
        }
        let backend = self.open(name, config).await?;
        // The old one, if any, is dropped after the lock: closing it is the plugin's code.
        let old = self.opened().insert(key, (config.clone(), backend.clone()));
        drop(old);
        Ok(backend)
    }

    /// Closes the opened backends of a project, or only one of them. Calls that are running end first.
    pub fn forget(&self, project: &str, name: Option<&str>) {
        let mut dropped = Vec::new();
        self.opened().retain(|(of, backend), value| {
            let keep = of != project || name.is_some_and(|name| name != backend);
            if !keep {
                dropped.push(value.1.clone());
            }
            keep
        });
    }

    /// Tells every running call to end and closes all opened backends.
    pub fn shut_down(&self) {
        self.0.host.calls.cancel_all();
        let all = std::mem::take(&mut *self.opened());
        drop(all);
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<(String, String), (Value, Backend)>> {
        self.0.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open_bytes(&self, name: &str, config: Vec<u8>) -> Result<Backend, CallError> {
        let fail = |error| CallError {
            backend: name.to_owned(),
            method: "open",
            error,
        };
        let slot = Arc::clone(
            self.0
                .usable
                .get(name)
                .ok_or_else(|| fail(self.not_found(name)))?,
        );
        let scope = self.0.scopes.fetch_add(1, Ordering::Relaxed) + 1;
        // Loading and opening run the plugin's code, which may take its time: not on a thread of the runtime.
        let opening = tokio::task::spawn_blocking(move || {
            let backend = slot
                .plugin()?
                .open_backend(&config)
                .map_err(|e| read_error(&e))?;
            let opened = Arc::new(Opened::new(backend, scope, Arc::clone(&slot)));
            Ok(Backend { slot, opened })
        });
        let opened = match tokio::time::timeout(OPEN_LIMIT, opening).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => Err(BackendError::internal(format!(
                "opening ended early: {error}"
            ))),
            Err(_) => Err(BackendError::new(
                ErrorKind::Timeout,
                format!("the plugin did not open within {} s", OPEN_LIMIT.as_secs()),
            )),
        };
        opened.map_err(fail)
    }

    fn not_found(&self, name: &str) -> BackendError {
        let refused = self.0.rest.iter().find(|status| status.name == name);
        let message = match refused {
            Some(status) => format!(
                "the plugin {} is not used: {}",
                status.path.display(),
                status.error.as_deref().unwrap_or("refused")
            ),
            None => "no such plugin; see `dstack backend list`".to_owned(),
        };
        BackendError::new(ErrorKind::NotFound, message)
    }
}

//! All plugins of a host.

use crate::{
    backend::Backend,
    config::{Isolation, PluginsConfig},
    discover::{Found, discover},
    error::CallError,
    methods::ConfiguratorHandle,
    registry::{Registry, Reloaded},
    services::{Host, ServiceUsage},
    slot::{Runs, Slot},
    status::PluginStatus,
};
use dstack_backend_catalog::Catalog;
use dstack_backend_loader::{InspectError, inspect};
use dstack_backend_types::{BackendError, ErrorKind, Manifest};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
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
    config: PluginsConfig,
    registry: RwLock<Registry>,
    /// One look through the folders at a time.
    reloading: tokio::sync::Mutex<()>,
    /// Grows when a look has changed something.
    changes: tokio::sync::watch::Sender<u64>,
    host: Arc<Host>,
    scopes: AtomicU64,
    /// Opened backends by project and type, each with the configuration that it was opened with.
    opened: Mutex<HashMap<(String, String), (Value, Backend)>>,
}

impl std::fmt::Debug for Plugins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.registry().usable.keys())
            .finish()
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
        Self::of(config, found)
    }

    /// One file, wherever it lies and whoever owns it: for tools and tests. `config`'s folders are not looked at.
    ///
    /// # Errors
    /// Why the file is no plugin; nothing of it has run.
    ///
    /// # Panics
    /// As [`load`](Self::load).
    pub fn of_file(
        mut config: PluginsConfig,
        file: &Path,
        isolation: Isolation,
    ) -> Result<Self, InspectError> {
        config.folders = Vec::new();
        let inspected = inspect(file)?;
        let mut found = Found::default();
        let name = inspected.manifest.name.clone();
        found.usable.insert(name, (inspected, isolation));
        Ok(Self::of(config, found))
    }

    fn of(config: PluginsConfig, found: Found) -> Self {
        let host = Arc::new(Host::new(&config));
        let mut registry = Registry::default();
        registry.take(found, &config, &host);
        Self(Arc::new(Inner {
            config,
            registry: RwLock::new(registry),
            reloading: tokio::sync::Mutex::default(),
            changes: tokio::sync::watch::Sender::default(),
            host,
            scopes: AtomicU64::new(0),
            opened: Mutex::default(),
        }))
    }

    fn registry(&self) -> RwLockReadGuard<'_, Registry> {
        self.0
            .registry
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks through the folders again: new files are used, files that were replaced too (in a child process at once, while
    /// calls that run end in the old one; in this process after a restart), and files that are gone are not.
    pub async fn reload(&self) -> Reloaded {
        let _one = self.0.reloading.lock().await;
        let config = self.0.config.clone();
        let found = tokio::task::spawn_blocking(move || discover(&config)).await;
        let Ok(found) = found else {
            tracing::error!(
                "looking through the plugin folders failed; everything stays as it was"
            );
            return Reloaded::default();
        };
        let (done, unused) = {
            let mut registry = self
                .0
                .registry
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            registry.take(found, &self.0.config, &self.0.host)
        };
        // Backends that are open in a slot of before are opened anew at their next call.
        let mut closed = Vec::new();
        {
            let registry = self.registry();
            self.opened().retain(|(_, name), (_, backend)| {
                let current = registry.usable.get(name);
                let keep = current.is_some_and(|slot| Arc::ptr_eq(slot, &backend.slot));
                if !keep {
                    closed.push(backend.clone());
                }
                keep
            });
        }
        drop((closed, unused));
        if done != Reloaded::default() {
            tracing::info!(added = ?done.added, replaced = ?done.replaced, after_restart = ?done.after_restart, removed = ?done.removed, "backend plugins have changed");
            self.0.changes.send_modify(|count| *count += 1);
        }
        done
    }

    /// Tells when a look through the folders has changed something, from now on.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Whether a file that is refused was changed a moment ago, so that another look is worth while.
    pub(crate) fn is_settling(&self) -> bool {
        self.registry().is_settling
    }

    /// The folders, whether they exist or not.
    pub(crate) fn folders(&self) -> &[PathBuf] {
        &self.0.config.folders
    }

    /// Every file of the folders, usable ones first, both by name.
    pub fn list(&self) -> Vec<PluginStatus> {
        self.registry().list()
    }

    /// The manifest of a usable backend. Loads nothing.
    pub fn manifest(&self, name: &str) -> Option<Arc<Manifest>> {
        let registry = self.registry();
        registry
            .usable
            .get(name)
            .map(|slot| Arc::clone(&slot.manifest))
    }

    /// The manifests of all usable backends, by name. Loads nothing.
    pub fn manifests(&self) -> Vec<Arc<Manifest>> {
        let registry = self.registry();
        registry
            .usable
            .values()
            .map(|slot| Arc::clone(&slot.manifest))
            .collect()
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

    /// The backend of a project: opened at first use, and anew when its configuration or its file has changed.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn backend(
        &self,
        project: &str,
        name: &str,
        config: &Value,
    ) -> Result<Backend, CallError> {
        let slot = self.slot(name)?;
        let key = (project.to_owned(), name.to_owned());
        if let Some((known, backend)) = self.opened().get(&key)
            && known == config
            && Arc::ptr_eq(&backend.slot, &slot)
        {
            return Ok(backend.clone());
        }
        let backend = self.open(name, config).await?;
        self.0.host.belongs_to(backend.opened.scope, project);
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

    /// Tells every running call to end, closes all opened backends, and ends all child processes.
    pub async fn shut_down(&self) {
        self.0.host.catalogs.stop();
        self.0.host.calls.cancel_all();
        let all = std::mem::take(&mut *self.opened());
        drop(all);
        let slots: Vec<Arc<Slot>> = self.registry().usable.values().cloned().collect();
        let mut stopping = tokio::task::JoinSet::new();
        for slot in slots {
            stopping.spawn(async move {
                if let Runs::Child(workers) = &slot.runs {
                    workers.stop().await;
                }
            });
        }
        stopping.join_all().await;
    }

    /// The catalog that backends are answered from. Its fetches wait, and must not be on a thread of the runtime.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.0.host.catalogs.catalog)
    }

    /// What a backend has asked of each host service, by the service's number.
    pub fn usage(&self, name: &str) -> BTreeMap<u32, ServiceUsage> {
        self.0.host.usage(name)
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<(String, String), (Value, Backend)>> {
        self.0.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, name: &str) -> Result<Arc<Slot>, CallError> {
        let registry = self.registry();
        let slot = registry.usable.get(name).map(Arc::clone);
        slot.ok_or_else(|| {
            failed(
                name,
                BackendError::new(ErrorKind::NotFound, registry.why_not(name)),
            )
        })
    }

    async fn open_bytes(&self, name: &str, config: Vec<u8>) -> Result<Backend, CallError> {
        let slot = self.slot(name)?;
        let scope = self.0.scopes.fetch_add(1, Ordering::Relaxed) + 1;
        let opened = match tokio::time::timeout(OPEN_LIMIT, slot.open(config, scope)).await {
            Ok(opened) => opened,
            Err(_) => Err(BackendError::new(
                ErrorKind::Timeout,
                format!("the plugin did not open within {} s", OPEN_LIMIT.as_secs()),
            )),
        };
        opened.map_err(|error| failed(name, error))
    }
}

fn failed(name: &str, error: BackendError) -> CallError {
    CallError {
        backend: name.to_owned(),
        method: "open",
        error,
    }
}

/// What was counted of each plugin, by name.
impl Plugins {
    /// What was counted of every usable plugin since the host began.
    pub fn stats(&self) -> BTreeMap<String, crate::stats::PluginStats> {
        let registry = self.registry();
        let all = registry.usable.iter();
        all.map(|(name, slot)| (name.clone(), slot.stats()))
            .collect()
    }
}

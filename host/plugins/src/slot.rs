//! A plugin that may be used: loaded at first use, in this process or in a child, with its health.

use crate::{
    backend::{Backend, Opened, read_error},
    config::{Isolation, Limits, PluginsConfig},
    events::{Events, What},
    folder::{Stamp, stamp},
    health::Health,
    pool::{Pool, Refused},
    services::Host,
    stats::{PluginStats, Stats},
    status::{PluginState, PluginStatus},
    worker::Workers,
};
use dstack_backend_loader::{Inspected, Plugin};
use dstack_backend_types::{BackendError, ErrorKind, Manifest};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// One usable plugin file.
pub(crate) struct Slot {
    pub manifest: Arc<Manifest>,
    pub path: PathBuf,
    pub sha256: String,
    pub stamp: Option<Stamp>,
    pub limits: Limits,
    pub host: Arc<Host>,
    pub health: Arc<Health>,
    pub runs: Runs,
    /// A newer file that can only be used after a restart.
    newer: Mutex<Option<String>>,
}

/// Where its code runs.
pub(crate) enum Runs {
    /// In this process.
    Here(Box<Here>),
    /// In a child.
    Child(Box<Workers>),
}

/// A plugin in this process.
pub(crate) struct Here {
    pub pool: Pool,
    /// Taken at the first use. The descriptor in it is what was hashed.
    inspected: Mutex<Option<Inspected>>,
    loaded: OnceLock<Result<Plugin, String>>,
}

impl Slot {
    pub(crate) fn new(
        inspected: Inspected,
        isolation: Isolation,
        config: &PluginsConfig,
        host: &Arc<Host>,
        stats: Arc<Stats>,
    ) -> Self {
        let manifest = Arc::new(inspected.manifest.clone());
        host.know(&manifest);
        let limits = config.limits.clone();
        let events = Events(config.events.clone());
        Self {
            health: Arc::new(Health::new(&manifest.name, host, stats, events)),
            path: inspected.path.clone(),
            sha256: inspected.sha256.clone(),
            stamp: stamp(&inspected),
            host: Arc::clone(host),
            runs: match isolation {
                Isolation::InProcess => Runs::Here(Box::new(Here {
                    pool: Pool::new(&manifest.name, limits.clone()),
                    inspected: Mutex::new(Some(inspected)),
                    loaded: OnceLock::new(),
                })),
                Isolation::Process => {
                    let workers = Workers::new(inspected, config.worker.clone(), &limits);
                    Runs::Child(Box::new(workers))
                }
            },
            manifest,
            limits,
            newer: Mutex::default(),
        }
    }

    pub(crate) fn isolation(&self) -> Isolation {
        match self.runs {
            Runs::Here(_) => Isolation::InProcess,
            Runs::Child(_) => Isolation::Process,
        }
    }

    /// Whether its code is in this process, where it stays.
    pub(crate) fn is_resident(&self) -> bool {
        match &self.runs {
            Runs::Here(here) => matches!(here.loaded.get(), Some(Ok(_))),
            Runs::Child(_) => false,
        }
    }

    /// Remembers a newer file, or that there is none; whether that is news.
    pub(crate) fn set_newer(&self, newer: Option<String>) -> bool {
        let mut known = self.newer.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = *known != newer;
        *known = newer;
        is_news
    }

    /// Opens a backend with a configuration. In this process it blocks, and the plugin's code runs on this thread.
    pub(crate) async fn open(
        self: Arc<Self>,
        config: Vec<u8>,
        scope: u64,
    ) -> Result<Backend, BackendError> {
        if let Runs::Child(_) = self.runs {
            let opened = Arc::new(Opened::in_child(config, scope, Arc::clone(&self)));
            self.health.admit()?;
            opened.ready().await?;
            return Ok(Backend { slot: self, opened });
        }
        // Loading and opening run the plugin's code, which may take its time: not on a thread of the runtime.
        let opening = tokio::task::spawn_blocking(move || {
            let backend = self
                .plugin()?
                .open_backend(&config)
                .map_err(|e| read_error(&e))?;
            let opened = Arc::new(Opened::here(backend, scope, Arc::clone(&self)));
            Ok(Backend { slot: self, opened })
        });
        opening.await.unwrap_or_else(|error| {
            Err(BackendError::internal(format!(
                "opening ended early: {error}"
            )))
        })
    }

    /// Loads the plugin into this process, once. Blocks: its constructors and `init` run.
    fn plugin(&self) -> Result<&Plugin, BackendError> {
        let Runs::Here(here) = &self.runs else {
            return Err(BackendError::internal("the plugin runs in a child process"));
        };
        here.loaded
            .get_or_init(|| {
                let taken = here
                    .inspected
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                let Some(inspected) = taken else {
                    return Err("was already tried".to_owned());
                };
                let services = Host::border(&self.host, &self.manifest.name);
                let opened = inspected.open(services).map_err(|e| e.to_string());
                match &opened {
                    Ok(_) => {
                        tracing::info!(backend = self.manifest.name, version = self.manifest.version, path = %self.path.display(), "backend loaded");
                        let version = self.manifest.version.clone();
                        self.health.tell(What::Loaded { version });
                    }
                    Err(reason) => {
                        tracing::error!(backend = self.manifest.name, path = %self.path.display(), reason, "backend not loaded");
                        let reason = reason.clone();
                        self.health.tell(What::Failed { reason });
                    }
                }
                opened
            })
            .as_ref()
            .map_err(|reason| BackendError::new(ErrorKind::Unavailable, format!("the plugin could not be loaded: {reason}")))
    }

    /// Why work was refused, for the caller.
    pub(crate) fn refused(&self, refused: &Refused) -> BackendError {
        let message = match refused {
            Refused::QueueFull => format!("{} calls are waiting already", self.limits.queue),
            Refused::ThreadsLost(count) => format!(
                "{count} calls never came back, so it is switched off; restart the server, or run it with `isolation: process`"
            ),
            Refused::NoThread => "the system gives no thread".to_owned(),
        };
        BackendError::new(ErrorKind::Unavailable, message)
    }

    fn state(&self) -> (PluginState, Option<String>) {
        let (is_loaded, failure, lost) = match &self.runs {
            Runs::Here(here) => {
                if here.pool.is_off() {
                    let refused = Refused::ThreadsLost(here.pool.lost());
                    return (
                        PluginState::Unavailable,
                        Some(self.refused(&refused).message),
                    );
                }
                let loaded = here.loaded.get();
                let failure = loaded.and_then(|loaded| loaded.as_ref().err().cloned());
                (loaded.is_some(), failure, here.pool.lost())
            }
            Runs::Child(workers) => {
                let (is_loaded, failure) = workers.state();
                (is_loaded, failure, 0)
            }
        };
        if let Some(reason) = failure {
            return (PluginState::Failed, Some(reason));
        }
        if self.health.is_open() {
            return (PluginState::Unhealthy, Some(self.health.trouble()));
        }
        let newer = self
            .newer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let lost = (lost > 0).then(|| format!("{lost} calls never came back"));
        let state = if is_loaded {
            PluginState::Loaded
        } else {
            PluginState::Available
        };
        (state, lost.or(newer))
    }

    pub(crate) fn stats(&self) -> PluginStats {
        let mut stats = self.health.stats.lock().clone();
        match &self.runs {
            Runs::Here(here) => {
                (stats.running, stats.waiting, stats.lost_threads) = here.pool.load();
            }
            Runs::Child(workers) => {
                stats.running = workers.gate.running();
                stats.waiting = workers.gate.waiting();
            }
        }
        stats
    }

    pub(crate) fn status(&self) -> PluginStatus {
        let (state, error) = self.state();
        PluginStatus {
            name: self.manifest.name.clone(),
            version: Some(self.manifest.version.clone()),
            sdk: Some(self.manifest.sdk.clone()),
            capabilities: self.manifest.capabilities.clone(),
            hash: Some(self.sha256.clone()),
            isolation: Some(self.isolation()),
            state,
            error,
            path: self.path.clone(),
            stats: Some(self.stats()),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Runs::Child(workers) = &self.runs {
            workers.retire();
        }
    }
}

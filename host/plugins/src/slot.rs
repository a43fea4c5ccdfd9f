//! A plugin that may be used: loaded at first use, with its threads and its breaker.

use crate::{
    backend::CallRun,
    breaker::Breaker,
    config::{Isolation, Limits},
    pool::{Pool, Refused},
    services::Host,
    status::{PluginState, PluginStatus},
};
use dstack_backend_loader::{Inspected, Plugin};
use dstack_backend_types::{BackendError, ErrorKind, Manifest};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Instant,
};

/// One usable plugin file.
pub(crate) struct Slot {
    pub manifest: Manifest,
    pub path: PathBuf,
    pub sha256: String,
    pub isolation: Isolation,
    pub pool: Pool,
    pub limits: Limits,
    pub host: Arc<Host>,
    /// Taken at the first use. The descriptor in it is what was hashed.
    inspected: Mutex<Option<Inspected>>,
    loaded: OnceLock<Result<Plugin, String>>,
    breaker: Mutex<Breaker>,
}

impl Slot {
    pub(crate) fn new(
        inspected: Inspected,
        isolation: Isolation,
        limits: Limits,
        host: Arc<Host>,
    ) -> Self {
        Self {
            pool: Pool::new(&inspected.manifest.name, limits.clone()),
            manifest: inspected.manifest.clone(),
            path: inspected.path.clone(),
            sha256: inspected.sha256.clone(),
            isolation,
            limits,
            host,
            inspected: Mutex::new(Some(inspected)),
            loaded: OnceLock::new(),
            breaker: Mutex::default(),
        }
    }

    /// Loads the plugin, once. Blocks: its constructors and `init` run.
    pub(crate) fn plugin(&self) -> Result<&Plugin, BackendError> {
        self.loaded
            .get_or_init(|| {
                let taken = self
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
                    Ok(_) => tracing::info!(backend = self.manifest.name, version = self.manifest.version, path = %self.path.display(), "backend loaded"),
                    Err(reason) => tracing::error!(backend = self.manifest.name, path = %self.path.display(), reason, "backend not loaded"),
                }
                opened
            })
            .as_ref()
            .map_err(|reason| BackendError::new(ErrorKind::Unavailable, format!("the plugin could not be loaded: {reason}")))
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call pass, or says why not.
    pub(crate) fn admit(&self) -> Result<(), BackendError> {
        let Some(left) = self.breaker().closed_for(Instant::now()) else {
            return Ok(());
        };
        let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        Err(BackendError::new(
            ErrorKind::Unavailable,
            format!(
                "timed out several times in a row; tried again in {} s",
                ms.div_ceil(1000)
            ),
        )
        .retry_after_ms(ms))
    }

    /// Notes how a call ended, for the breaker.
    pub(crate) fn note(&self, ended: &CallRun) {
        match ended {
            CallRun::Answered => self.breaker().answered(),
            CallRun::TimedOut => {
                let jitter = self.host.jitter();
                self.breaker().timed_out(Instant::now(), jitter);
            }
            CallRun::NotRun => {}
        }
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

    pub(crate) fn status(&self) -> PluginStatus {
        let load_error = self
            .loaded
            .get()
            .and_then(|loaded| loaded.as_ref().err().cloned());
        let (state, error) = if let Some(reason) = load_error {
            (PluginState::Failed, Some(reason))
        } else if self.pool.is_off() {
            (
                PluginState::Unavailable,
                Some(
                    self.refused(&Refused::ThreadsLost(self.pool.lost()))
                        .message,
                ),
            )
        } else if self.breaker().is_open() {
            (
                PluginState::Unhealthy,
                Some("timed out several times in a row".to_owned()),
            )
        } else if self.loaded.get().is_some() {
            let lost = self.pool.lost();
            (
                PluginState::Loaded,
                (lost > 0).then(|| format!("{lost} calls never came back")),
            )
        } else {
            (PluginState::Available, None)
        };
        PluginStatus {
            name: self.manifest.name.clone(),
            version: Some(self.manifest.version.clone()),
            sdk: Some(self.manifest.sdk.clone()),
            capabilities: self.manifest.capabilities.clone(),
            hash: Some(self.sha256.clone()),
            isolation: Some(self.isolation),
            state,
            error,
            path: self.path.clone(),
        }
    }
}

//! The worker of a plugin: started when it is needed, replaced when it ends, swapped when the file is replaced.

use super::{
    WorkerLimits, WorkerProgram,
    gate::Gate,
    link::{Failure, Link, Start},
};
use crate::{
    backend::{Opened, read_error},
    config::Limits,
    folder::{Stamp, stamp},
    health::Health,
    slot::Slot,
};
use dstack_backend_loader::Inspected;
use dstack_backend_types::{BackendError, ErrorKind};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

const MINUTE: Duration = Duration::from_secs(60);

/// The worker of one plugin file.
pub(crate) struct Workers {
    program: WorkerProgram,
    limits: WorkerLimits,
    file: Inspected,
    /// The file's size and times when it was inspected: a file that is written over would end the worker, or be another.
    stamp: Option<Stamp>,
    pub(crate) gate: Gate,
    current: Mutex<Option<Arc<Link>>>,
    starting: tokio::sync::Mutex<VecDeque<Instant>>,
    /// Why the last start failed, until one succeeds.
    failure: Mutex<Option<String>>,
}

impl Workers {
    pub(crate) fn new(file: Inspected, program: WorkerProgram, limits: &Limits) -> Self {
        Self {
            stamp: stamp(&file),
            gate: Gate::new(limits),
            program,
            limits: limits.worker.clone(),
            file,
            current: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            failure: Mutex::default(),
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn usable(&self) -> Option<Arc<Link>> {
        self.current()
            .as_ref()
            .filter(|link| link.is_usable())
            .cloned()
    }

    /// Whether a worker has ever run, and whether the last start failed.
    pub(crate) fn state(&self) -> (bool, Option<String>) {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        (self.current().is_some(), failure.clone())
    }

    /// The worker that runs, or a new one.
    async fn link(&self, health: &Arc<Health>) -> Result<Arc<Link>, BackendError> {
        if let Some(link) = self.usable() {
            return Ok(link);
        }
        let mut starts = self.starting.lock().await;
        if let Some(link) = self.usable() {
            return Ok(link);
        }
        // Another caller's start may just have failed and opened the breaker.
        health.admit()?;
        let now = Instant::now();
        starts.retain(|start| now.saturating_duration_since(*start) < MINUTE);
        if starts.len() >= self.limits.starts_per_minute {
            let oldest = starts.front().copied().unwrap_or(now);
            let left = MINUTE.saturating_sub(now.saturating_duration_since(oldest));
            return Err(BackendError::new(
                ErrorKind::Unavailable,
                format!(
                    "its process ended {} times within a minute; tried again in {} s",
                    starts.len(),
                    left.as_secs() + 1
                ),
            )
            .retry_after_ms(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)));
        }
        let is_first = self.current().is_none();
        let started = self.start(health).await;
        starts.push_back(now);
        let failure = started.as_ref().err().cloned();
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        match started {
            Ok(link) => {
                health.started(is_first, &self.file.manifest.version);
                let old = self.current().replace(Arc::clone(&link));
                if let Some(old) = old {
                    old.retire();
                }
                Ok(link)
            }
            Err(reason) => {
                health.failed_to_start(&reason);
                Err(BackendError::new(
                    ErrorKind::Unavailable,
                    format!("the plugin could not be loaded: {reason}"),
                ))
            }
        }
    }

    async fn start(&self, health: &Arc<Health>) -> Result<Arc<Link>, String> {
        if stamp(&self.file) != self.stamp {
            return Err(format!(
                "{} was written over in place, so it is no longer what was checked; copy a file beside it and rename it over this one, then run `dstack backend reload`",
                self.file.path.display()
            ));
        }
        Link::start(Start {
            program: &self.program,
            limits: &self.limits,
            file: &self.file,
            health,
        })
        .await
    }

    /// No new calls. The worker ends when those that run are over.
    pub(crate) fn retire(&self) -> Option<Arc<Link>> {
        let link = self.current().take();
        if let Some(link) = &link {
            link.retire();
        }
        link
    }

    /// Ends the worker: closes its backends, and waits for that.
    pub(crate) async fn stop(&self) {
        let Some(link) = self.retire() else { return };
        let limit = self.limits.close + Duration::from_millis(500);
        if tokio::time::timeout(limit, link.gone.cancelled())
            .await
            .is_err()
        {
            link.end("the host stops");
        }
    }
}

/// A backend with its configuration, open in whatever worker runs.
pub(crate) struct Remote {
    config: Vec<u8>,
    open: tokio::sync::Mutex<Option<(Weak<Link>, u64)>>,
}

impl Remote {
    pub(crate) fn new(config: Vec<u8>) -> Self {
        Self {
            config,
            open: tokio::sync::Mutex::default(),
        }
    }

    /// Closes it where it is open. The last owner calls it.
    pub(crate) fn close(&mut self) {
        if let Some((link, backend)) = self.open.get_mut().take()
            && let Some(link) = link.upgrade()
        {
            link.close(backend);
        }
    }

    async fn ready(
        &self,
        slot: &Slot,
        workers: &Workers,
    ) -> Result<(Arc<Link>, u64), BackendError> {
        // A worker may end between its start and the opening; then nothing has run yet.
        for _ in 0..3 {
            let link = workers.link(&slot.health).await?;
            let mut open = self.open.lock().await;
            if let Some((known, backend)) = open.as_ref()
                && known.upgrade().is_some_and(|known| known.id == link.id)
            {
                return Ok((link, *backend));
            }
            match link.open(&self.config).await {
                Ok(backend) => {
                    if let Some((old, was)) = open.replace((Arc::downgrade(&link), backend))
                        && let Some(old) = old.upgrade()
                    {
                        old.close(was);
                    }
                    return Ok((link, backend));
                }
                Err(Failure::Plugin(error)) => return Err(read_error(&error)),
                Err(Failure::Died(death)) => {
                    return Err(death.error(&slot.manifest.name));
                }
                Err(Failure::NotSent) => {}
            }
        }
        Err(BackendError::new(
            ErrorKind::Transport,
            "its process ended before the call was sent, several times",
        ))
    }
}

impl Opened {
    /// Where its calls go: a running worker in which it is open. Starting and opening go on when the caller goes away, so
    /// that short deadlines do not start a worker again and again.
    pub(crate) async fn ready(self: &Arc<Self>) -> Result<(Arc<Link>, u64), BackendError> {
        if let Some((remote, workers)) = self.remote()
            && let Ok(open) = remote.open.try_lock()
            && let Some((link, backend)) = open.as_ref()
            && let Some(link) = link.upgrade()
            && workers.usable().is_some_and(|usable| usable.id == link.id)
        {
            return Ok((link, *backend));
        }
        let opened = Arc::clone(self);
        let opening = self.slot.host.runtime.spawn(async move {
            let Some((remote, workers)) = opened.remote() else {
                return Err(BackendError::internal("the backend runs in process"));
            };
            remote.ready(&opened.slot, workers).await
        });
        opening.await.unwrap_or_else(|error| {
            Err(BackendError::internal(format!(
                "opening ended early: {error}"
            )))
        })
    }
}

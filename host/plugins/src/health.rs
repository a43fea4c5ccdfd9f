//! How well a plugin does: its breaker, its counters, and what is told about it.

use crate::{
    backend::CallRun,
    breaker::Breaker,
    events::{Events, PluginEvent, What},
    services::Host,
    stats::Stats,
    worker::Death,
};
use dstack_backend_types::{BackendError, ErrorKind};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// Shared by everything that calls one plugin file.
pub(crate) struct Health {
    /// The plugin's name.
    pub(crate) name: String,
    pub(crate) host: Arc<Host>,
    pub(crate) stats: Arc<Stats>,
    events: Events,
    breaker: Mutex<Breaker>,
    /// How its last process ended.
    last_death: Mutex<Option<String>>,
}

impl Health {
    pub(crate) fn new(name: &str, host: &Arc<Host>, stats: Arc<Stats>, events: Events) -> Self {
        Self {
            name: name.to_owned(),
            host: Arc::clone(host),
            stats,
            events,
            breaker: Mutex::default(),
            last_death: Mutex::default(),
        }
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, what: What) {
        self.events.tell(PluginEvent {
            backend: self.name.clone(),
            what,
        });
    }

    /// Whether calls are refused, or were until a moment ago and none has succeeded since.
    pub(crate) fn is_open(&self) -> bool {
        self.breaker().is_open()
    }

    /// Why it is not well, for people.
    pub(crate) fn trouble(&self) -> String {
        let died = self
            .last_death
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match died.as_deref() {
            Some(death) => {
                format!("it timed out or died several times in a row; its process {death}")
            }
            None => "it timed out several times in a row".to_owned(),
        }
    }

    /// Lets a call pass, or says why not.
    pub(crate) fn admit(&self) -> Result<(), BackendError> {
        let Some(left) = self.breaker().closed_for(Instant::now()) else {
            return Ok(());
        };
        let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        Err(BackendError::new(
            ErrorKind::Unavailable,
            format!("{}; tried again in {} s", self.trouble(), ms.div_ceil(1000)),
        )
        .retry_after_ms(ms))
    }

    /// Notes how a call ended, for the breaker.
    pub(crate) fn note(&self, ended: &CallRun) {
        match ended {
            CallRun::Answered => {
                let was_open = {
                    let mut breaker = self.breaker();
                    let was_open = breaker.is_open();
                    breaker.answered();
                    was_open
                };
                if was_open {
                    self.stats.lock().is_breaker_open = false;
                    tracing::info!(backend = self.name, "the backend answers again");
                    self.tell(What::Recovered);
                }
            }
            CallRun::TimedOut => self.fail(),
            CallRun::Died | CallRun::NotRun => {}
        }
    }

    fn fail(&self) {
        let jitter = self.host.jitter();
        let pause = self.breaker().failed(Instant::now(), jitter);
        let Some(pause) = pause else { return };
        {
            let mut stats = self.stats.lock();
            stats.breaker_opened += 1;
            stats.is_breaker_open = true;
        }
        let pause_s = pause.as_secs_f64();
        tracing::error!(
            backend = self.name,
            pause_s,
            "{}; calls are refused for a while",
            self.trouble()
        );
        self.tell(What::Refusing { pause });
    }

    /// Its process ended without being told to; so many calls ran.
    pub(crate) fn died(&self, death: &Death, calls: usize) {
        self.stats.lock().deaths += 1;
        let how = death.to_string();
        tracing::error!(
            backend = self.name,
            calls,
            "the process of the backend {how}"
        );
        *self
            .last_death
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(how.clone());
        self.tell(What::Died { how });
        self.fail();
    }

    /// A process was started, and the plugin in it loaded.
    pub(crate) fn started(&self, is_first: bool, version: &str) {
        if is_first {
            tracing::info!(
                backend = self.name,
                version,
                "backend loaded in a child process"
            );
            self.tell(What::Loaded {
                version: version.to_owned(),
            });
        } else {
            self.stats.lock().respawns += 1;
            tracing::info!(
                backend = self.name,
                "the process of the backend was started again"
            );
            self.tell(What::Respawned);
        }
    }

    /// The plugin could not be loaded.
    pub(crate) fn failed_to_start(&self, reason: &str) {
        tracing::error!(backend = self.name, reason, "the backend cannot be loaded");
        self.tell(What::Failed {
            reason: reason.to_owned(),
        });
        self.fail();
    }
}

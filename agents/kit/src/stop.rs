//! The request to end, in two strengths.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A request to end that many parts listen to. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    graceful: CancellationToken,
    force: CancellationToken,
}

impl Stop {
    /// A stop that only [`Stop::request`] and [`Stop::force`] trigger.
    pub fn new() -> Self {
        Self::default()
    }

    /// A stop that SIGINT, SIGTERM and SIGQUIT trigger, the second time by force.
    ///
    /// Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::new();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut quit = signal(SignalKind::quit())?;
        let told = stop.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = quit.recv() => {}
                }
                if told.is_requested() {
                    told.force();
                    return;
                }
                told.request();
            }
        });
        Ok(stop)
    }

    /// Asks for an end that finishes what is under way.
    pub fn request(&self) {
        self.graceful.cancel();
    }

    /// Asks for an end at once.
    pub fn force(&self) {
        self.graceful.cancel();
        self.force.cancel();
    }

    /// Whether an end was asked for, in either strength.
    pub fn is_requested(&self) -> bool {
        self.graceful.is_cancelled()
    }

    /// Waits until an end is asked for, in either strength.
    pub async fn requested(&self) {
        self.graceful.cancelled().await;
    }

    /// Waits until an end at once is asked for.
    pub async fn forced(&self) {
        self.force.cancelled().await;
    }
}

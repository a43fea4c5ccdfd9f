//! Switches a machine off that nobody needs any more.
//!
//! A server that has died, or has lost its database, would leave machines running and costing money for ever. A
//! machine that a cloud backend has made therefore ends itself when no server has asked for anything, and no task has
//! run, for a while.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dstack_agent_protocol::shim::TaskStatus;
use tokio::process::Command;

use crate::shim::Shim;

/// Pause after a switch-off that did not work.
const RETRY_PAUSE: Duration = Duration::from_secs(60);
/// Looks a limit is divided into.
const LOOKS: u32 = 20;
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What switches off, the first that works.
const COMMANDS: [&[&str]; 2] = [&["shutdown", "-h", "now"], &["poweroff"]];

/// When the machine was needed last.
#[derive(Debug)]
pub(crate) struct LastNeeded(Mutex<Instant>);

impl LastNeeded {
    pub(crate) fn now() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// Somebody asked for something.
    pub(crate) fn renew(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn idle(&self) -> Duration {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .elapsed()
    }
}

/// Looks again and again, until the machine is switched off.
pub(crate) async fn run(shim: Arc<Shim>, limit: Duration) {
    loop {
        tokio::time::sleep((limit / LOOKS).clamp(Duration::from_millis(10), LONGEST_PAUSE)).await;
        let is_used = |status| status != TaskStatus::Terminated;
        if shim.tasks.all().iter().any(|slot| is_used(slot.status())) {
            shim.last_needed.renew();
        }
        if shim.last_needed.idle() >= limit {
            tracing::warn!(
                idle_s = limit.as_secs(),
                "no server and no task needs this machine: it is switched off"
            );
            switch_off().await;
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

async fn switch_off() {
    for words in COMMANDS {
        let Some((program, arguments)) = words.split_first() else {
            continue;
        };
        match Command::new(program).args(arguments).status().await {
            Ok(status) if status.success() => return,
            Ok(status) => tracing::error!(program, %status, "the machine cannot be switched off"),
            Err(err) => {
                tracing::error!(program, error = %err, "the machine cannot be switched off")
            }
        }
    }
}

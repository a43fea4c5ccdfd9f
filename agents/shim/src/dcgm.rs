//! What NVIDIA's data centre tools tell about the GPUs: metrics for the server, and health.
//!
//! Both are optional: a machine without the tools runs tasks all the same.

mod counters;
mod exporter;
mod health;

pub(crate) use exporter::{Exporter, of_gpus};
pub(crate) use health::HealthCheck;

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;

/// How long a tool may take to end by itself.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Ends a tool, by force if it does not end by itself.
async fn stop(child: &mut Child) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        // It may have ended by itself.
        kill(Pid::from_raw(pid), Signal::SIGTERM).ok();
    }
    if tokio::time::timeout(STOP_GRACE, child.wait())
        .await
        .is_err()
    {
        drop(child.kill().await);
    }
}

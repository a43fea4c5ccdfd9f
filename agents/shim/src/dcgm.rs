//! What NVIDIA's data centre tools tell about the GPUs: metrics for the server, and health.
//!
//! Both are optional: a machine without the tools runs tasks all the same.

mod counters;
mod exporter;
mod health;

pub(crate) use exporter::{Exporter, of_gpus};
pub(crate) use health::HealthCheck;

use std::io;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

/// How long a tool may take to end by itself.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Starts a tool that serves until it is told to end. It ends with the shim too when that is killed: the next one starts
/// its own, which needs the same port.
#[expect(unsafe_code, reason = "the death signal is set between fork and exec")]
fn spawn(command: &mut Command) -> io::Result<Child> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    // SAFETY: the closure makes one system call that is allowed between fork and exec, and allocates nothing.
    unsafe { command.pre_exec(|| set_pdeathsig(Signal::SIGTERM).map_err(Into::into)) };
    command.spawn()
}

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

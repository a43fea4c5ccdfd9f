//! Between keeper and runner: enters namespaces and control group, then waits for the runner and for orphans.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, getppid, setsid};

use super::keeper::{KeeperSpec, allowed, reap};
use super::{cgroup, namespaces, note};

/// Exit code for "the runner could not be started".
const NOT_STARTED: u8 = 125;

/// Runs as the process between keeper and runner, and ends with the runner's exit code.
pub(super) fn run(spec: &KeeperSpec, signals: &SigSet, keeper: Pid, has_pids: bool) -> ExitCode {
    match start(spec, keeper, has_pids).and_then(|runner| wait_for(runner, signals)) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(NOT_STARTED)),
        Err(err) => {
            note(format_args!("the runner could not be started: {err}"));
            ExitCode::from(NOT_STARTED)
        }
    }
}

#[expect(
    unsafe_code,
    reason = "session, death signal and mask are set between fork and exec"
)]
fn start(spec: &KeeperSpec, keeper: Pid, has_pids: bool) -> io::Result<Pid> {
    // Nothing of the job may live on without a keeper that could tell how it ended.
    set_pdeathsig(Signal::SIGKILL)?;
    // In a PID namespace the parent, being outside, is seen as 0.
    let parent = getppid();
    if parent != keeper && parent.as_raw() != 0 {
        return Err(io::Error::other("the keeper has ended"));
    }
    set_child_subreaper(true)?;
    cgroup::enter(&spec.name);
    let has_own_root = spec.is_root
        && allowed(
            "mount namespace",
            unshare(CloneFlags::CLONE_NEWNS).map_err(io::Error::from),
        )
        && allowed(
            "private root directory",
            namespaces::make_private_root(spec, has_pids),
        );
    if let Some((source, target)) = spec.binds.first()
        && !has_own_root
    {
        return Err(io::Error::other(format!(
            "{} cannot appear at {} without a container unless the shim is root: use the same path for both",
            source.display(),
            target.display()
        )));
    }
    let (program, arguments) = spec
        .command
        .split_first()
        .ok_or_else(|| io::Error::other("no command"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&spec.work_dir)
        .stdin(Stdio::null());
    // SAFETY: the closure only makes system calls that are allowed between fork and exec, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            setsid()?;
            set_pdeathsig(Signal::SIGKILL)?;
            // The mask would be inherited, and the runner needs its signals.
            SigSet::empty().thread_set_mask()?;
            Ok(())
        });
    }
    let child = command
        .spawn()
        .map_err(|err| io::Error::new(err.kind(), format!("{program}: {err}")))?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    Ok(Pid::from_raw(pid))
}

fn wait_for(runner: Pid, signals: &SigSet) -> io::Result<i32> {
    loop {
        match signals.wait()? {
            Signal::SIGCHLD => {
                if let Some(code) = reap(runner)? {
                    return Ok(code);
                }
            }
            signal => {
                kill(runner, signal).ok();
            }
        }
    }
}

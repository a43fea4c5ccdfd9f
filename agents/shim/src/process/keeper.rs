//! The keeper: parent of a task's processes, single-threaded, outliving the shim.

use std::ffi::CStr;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::{set_child_subreaper, set_name};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, setsid};
use serde::{Deserialize, Serialize};

use super::record::{ExitFile, descendants};
use super::{cgroup, init, note};

/// First argument that makes the shim's binary a keeper. Not for users.
pub const KEEPER_COMMAND: &str = "__keep-task";
/// Tells the keeper to end everything at once; SIGTERM is passed on to the runner instead.
pub(super) const HARD_STOP: Signal = Signal::SIGUSR2;
/// The keeper's name in lists of processes.
const NAME: &CStr = c"dstack-keeper";
/// How long is waited between two looks at processes that were killed.
const KILL_POLL: Duration = Duration::from_millis(5);
const KILL_ROUNDS: u32 = 1000;

/// What the keeper is told, as JSON on its standard input.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeeperSpec {
    pub(super) task_dir: PathBuf,
    /// Names the control group.
    pub(super) name: String,
    pub(super) work_dir: PathBuf,
    /// The runner and its arguments.
    pub(super) command: Vec<String>,
    /// The whole environment.
    pub(super) env: Vec<(String, String)>,
    /// 0 means no limit.
    pub(super) cpus: f64,
    /// 0 means no limit.
    pub(super) memory_bytes: i64,
    /// Directories of the machine and where the job sees them.
    pub(super) binds: Vec<(PathBuf, PathBuf)>,
    /// Whether namespaces are tried.
    pub(super) is_root: bool,
}

/// Runs as the keeper of one task; called before any thread is started.
pub fn run_keeper() -> ExitCode {
    let mut json = Vec::new();
    let spec = match io::stdin()
        .read_to_end(&mut json)
        .map(|_| serde_json::from_slice(&json))
    {
        Ok(Ok(spec)) => spec,
        // The shim ended before it could say what to do; nothing has been started.
        Ok(Err(_)) | Err(_) => return ExitCode::FAILURE,
    };
    match keep(&spec) {
        Ok(code) => code,
        Err(err) => {
            note(format_args!(
                "the task's process could not be started: {err}"
            ));
            ExitCode::FAILURE
        }
    }
}

/// Signals that are taken one by one instead of interrupting.
fn awaited_signals() -> SigSet {
    let mut set = SigSet::empty();
    for signal in [
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGHUP,
        HARD_STOP,
    ] {
        set.add(signal);
    }
    set
}

#[expect(unsafe_code, reason = "a PID namespace is entered by fork only")]
fn keep(spec: &KeeperSpec) -> io::Result<ExitCode> {
    let exit_file = ExitFile::reserve(&spec.task_dir)?;
    // Lists of processes would show "exe", after the path it was started by.
    set_name(NAME).ok();
    // Fails if the process leads a session already, which is as good.
    setsid().ok();
    set_child_subreaper(true)?;
    let signals = awaited_signals();
    signals.thread_block()?;
    cgroup::create(&spec.name, spec.cpus, spec.memory_bytes);
    cgroup::leave_service();
    // Only children enter the new PID namespace; its first one becomes its init.
    let has_pids = spec.is_root
        && allowed(
            "PID namespace",
            unshare(CloneFlags::CLONE_NEWPID).map_err(io::Error::from),
        );
    let keeper = getpid();
    // SAFETY: this process has a single thread, so the child may do anything a fresh process may.
    let child = match unsafe { fork() }? {
        ForkResult::Child => return Ok(init::run(spec, &signals, keeper, has_pids)),
        ForkResult::Parent { child } => child,
    };
    let code = wait_for(child, &signals)?;
    end_descendants(&spec.name);
    cgroup::end(&spec.name);
    exit_file.write(code)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the kernel allowed something that the task can do without.
pub(super) fn allowed(what: &str, result: io::Result<()>) -> bool {
    if let Err(err) = &result {
        note(format_args!("the task runs without {what}: {err}"));
    }
    result.is_ok()
}

/// Waits for init and passes signals on.
fn wait_for(child: Pid, signals: &SigSet) -> io::Result<i32> {
    loop {
        match signals.wait()? {
            Signal::SIGCHLD => {
                if let Some(code) = reap(child)? {
                    return Ok(code);
                }
            }
            // The session has no terminal, but somebody may send it by hand; it is not meant for the job.
            Signal::SIGHUP => {}
            HARD_STOP => {
                kill(child, Signal::SIGKILL).ok();
            }
            signal => {
                kill(child, signal).ok();
            }
        }
    }
}

/// Takes the exit codes of all children that have ended; that of `wanted`, if it is among them.
pub(super) fn reap(wanted: Pid) -> io::Result<Option<i32>> {
    let mut code = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, status)) if pid == wanted => code = Some(status),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == wanted => {
                code = Some(128 + signal as i32);
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(code),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(err) => return Err(err.into()),
        }
    }
}

/// Kills what the job left behind. In a PID namespace nothing is left; else orphans have become children of the keeper.
fn end_descendants(name: &str) {
    for _ in 0..KILL_ROUNDS {
        cgroup::kill(name);
        let left = descendants(getpid().as_raw());
        if left.is_empty() {
            return;
        }
        for pid in left {
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
        // Only orphans are waited for here; the code of init is known already.
        drop(reap(Pid::from_raw(0)));
        thread::sleep(KILL_POLL);
    }
    note(format_args!("some processes of the task cannot be killed"));
}

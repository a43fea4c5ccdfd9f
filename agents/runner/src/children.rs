//! Starting programs, and reaping those that nobody waits for.
//!
//! The runner is the first process of some containers and adopts orphans elsewhere too, so it must reap children that
//! it did not start. A child that was started here is waited for by its starter and left alone: the register and the
//! lock around start and registration keep the two apart.

use std::collections::HashSet;
use std::io;
use std::process::{Child, Command, Output};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tokio::signal::unix::{SignalKind, signal};

use crate::session;

/// Pause after a round of reaping: children often end in groups.
const PAUSE: Duration = Duration::from_millis(200);

/// The children started on purpose. Clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Children(Arc<Mutex<HashSet<i32>>>);

/// A child of ours. Whoever holds it must wait for it.
#[derive(Debug)]
pub(crate) struct Owned {
    child: Child,
    children: Children,
    pid: i32,
}

impl Children {
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Owned> {
        let mut ours = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        ours.insert(pid);
        Ok(Owned {
            child,
            children: self.clone(),
            pid,
        })
    }

    /// Runs a program to its end and gives its output.
    pub(crate) fn output(&self, command: &mut Command) -> io::Result<Output> {
        use std::process::Stdio;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let owned = self.spawn(command)?;
        let (child, children, pid) = (owned.child, owned.children, owned.pid);
        let output = child.wait_with_output();
        children.forget(pid);
        output
    }

    /// Runs a program; an error tells its last words.
    pub(crate) fn run(&self, command: &mut Command) -> io::Result<()> {
        let name = command.get_program().to_string_lossy().into_owned();
        let output = self
            .output(command)
            .map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim();
        let tail: String = said
            .chars()
            .skip(said.chars().count().saturating_sub(1000))
            .collect();
        Err(io::Error::other(format!(
            "{name} failed ({}): {tail}",
            output.status
        )))
    }

    /// Kills what was started and has not ended: the runner goes, and nobody would wait for it.
    pub(crate) fn kill_all(&self) {
        for pid in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            session::send(*pid, Signal::SIGKILL);
        }
    }

    fn forget(&self, pid: i32) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&pid);
    }

    /// Reaps ended children that nobody waits for; gives how many.
    pub(crate) fn reap(&self) -> usize {
        let ours = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let me = i32::try_from(std::process::id()).unwrap_or_default();
        let zombies = session::processes()
            .filter(|process| process.parent == me && process.is_zombie)
            .filter(|process| !ours.contains(&process.pid));
        zombies
            .filter(|p| waitpid(Pid::from_raw(p.pid), Some(WaitPidFlag::WNOHANG)).is_ok())
            .count()
    }

    /// Adopts orphans of the job and reaps them, until the runtime ends.
    pub(crate) fn start_reaping(&self) -> io::Result<()> {
        if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
            tracing::debug!(%error, "orphans go to the container's first process");
        }
        let mut ended = signal(SignalKind::child())?;
        let children = self.clone();
        tokio::spawn(async move {
            while ended.recv().await.is_some() {
                tokio::time::sleep(PAUSE).await;
                let reaped = children.reap();
                if reaped > 0 {
                    tracing::trace!(reaped, "orphans reaped");
                }
            }
        });
        Ok(())
    }
}

impl Owned {
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits for the end; blocks the thread.
    pub(crate) fn wait(mut self) -> io::Result<std::process::ExitStatus> {
        let status = self.child.wait();
        self.children.forget(self.pid);
        status
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        let has_ended = matches!(self.child.try_wait(), Ok(Some(_)));
        if has_ended {
            self.children.forget(self.pid);
        }
        has_ended
    }
}

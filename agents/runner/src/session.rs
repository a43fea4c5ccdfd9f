//! The processes of the job, found by their session.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// From the interrupt to the hang-up.
const HANGUP_AFTER: Duration = Duration::from_secs(5);
/// From the interrupt to the kill.
const KILL_AFTER: Duration = Duration::from_secs(10);
/// Pause between looks at the session.
const POLL: Duration = Duration::from_millis(100);
/// A kill works at once, except on a process stuck in the kernel: then the stop goes on without it.
const GIVE_UP_AFTER: Duration = Duration::from_secs(15);

/// One line of the process table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) session: i32,
    pub(crate) is_zombie: bool,
}

/// All processes that can be seen.
pub(crate) fn processes() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        entry.file_name().to_str()?.parse::<i32>().ok()?;
        parse_stat(&std::fs::read_to_string(entry.path().join("stat")).ok()?)
    })
}

/// Reads `/proc/<pid>/stat`; the name in brackets may hold blanks and brackets.
fn parse_stat(line: &str) -> Option<Process> {
    let (pid, rest) = line.split_once(' ')?;
    let (_, rest) = rest.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let _group = fields.next()?;
    let session = fields.next()?.parse().ok()?;
    let is_zombie = matches!(state, "Z" | "X");
    Some(Process {
        pid: pid.parse().ok()?,
        parent,
        session,
        is_zombie,
    })
}

/// Live processes of a session, without the first process and ourselves.
fn members(session: i32) -> Vec<i32> {
    let me = i32::try_from(std::process::id()).unwrap_or_default();
    processes()
        .filter(|p| p.session == session && !p.is_zombie && p.pid != 1 && p.pid != me)
        .map(|p| p.pid)
        .collect()
}

/// Sends a signal. A process that has ended meanwhile is as good as one that took it.
pub(crate) fn send(pid: i32, signal: Signal) {
    if let Err(error) = kill(Pid::from_raw(pid), signal) {
        tracing::trace!(pid, %signal, %error, "a signal was not delivered");
    }
}

fn signal_all(session: i32, signals: &[Signal]) {
    for pid in members(session) {
        for signal in signals {
            send(pid, *signal);
        }
    }
}

/// Kills what is left of a session.
pub(crate) fn kill_all(session: i32) {
    signal_all(session, &[Signal::SIGKILL]);
}

/// Kills everything that descends from this process, orphans it adopted too.
pub(crate) fn kill_descendants() {
    let me = i32::try_from(std::process::id()).unwrap_or_default();
    // What is started while we look is found in the next round.
    for _ in 0..5 {
        let all: Vec<Process> = processes().filter(|process| !process.is_zombie).collect();
        let mut family = vec![me];
        let mut at = 0;
        while let Some(parent) = family.get(at).copied() {
            family.extend(all.iter().filter(|p| p.parent == parent).map(|p| p.pid));
            at += 1;
        }
        let below = family.get(1..).unwrap_or_default();
        if below.is_empty() {
            return;
        }
        below.iter().for_each(|pid| send(*pid, Signal::SIGKILL));
        std::thread::sleep(POLL);
    }
}

/// Ends a session in stages: `interrupt` now, a hang-up later, a kill at last. Gives back when nothing is left.
pub(crate) async fn end(session: i32, interrupt: impl FnOnce()) {
    interrupt();
    let started = tokio::time::Instant::now();
    let mut is_hung_up = false;
    while !members(session).is_empty() {
        let elapsed = started.elapsed();
        if elapsed >= GIVE_UP_AFTER {
            tracing::warn!(session, "processes of the job cannot be killed");
            return;
        }
        if elapsed >= KILL_AFTER {
            kill_all(session);
        } else if elapsed >= HANGUP_AFTER && !is_hung_up {
            is_hung_up = true;
            tracing::info!("the job did not end on an interrupt, hanging up");
            // A stopped process takes the hang-up only once it goes on.
            signal_all(session, &[Signal::SIGHUP, Signal::SIGCONT]);
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_do_not_confuse_the_process_table() {
        let line = "42 (a) (b c) S 7 42 40 34816 42 4194304 1";
        assert_eq!(
            parse_stat(line),
            Some(Process {
                pid: 42,
                parent: 7,
                session: 40,
                is_zombie: false
            })
        );
        assert!(parse_stat("42 (x) Z 7 42 40 0").unwrap().is_zombie);
        assert_eq!(parse_stat("42 (x"), None);
    }
}

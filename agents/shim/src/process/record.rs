//! Finding a process again: a number alone may mean another process after a while, so its start time and the boot it
//! belongs to are kept with it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// Which process keeps a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessRecord {
    pid: i32,
    /// Clock ticks between the boot and the start.
    start_time: u64,
    boot_id: String,
}

/// How a task's process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It runs.
    Alive,
    /// It ended with this code; 128 and more mean a signal.
    Exited(i32),
    /// It is gone without having told its code, for example after a reboot.
    Lost,
}

const EXIT_FILE: &str = "exit.code";
const ZOMBIE: char = 'Z';
const DEAD: char = 'X';

impl ProcessRecord {
    /// The record of a living process.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).map_err(io::Error::other)?;
        let stat = stat(pid).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("process {pid} ended at once"),
            )
        })?;
        Ok(Self {
            pid,
            start_time: stat.start_time,
            boot_id: boot_id()?,
        })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether this very process runs.
    pub(crate) fn is_alive(&self) -> bool {
        let is_same = stat(self.pid).is_some_and(|stat| {
            stat.start_time == self.start_time && ![ZOMBIE, DEAD].contains(&stat.state)
        });
        is_same && boot_id().is_ok_and(|id| id == self.boot_id)
    }

    /// Sends a signal; whether the process was there to get it.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        self.is_alive() && kill(Pid::from_raw(self.pid), signal) != Err(Errno::ESRCH)
    }

    /// How the process of the task in `dir` is.
    pub(crate) fn outcome(&self, dir: &Path) -> Outcome {
        if self.is_alive() {
            return Outcome::Alive;
        }
        match fs::read_to_string(dir.join(EXIT_FILE)).map(|text| text.trim().parse()) {
            Ok(Ok(code)) => Outcome::Exited(code),
            _ => Outcome::Lost,
        }
    }
}

/// The place of the exit code, taken before the task starts: a disk that is full when it ends must not hide how it did.
#[derive(Debug)]
pub(super) struct ExitFile {
    file: fs::File,
    dir: PathBuf,
}

const EXIT_FILE_PART: &str = "exit.code.tmp";
/// Width of the code in the file, with blanks.
const EXIT_WIDTH: usize = 15;

impl ExitFile {
    pub(super) fn reserve(dir: &Path) -> io::Result<Self> {
        let mut options = fs::OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(dir.join(EXIT_FILE_PART))?;
        file.write_all_at(&[b' '; EXIT_WIDTH + 1], 0)?;
        // File systems that allocate late would find the disk full at the end.
        file.sync_all()?;
        Ok(Self {
            file,
            dir: dir.to_owned(),
        })
    }

    /// Writes the exit code down, for a shim that comes later.
    pub(super) fn write(&self, code: i32) -> io::Result<()> {
        self.file
            .write_all_at(format!("{code:<EXIT_WIDTH$}\n").as_bytes(), 0)?;
        self.file.sync_all()?;
        fs::rename(self.dir.join(EXIT_FILE_PART), self.dir.join(EXIT_FILE))
    }
}

/// Kills a process and all its descendants.
pub(super) fn kill_tree(record: &ProcessRecord) {
    let pids = descendants(record.pid);
    for pid in std::iter::once(record.pid).chain(pids) {
        // It may have ended by itself.
        kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
    }
}

/// All living descendants of a process.
pub(super) fn descendants(root: i32) -> BTreeSet<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeSet::new();
    };
    let parents: Vec<(i32, i32)> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?.parent)))
        .collect();
    let mut found = BTreeSet::new();
    loop {
        let new: Vec<i32> = parents
            .iter()
            .filter(|(pid, parent)| {
                (*parent == root || found.contains(parent)) && !found.contains(pid)
            })
            .map(|(pid, _)| *pid)
            .collect();
        if new.is_empty() {
            return found;
        }
        found.extend(new);
    }
}

struct Stat {
    state: char,
    parent: i32,
    start_time: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in parentheses and may hold anything, also parentheses.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // The start time is field 22 of the line, counted from 1; two fields are gone with the name, two are read.
    let start_time = fields.nth(17)?.parse().ok()?;
    Some(Stat {
        state,
        parent,
        start_time,
    })
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_found_again_and_a_namesake_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let record = ProcessRecord::of(child.id()).unwrap();
        assert_eq!(record.outcome(dir.path()), Outcome::Alive);
        assert!(descendants(i32::try_from(std::process::id()).unwrap()).contains(&record.pid()));
        let namesake = ProcessRecord {
            start_time: record.start_time + 1,
            ..record.clone()
        };
        assert!(!namesake.is_alive());
        assert!(!namesake.signal(Signal::SIGKILL));
        let other_boot = ProcessRecord {
            boot_id: "x".into(),
            ..record.clone()
        };
        assert!(!other_boot.is_alive());
        kill_tree(&record);
        child.wait().unwrap();
        assert_eq!(record.outcome(dir.path()), Outcome::Lost);
        ExitFile::reserve(dir.path()).unwrap().write(137).unwrap();
        assert_eq!(record.outcome(dir.path()), Outcome::Exited(137));
    }
}

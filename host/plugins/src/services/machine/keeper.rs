//! The keeper: a small shell loop in a session of its own that starts a shim and starts it again whenever it ends.
//!
//! It is known by a lock, not by a number: it holds an exclusive `flock` on `<home>/keeper.lock`, so
//! the kernel itself says whether one lives, whatever was killed when, and two keepers of one home are impossible. The shim
//! and its tasks do not get that descriptor.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::Path,
    process::Stdio,
};
use tokio::process::Command;

const LOCK: &str = "keeper.lock";
/// What the shell calls itself, so that a process list shows what it is.
const NAME: &str = "dstack-shim-keeper";
/// `$1` is the home, the rest the shim's command line. The wait covers the moment in which somebody else looks at the lock.
/// The pause is that of the loop on cloud machines. Without its home nobody could find the keeper to end it, so it ends.
const SCRIPT: &str = r#"
home=$1
cd "$home" || exit 1
shift
exec 9>>keeper.lock
flock --exclusive --wait 5 9 || exit 0
while [ . -ef "$home" ]; do
    "$@" 9>&-
    sleep 3 9>&-
done
"#;
/// What the shim gets of the server's environment: no tokens, no database addresses.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "SHELL",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "DOCKER_HOST",
    "DOCKER_API_VERSION",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS_VERIFY",
    "DOCKER_CONFIG",
];

/// Whether a keeper of this home lives.
pub(super) fn is_alive(home: &Path) -> bool {
    let Ok(file) = File::open(home.join(LOCK)) else {
        return false;
    };
    // Shared: two that look at the same moment do not see each other.
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Starts a keeper; one too many ends by itself.
pub(super) async fn spawn(home: &Path, command: &[OsString]) -> io::Result<()> {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(home.join("keeper.log"))?;
    let environment = std::env::vars_os().filter(|(name, _)| {
        let name = name.to_string_lossy();
        PASSED.contains(&name.as_ref())
            || name.starts_with("DSTACK_SHIM_")
            || name.starts_with("DSTACK_RUNNER_")
            || name.starts_with("DSTACK_DOCKER_")
    });
    // `setsid --fork` returns at once and leaves the keeper to init, so it is nobody's child here.
    let status = Command::new("setsid")
        .args(["--fork", "/bin/sh", "-c", SCRIPT, NAME])
        .arg(home)
        .args(command)
        .env_clear()
        .envs(environment)
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .await?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("setsid: {status}")))
    }
}

/// The keepers of this home, one that still waits for the lock included.
pub(super) fn keepers(home: &Path) -> Vec<i32> {
    let Ok(lock) = home.join(LOCK).canonicalize() else {
        return Vec::new();
    };
    // The shell moves the descriptor about while a command runs, so its number says nothing.
    let has_lock = |pid: &i32| {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        descriptors
            .into_iter()
            .any(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == lock))
    };
    // A server that looks at the lock has it open too, for a moment.
    let is_keeper = |pid: &i32| {
        command_line(*pid)
            .iter()
            .any(|word| word == NAME.as_bytes())
    };
    processes().filter(is_keeper).filter(has_lock).collect()
}

fn command_line(pid: i32) -> Vec<Vec<u8>> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

/// The children of a process.
pub(super) fn children(parent: i32) -> Vec<i32> {
    processes()
        .filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == parent))
        .collect()
}

/// Shims of this home that no keeper holds any more.
pub(super) fn strays(home: &Path) -> Vec<i32> {
    let wanted = home.as_os_str().as_bytes();
    let is_shim_of_home = |pid: &i32| {
        let words = command_line(*pid);
        let is_shim = words
            .first()
            .is_some_and(|word| word.ends_with(b"dstack-shim"));
        is_shim
            && words
                .windows(2)
                .any(|pair| pair[0] == b"--shim-home" && pair[1] == wanted)
    };
    processes().filter(is_shim_of_home).collect()
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A process's parent, and when it was started: a number that is used again has another time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    parent: i32,
    started: u64,
    is_zombie: bool,
}

pub(super) fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name stands in brackets and may hold anything, brackets too.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        is_zombie: fields.first() == Some(&"Z"),
    })
}

/// Whether the process that was `seen` under this number still runs.
pub(super) fn still_runs(pid: i32, seen: Stat) -> bool {
    stat(pid).is_some_and(|now| now.started == seen.started && !now.is_zombie)
}

#[cfg(test)]
mod tests {
    use super::{LOCK, is_alive, parse_stat};
    use std::fs::File;

    #[test]
    fn a_process_name_with_brackets_does_not_confuse() {
        let text = "42 (a) b) c) S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1 1";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.parent, stat.started), (7, 123_456));
    }

    #[test]
    fn the_lock_says_whether_a_keeper_lives() {
        let home = tempfile::tempdir().unwrap();
        assert!(!is_alive(home.path()));
        let lock = File::create(home.path().join(LOCK)).unwrap();
        assert!(!is_alive(home.path()));
        lock.lock().unwrap();
        assert!(is_alive(home.path()));
        drop(lock);
        assert!(!is_alive(home.path()));
    }
}

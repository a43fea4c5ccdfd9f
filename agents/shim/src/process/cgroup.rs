//! The control group of a task, where the machine lets us have one: limits, and the list of all its processes.
//!
//! Both generations: one directory in the unified hierarchy, or one in each hierarchy of the old kind.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill as send};
use nix::unistd::Pid;

use super::note;

const MOUNT: &str = "/sys/fs/cgroup";
const PARENT: &str = "dstack";
/// Hierarchies of the old kind that are used: limits, and `cpuacct` for the runner's metrics.
const V1_CONTROLLERS: [&str; 4] = ["memory", "cpu", "cpuacct", "pids"];
const CPU_PERIOD_US: f64 = 100_000.0;
const REMOVE_ROUNDS: u32 = 100;
const REMOVE_POLL: Duration = Duration::from_millis(5);

/// Makes the control group of `name`; what the machine does not allow is noted and left out.
pub(super) fn create(name: &str, cpus: f64, memory_bytes: i64) {
    if is_unified() {
        // Controllers must be handed down from the root, level by level; some may be missing.
        let parent = Path::new(MOUNT).join(PARENT);
        for controller in ["+cpu", "+memory", "+pids"] {
            drop(fs::write(
                Path::new(MOUNT).join("cgroup.subtree_control"),
                controller,
            ));
        }
        drop(fs::create_dir(&parent));
        for controller in ["+cpu", "+memory", "+pids"] {
            drop(fs::write(parent.join("cgroup.subtree_control"), controller));
        }
    }
    for (controller, dir) in dirs(name) {
        if fs::create_dir_all(&dir).is_err() {
            continue;
        }
        for (file, value) in limits(controller, cpus, memory_bytes) {
            if let Err(err) = fs::write(dir.join(file), value) {
                note(format_args!(
                    "the task runs without the limit {file}: {err}"
                ));
            }
        }
    }
}

/// Takes this process out of the service that started it, since service managers end all processes of a service when
/// they restart it, and tasks outlive the shim. Without root this is not possible, and not noted.
pub(super) fn leave_service() {
    let dir = if is_unified() {
        Path::new(MOUNT).join(PARENT).join("keepers")
    } else {
        Path::new(MOUNT).join("systemd").join(PARENT)
    };
    if dir.parent().is_some_and(Path::is_dir) {
        drop(fs::create_dir(&dir));
        drop(fs::write(dir.join("cgroup.procs"), "0"));
    }
}

/// Moves this process, and so its children, into the control group.
pub(super) fn enter(name: &str) {
    for (_, dir) in dirs(name) {
        if dir.is_dir()
            && let Err(err) = fs::write(dir.join("cgroup.procs"), "0")
        {
            note(format_args!(
                "the task runs outside of {}: {err}",
                dir.display()
            ));
        }
    }
}

/// Kills all processes of the control group.
pub(super) fn kill(name: &str) {
    for (_, dir) in dirs(name) {
        if fs::write(dir.join("cgroup.kill"), "1").is_ok() {
            continue;
        }
        let pids = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        for pid in pids
            .lines()
            .filter_map(|line| line.parse().ok())
            .filter(|pid| *pid > 0)
        {
            // It may have ended by itself.
            send(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
    }
}

/// Kills all processes of the control group and removes it.
pub(super) fn end(name: &str) {
    for (_, dir) in dirs(name) {
        for _ in 0..REMOVE_ROUNDS {
            if !dir.exists() || fs::remove_dir(&dir).is_ok() {
                break;
            }
            // Killed processes leave the group a moment later.
            kill(name);
            thread::sleep(REMOVE_POLL);
        }
    }
}

fn is_unified() -> bool {
    Path::new(MOUNT).join("cgroup.controllers").exists()
}

/// The directories of the group, each with its controller (empty in the unified hierarchy).
fn dirs(name: &str) -> Vec<(&'static str, PathBuf)> {
    if is_unified() {
        return vec![("", Path::new(MOUNT).join(PARENT).join(name))];
    }
    V1_CONTROLLERS
        .into_iter()
        .map(|controller| (controller, Path::new(MOUNT).join(controller)))
        .filter(|(_, hierarchy)| hierarchy.join("cgroup.procs").exists())
        .map(|(controller, hierarchy)| (controller, hierarchy.join(PARENT).join(name)))
        .collect()
}

/// Files and values for the limits; 0 means no limit.
fn limits(controller: &str, cpus: f64, memory_bytes: i64) -> Vec<(&'static str, String)> {
    let quota = format!("{:.0}", cpus * CPU_PERIOD_US);
    let mut files = Vec::new();
    if memory_bytes > 0 {
        match controller {
            "" => files.push(("memory.max", memory_bytes.to_string())),
            "memory" => files.push(("memory.limit_in_bytes", memory_bytes.to_string())),
            _ => {}
        }
    }
    if cpus > 0.0 {
        match controller {
            "" => files.push(("cpu.max", format!("{quota} {CPU_PERIOD_US:.0}"))),
            "cpu" => files.push(("cpu.cfs_quota_us", quota)),
            _ => {}
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_go_to_the_files_of_their_generation() {
        assert_eq!(
            limits("", 1.5, 1024),
            [
                ("memory.max", "1024".into()),
                ("cpu.max", "150000 100000".to_owned())
            ]
        );
        assert_eq!(
            limits("cpu", 0.5, 1024),
            [("cpu.cfs_quota_us", "50000".to_owned())]
        );
        assert_eq!(
            limits("memory", 0.5, 64),
            [("memory.limit_in_bytes", "64".to_owned())]
        );
        assert!(limits("", 0.0, 0).is_empty());
    }
}

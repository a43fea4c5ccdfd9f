//! Directories that were made on the machine only because a job wanted something mounted there.
//!
//! Without a container the job's root is the machine's, so a mount point below a directory of the machine has to be made
//! in it. Each one is written down, before it is made, in a file of its own below the shim's home: a shim that comes later
//! knows it as well, and nothing has to be locked. When no task needs it any more it is removed, if it is empty.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Folder of the notes, in the shim's home.
const NOTES_DIR: &str = "mount-targets";

/// The folder of the notes of the shim that has the task directory `task_dir`, which is `<home>/runners/<name>`.
pub(super) fn notes_dir(task_dir: &Path) -> PathBuf {
    let home = task_dir.ancestors().nth(2).unwrap_or(task_dir);
    home.join(NOTES_DIR)
}

/// Makes `target` below `root`, which stands for the machine's root; directories that are missing on the machine are
/// noted first. What is missing at the top is made in `root` alone, which is no part of the machine.
pub(super) fn make(root: &Path, target: &Path, notes: &Path) -> io::Result<()> {
    let mut missing: Vec<&Path> = target
        .ancestors()
        .take_while(|dir| fs::symlink_metadata(dir).is_err())
        .collect();
    missing.reverse();
    let is_on_machine = missing
        .first()
        .is_some_and(|first| first.parent() != Some(root));
    for dir in missing {
        if is_on_machine && let Ok(below) = dir.strip_prefix(root) {
            note(notes, &Path::new("/").join(below))?;
        }
        match fs::create_dir(dir) {
            // Another task came first.
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
    }
    Ok(())
}

fn note(notes: &Path, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(notes)?;
    let digest = Sha256::digest(dir.as_os_str().as_bytes());
    let name: String = digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    fs::write(notes.join(name), dir.as_os_str().as_bytes())
}

/// Removes the noted directories of the shim at `home` that are empty and in none of the paths `used`.
///
/// A directory in use stays, as the kernel would take a mount away with its mount point.
pub(crate) fn remove_unused(home: &Path, used: &[PathBuf]) {
    let notes = fs::read_dir(home.join(NOTES_DIR)).into_iter().flatten();
    let mut noted: Vec<(PathBuf, PathBuf)> = notes
        .flatten()
        .filter_map(|entry| {
            let bytes = fs::read(entry.path()).ok()?;
            Some((std::ffi::OsString::from_vec(bytes).into(), entry.path()))
        })
        .collect();
    // What is inside goes first.
    noted.sort_by_key(|(dir, _)| std::cmp::Reverse(dir.as_os_str().len()));
    for (dir, note) in noted {
        if used.iter().any(|path| path.starts_with(&dir)) {
            continue;
        }
        match fs::remove_dir(&dir) {
            Ok(()) => tracing::debug!(dir = %dir.display(), "a mount point was removed"),
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            // Somebody has put something there, so it is not ours any more.
            Err(err) => {
                tracing::info!(dir = %dir.display(), error = %err, "a mount point stays");
            }
        }
        if let Err(err) = fs::remove_file(&note) {
            let name = note.file_name().unwrap_or(OsStr::new(""));
            tracing::warn!(note = %name.display(), error = %err, "a note stays");
        }
    }
    // Gone with the last note.
    fs::remove_dir(home.join(NOTES_DIR)).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_made_and_is_unused_and_empty_goes() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let notes = notes_dir(&dir.path().join("home/runners/task"));
        assert_eq!(notes, dir.path().join("home").join(NOTES_DIR));
        fs::create_dir_all(root.join("mnt/old")).unwrap();
        for target in ["data/x", "mnt/old", "mnt/old/a/b", "mnt/c", "mnt/d"] {
            make(&root, &root.join(target), &notes).unwrap();
        }
        let noted = |notes: &Path| fs::read_dir(notes).map_or(0, Iterator::count);
        // Neither what was there before, nor what is in the task's root alone.
        assert_eq!(noted(&notes), 4);
        // The machine's paths stand for those below this root, so they are put there.
        for entry in fs::read_dir(&notes).unwrap().flatten() {
            let path = fs::read_to_string(entry.path()).unwrap();
            let real = root.join(path.trim_start_matches('/'));
            fs::write(entry.path(), real.as_os_str().as_bytes()).unwrap();
        }
        fs::write(root.join("mnt/d/file"), "").unwrap();
        let home = dir.path().join("home");
        remove_unused(&home, &[root.join("mnt/old/a/b")]);
        let there = ["mnt/old/a/b", "mnt/c", "mnt/d"].map(|name| root.join(name).exists());
        assert_eq!(there, [true, false, true]);
        assert_eq!(noted(&notes), 2);
        remove_unused(&home, &[]);
        assert!(root.join("mnt/old").exists() && !root.join("mnt/old/a").exists());
        assert!(!notes.exists());
    }
}

//! `plugins.lock`: which files of a folder were put there on purpose. JSON lines beside the `.so` files they name.

use crate::folder::writable_by_others;
use dstack_backend_loader::inspect;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// The file's name.
pub const LOCK_FILE: &str = "plugins.lock";

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockedPlugin {
    /// The manifest's name.
    pub name: String,
    /// The plugin's version.
    pub version: String,
    /// SHA-256 of the file, lower-case hex.
    pub sha256: String,
}

/// The lines of one folder's `plugins.lock`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockFile {
    plugins: BTreeSet<LockedPlugin>,
    /// Numbers of the lines that are not understood, from 1.
    bad_lines: Vec<usize>,
}

impl LockFile {
    /// Reads the lock file of `folder`; an absent one is empty. A line that is not understood covers nothing.
    ///
    /// # Errors
    /// If a file is there and cannot be read, or if others than root and the user of this process may write it: it says whom
    /// to trust.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let path = folder.join(LOCK_FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        if let Some(problem) = writable_by_others(&path, "file") {
            return Err(io::Error::other(problem));
        }
        let mut lock = Self::default();
        for (number, line) in text.lines().enumerate() {
            match serde_json::from_str(line) {
                Ok(plugin) => {
                    lock.plugins.insert(plugin);
                }
                Err(_) if line.trim().is_empty() => {}
                Err(_) => lock.bad_lines.push(number + 1),
            }
        }
        Ok(lock)
    }

    /// What is wrong with lines of it, for people; `None` if nothing is.
    fn problem(&self) -> Option<String> {
        let (first, more) = self.bad_lines.split_first()?;
        let others = match more.len() {
            0 => String::new(),
            count => format!(" (and {count} more)"),
        };
        Some(format!(
            "line {first}{others} is not understood and covers nothing"
        ))
    }

    /// Reads as [`read`](Self::read) does, and says beside it for people why the file, or a part of it, covers nothing.
    pub(crate) fn look(folder: &Path) -> (Self, Option<String>) {
        let (lock, problem) = match Self::read(folder) {
            Ok(lock) => {
                let problem = lock.problem();
                (lock, problem)
            }
            Err(error) => (Self::default(), Some(format!("is not used: {error}"))),
        };
        let problem = problem.map(|problem| {
            format!(
                "{problem}; if you trust what is in the folder, run `dstack backend lock {}`",
                folder.display()
            )
        });
        (lock, problem)
    }

    /// Whether a file of this name and content is covered.
    pub fn covers(&self, name: &str, sha256: &str) -> bool {
        self.plugins
            .iter()
            .any(|line| line.name == name && line.sha256 == sha256)
    }

    /// The lines, sorted by name.
    pub fn plugins(&self) -> impl Iterator<Item = &LockedPlugin> {
        self.plugins.iter()
    }
}

/// Writes `plugins.lock` for every plugin that lies in `folder` now; files that are no plugins are left out and returned with
/// the reason. The file is replaced as a whole, so a reader sees the old one or the new one.
///
/// # Errors
/// If the folder cannot be read or the file not written.
pub fn write_lock(folder: &Path) -> io::Result<(LockFile, Vec<(PathBuf, String)>)> {
    let mut lock = LockFile::default();
    let mut left_out = Vec::new();
    for path in crate::folder::library_files(folder)? {
        match inspect(&path) {
            Ok(file) => {
                lock.plugins.insert(LockedPlugin {
                    name: file.manifest.name,
                    version: file.manifest.version,
                    sha256: file.sha256,
                });
            }
            Err(error) => left_out.push((path, error.to_string())),
        }
    }
    let temporary = folder.join(format!(".{LOCK_FILE}.{}", std::process::id()));
    let written = || {
        // Whatever the umask is: what others may write would not be used.
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(&temporary)?;
        for line in &lock.plugins {
            writeln!(file, "{}", serde_json::to_string(line)?)?;
        }
        file.sync_all()?;
        fs::rename(&temporary, folder.join(LOCK_FILE))
    };
    if let Err(error) = written() {
        // The first error is the one to tell.
        fs::remove_file(&temporary).ok();
        return Err(error);
    }
    Ok((lock, left_out))
}

//! `plugins.lock`: which files of a folder were put there on purpose. JSON lines beside the `.so` files they name.

use dstack_backend_loader::inspect;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write as _},
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
}

impl LockFile {
    /// Reads the lock file of `folder`; an absent one is empty. A line that is not understood covers nothing.
    ///
    /// # Errors
    /// If a file is there and cannot be read.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let text = match fs::read_to_string(folder.join(LOCK_FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let plugins = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        Ok(Self { plugins })
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
    let mut file = fs::File::create(&temporary)?;
    for line in &lock.plugins {
        writeln!(file, "{}", serde_json::to_string(line)?)?;
    }
    file.sync_all()?;
    fs::rename(&temporary, folder.join(LOCK_FILE))?;
    Ok((lock, left_out))
}

//! Whether a folder is as its `plugins.lock` says, and as it must be to be used. Nothing of a file runs.

use crate::{
    config::PluginsConfig,
    discover::discover,
    lock::{LOCK_FILE, LockFile},
};
use serde::Serialize;
use std::{
    io,
    path::{Path, PathBuf},
};

/// One file of a folder, or one line of its `plugins.lock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifiedPlugin {
    /// The manifest's name; the file's name if it has none.
    pub name: String,
    /// The file's version, or that of the line.
    pub version: Option<String>,
    /// SHA-256 of the file, or that of the line.
    pub hash: Option<String>,
    /// The file; `None` if there is only a line.
    pub path: Option<PathBuf>,
    /// What is wrong; `None` if it is used and trusted.
    pub problem: Option<String>,
}

/// Compares a folder with its `plugins.lock`.
///
/// # Errors
/// If the folder cannot be read.
pub fn verify_folder(folder: &Path) -> io::Result<Vec<VerifiedPlugin>> {
    let folder = folder.canonicalize()?;
    std::fs::read_dir(&folder)?;
    let (lock, _) = LockFile::look(&folder);
    let found = discover(&PluginsConfig::new(vec![folder.clone()]));
    let mut all: Vec<VerifiedPlugin> = Vec::new();
    for (name, (file, _)) in found.usable {
        let problem = if lock.covers(&name, &file.sha256) {
            None
        } else if lock.plugins().any(|line| line.name == name) {
            Some(format!(
                "is not the file that {LOCK_FILE} was written for; if you trust it, run `dstack backend lock {}`",
                folder.display()
            ))
        } else {
            Some(format!(
                "is not in {LOCK_FILE}, so it runs in a process of its own; if you trust it, run `dstack backend lock {}`",
                folder.display()
            ))
        };
        all.push(VerifiedPlugin {
            name,
            version: Some(file.manifest.version.clone()),
            hash: Some(file.sha256.clone()),
            path: Some(file.path.clone()),
            problem,
        });
    }
    all.extend(found.rest.into_iter().map(|status| VerifiedPlugin {
        name: status.name,
        version: status.version,
        hash: status.hash,
        path: Some(status.path),
        problem: Some(status.error.unwrap_or_else(|| "is not used".to_owned())),
    }));
    for line in lock.plugins() {
        if all.iter().any(|file| file.name == line.name) {
            continue;
        }
        all.push(VerifiedPlugin {
            name: line.name.clone(),
            version: Some(line.version.clone()),
            hash: Some(line.sha256.clone()),
            path: None,
            problem: Some(format!("is in {LOCK_FILE}, and there is no such file")),
        });
    }
    all.sort_by(|a, b| (&a.name, &a.path).cmp(&(&b.name, &b.path)));
    Ok(all)
}

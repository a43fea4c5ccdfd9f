//! Looks through the plugin folders. Nothing of a file runs here.

use crate::{
    config::{Isolation, PluginsConfig},
    folder::{library_files, writable_by_others},
    lock::{LOCK_FILE, LockFile},
    status::{PluginState, PluginStatus},
};
use dstack_backend_loader::{Inspected, inspect};
use dstack_backend_types::Manifest;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    path::Path,
    time::Duration,
};

/// What was found.
#[derive(Default)]
pub(crate) struct Found {
    /// Files that may be used, by name.
    pub usable: BTreeMap<String, (Inspected, Isolation)>,
    /// The others, each with its reason.
    pub rest: Vec<PluginStatus>,
    /// Why a folder's lock file is not used, by the names of the backends in that folder.
    pub lock_problems: BTreeMap<String, String>,
    /// Whether a file that is refused was changed a moment ago: it may still be copied.
    pub is_settling: bool,
}

/// A file that was not changed for so long is not being copied.
const SETTLED: Duration = Duration::from_secs(5);

fn is_settling(path: &Path) -> bool {
    let changed = path.metadata().and_then(|metadata| metadata.modified());
    changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < SETTLED))
}

/// Looks through the folders in order.
pub(crate) fn discover(config: &PluginsConfig) -> Found {
    let mut found = Found::default();
    let mut seen_folders = HashSet::new();
    let mut seen_files = HashMap::new();
    for folder in &config.folders {
        let Ok(folder) = folder.canonicalize() else {
            continue;
        };
        if seen_folders.insert(folder.clone()) {
            scan(&folder, config, &mut seen_files, &mut found);
        }
    }
    for status in &found.rest {
        let error = status.error.as_deref().unwrap_or_default();
        tracing::warn!(backend = status.name, path = %status.path.display(), error, "not used of the plugin folders");
    }
    found
}

fn scan(
    folder: &Path,
    config: &PluginsConfig,
    seen: &mut HashMap<(u64, u64), String>,
    found: &mut Found,
) {
    let files = match library_files(folder) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return,
        Err(error) => {
            found.rest.push(refused(
                folder,
                None,
                &format!("cannot read the folder: {error}"),
            ));
            return;
        }
    };
    if files.is_empty() {
        return;
    }
    let folder_problem = writable_by_others(folder, "folder");
    let (lock, lock_problem) = LockFile::look(folder);
    if let Some(problem) = &lock_problem {
        let mut status = refused(&folder.join(LOCK_FILE), None, problem);
        LOCK_FILE.clone_into(&mut status.name);
        found.rest.push(status);
    }
    let mut here: BTreeMap<String, Vec<Inspected>> = BTreeMap::new();
    for path in files {
        let problem = folder_problem.clone().or_else(|| {
            // A pipe or a folder is named as such by the inspection.
            path.is_file()
                .then(|| writable_by_others(&path, "file"))
                .flatten()
        });
        match (problem, inspect(&path)) {
            (None, Ok(file)) => here
                .entry(file.manifest.name.clone())
                .or_default()
                .push(file),
            (Some(problem), Ok(file)) => found.rest.push(refused(&path, Some(&file), &problem)),
            (_, Err(error)) => {
                found.is_settling |= is_settling(&path);
                found.rest.push(refused(&path, None, &error.to_string()));
            }
        }
    }
    for (name, mut files) in here {
        if files.len() > 1 {
            for file in &files {
                let others: Vec<String> = files
                    .iter()
                    .filter(|other| other.path != file.path)
                    .map(|other| other.path.display().to_string())
                    .collect();
                let reason = format!(
                    "the same folder has the backend {name} twice: also {}; remove one",
                    others.join(", ")
                );
                found.rest.push(refused(&file.path, Some(file), &reason));
            }
            continue;
        }
        let Some(file) = files.pop() else { continue };
        if let Some((winner, _)) = found.usable.get(&name) {
            let reason = format!("{} comes first", winner.path.display());
            let mut status = refused(&file.path, Some(&file), &reason);
            status.state = PluginState::Shadowed;
            found.rest.push(status);
            continue;
        }
        // The same file under another name would meet its own statics.
        if let Some(other) = seen.insert(file.identity, file.path.display().to_string()) {
            found.rest.push(refused(
                &file.path,
                Some(&file),
                &format!("is the same file as {other}"),
            ));
            continue;
        }
        let by_lock = if lock.covers(&name, &file.sha256) {
            Isolation::InProcess
        } else {
            Isolation::Process
        };
        let isolation = config.isolation.get(&name).copied().unwrap_or(by_lock);
        if let Some(problem) = &lock_problem {
            let path = folder.join(LOCK_FILE);
            let problem = format!("{} {problem}", path.display());
            found.lock_problems.insert(name.clone(), problem);
        }
        found.usable.insert(name, (file, isolation));
    }
}

fn refused(path: &Path, file: Option<&Inspected>, reason: &str) -> PluginStatus {
    let manifest: Option<&Manifest> = file.map(|file| &file.manifest);
    let file_name = || {
        path.file_stem()
            .unwrap_or(path.as_os_str())
            .to_string_lossy()
            .into_owned()
    };
    PluginStatus {
        name: manifest.map_or_else(file_name, |m| m.name.clone()),
        version: manifest.map(|m| m.version.clone()),
        sdk: manifest.map(|m| m.sdk.clone()),
        capabilities: manifest.map(|m| m.capabilities.clone()).unwrap_or_default(),
        hash: file.map(|file| file.sha256.clone()),
        isolation: None,
        state: PluginState::Refused,
        error: Some(reason.to_owned()),
        path: path.to_owned(),
        stats: None,
    }
}

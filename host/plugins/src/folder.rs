//! What is looked at in a plugin folder, and who may write there.

use dstack_backend_loader::Inspected;
use nix::unistd::Uid;
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The `*.so` entries of a folder, sorted. Not recursive; hidden names are left out.
pub(crate) fn library_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_hidden = path
            .file_name()
            .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden && path.extension().is_some_and(|e| e == "so") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Why something that only root and we may write is not so, or `None`. `what` is `file` or `folder`.
pub(crate) fn writable_by_others(path: &Path, what: &str) -> Option<String> {
    // Links are followed: what counts is the file that would be loaded.
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return Some(format!("cannot look at the {what}: {error}")),
    };
    let (uid, mode) = (metadata.uid(), metadata.mode());
    if uid != 0 && uid != Uid::effective().as_raw() {
        return Some(format!(
            "the {what} belongs to user {uid}, neither root nor the user of this process; chown it"
        ));
    }
    // The group may write if it is the owner's alone in practice: user-private groups make umask 002 common.
    let group_is_private = metadata.gid() == nix::unistd::Gid::effective().as_raw();
    if mode & 0o002 != 0 {
        return Some(format!(
            "the {what} is writable by everybody (mode {:04o}); chmod o-w it",
            mode & 0o7777
        ));
    }
    if mode & 0o020 != 0 && !group_is_private {
        return Some(format!(
            "the {what} is writable by group {} (mode {:04o}); chmod g-w it",
            metadata.gid(),
            mode & 0o7777
        ));
    }
    None
}

/// Device, inode, size and time of change of a file: if it is the same, so is the content.
pub(crate) type Stamp = (u64, u64, u64, i64, i64);

/// The stamp of the file whose descriptor was inspected, as the file is now; `None` if the system does not say.
pub(crate) fn stamp(file: &Inspected) -> Option<Stamp> {
    let descriptor = file.descriptor().try_clone_to_owned().ok()?;
    let metadata = fs::File::from(descriptor).metadata().ok()?;
    Some((
        metadata.dev(),
        metadata.ino(),
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    ))
}

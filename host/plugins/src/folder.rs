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
    let own = (
        Uid::effective().as_raw(),
        nix::unistd::Gid::effective().as_raw(),
    );
    let (owner, mode) = ((metadata.uid(), metadata.gid()), metadata.mode());
    untrusted(what, owner, mode, own)
}

/// The rule itself: owner and process are each a user and a group.
fn untrusted(what: &str, owner: (u32, u32), mode: u32, own: (u32, u32)) -> Option<String> {
    let (uid, gid) = owner;
    if uid != 0 && uid != own.0 {
        return Some(format!(
            "the {what} belongs to user {uid}, neither root nor the user of this process; chown it"
        ));
    }
    if mode & 0o002 != 0 {
        return Some(format!(
            "the {what} is writable by everybody (mode {:04o}); chmod o-w it",
            mode & 0o7777
        ));
    }
    // The group may write if it is the owner's alone in practice: user-private groups make umask 002 common.
    if mode & 0o020 != 0 && gid != own.1 {
        return Some(format!(
            "the {what} is writable by group {gid} (mode {:04o}); chmod g-w it",
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

#[cfg(test)]
mod tests {
    use super::untrusted;

    /// The process is user 1000 of group 1000.
    fn problem(owner: (u32, u32), mode: u32) -> String {
        untrusted("file", owner, mode, (1000, 1000)).unwrap_or_default()
    }

    #[test]
    fn only_root_and_the_process_may_write() {
        for (owner, mode) in [
            ((1000, 1000), 0o100_644),
            ((1000, 1000), 0o100_664),
            ((0, 0), 0o100_755),
            ((0, 1000), 0o100_775),
        ] {
            assert_eq!(problem(owner, mode), "", "{owner:?} {mode:o}");
        }
        for (owner, mode, words) in [
            ((1001, 1000), 0o100_600, "belongs to user 1001"),
            ((1000, 1000), 0o100_646, "by everybody (mode 0646)"),
            ((0, 50), 0o100_664, "by group 50 (mode 0664)"),
            ((1000, 0), 0o100_664, "by group 0"),
        ] {
            let found = problem(owner, mode);
            assert!(found.contains(words), "{owner:?} {mode:o}: {found}");
        }
    }
}

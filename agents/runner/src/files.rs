//! Small deeds on files, for a job's user.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::Path;

use crate::users::Account;

/// Makes a directory and its missing parents, 0755; those that were made belong to the user.
pub(crate) fn make_dirs(dir: &Path, account: &Account) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent() {
        make_dirs(parent, account)?;
    }
    match DirBuilder::new().mode(0o755).create(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => return Ok(()),
        made => made?,
    }
    give(dir, account);
    Ok(())
}

/// Gives one file to the user, not what a link points to. Failures are logged only: the job may do without.
pub(crate) fn give(path: &Path, account: &Account) {
    if !account.is_switched {
        return;
    }
    if let Err(error) = lchown(path, Some(account.uid), Some(account.gid)) {
        tracing::warn!(path = %path.display(), %error, "cannot give the file to the job's user");
    }
}

/// Gives a whole tree to the user.
pub(crate) fn give_tree(path: &Path, account: &Account) {
    if !account.is_switched {
        return;
    }
    give(path, account);
    let is_dir = path.symlink_metadata().is_ok_and(|found| found.is_dir());
    for entry in is_dir
        .then(|| std::fs::read_dir(path).into_iter().flatten().flatten())
        .into_iter()
        .flatten()
    {
        give_tree(&entry.path(), account);
    }
}

/// Makes `~/.ssh`-like directories: 0700 and the user's, also if it was there before.
pub(crate) fn private_dir(dir: &Path, account: &Account) -> io::Result<()> {
    if !dir.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    std::fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    give(dir, account);
    Ok(())
}

/// Writes a 0600 file of the user's that must not exist yet.
pub(crate) fn new_private_file(path: &Path, content: &str, account: &Account) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content.as_bytes())?;
    give(path, account);
    Ok(())
}

/// Writes a 0600 file of the user's, over an old one.
pub(crate) fn private_file(path: &Path, content: &str, account: &Account) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(content.as_bytes())?;
    give(path, account);
    Ok(())
}

/// Appends to a file of the user's, made 0600.
pub(crate) fn append_private(path: &Path, content: &str, account: &Account) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(content.as_bytes())?;
    give(path, account);
    Ok(())
}

/// Removes a file or a tree; one that is not there is removed already.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if found.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    }
}

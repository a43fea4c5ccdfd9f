//! Unpacks uploaded tars.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Component, Path, PathBuf};

use crate::files;
use crate::users::Account;

mod limits;

/// Unpacks `tar` so that its one top entry lands exactly at `target`, file or directory, replacing what is there.
pub(crate) fn unpack_at(tar: &Path, target: &Path, account: &Account) -> io::Result<()> {
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        let message = format!("{} cannot be replaced", target.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    };
    files::make_dirs(parent, account)?;
    files::remove(target)?;
    unpack(tar, parent, |path| re_root(path, name))?;
    files::give_tree(target, account);
    Ok(())
}

/// Unpacks `tar` into `dir`.
pub(crate) fn unpack_into(tar: &Path, dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    unpack(tar, dir, |path| Some(path.to_owned()))
}

/// Unpacks the entries of `tar` below `dir`, each where `place` says.
///
/// Nothing outside of `dir` is written, and nothing is left out silently: an archive that tries to is refused.
fn unpack(tar: &Path, dir: &Path, place: impl Fn(&Path) -> Option<PathBuf>) -> io::Result<()> {
    limits::check(tar)?;
    let mut archive = tar::Archive::new(BufReader::new(File::open(tar)?));
    archive.set_preserve_permissions(true);
    archive.set_overwrite(true);
    // A directory without write permission would refuse its own content: they come last, deepest first.
    let mut directories = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let Some(place) = place(&entry.path()?) else {
            continue;
        };
        if !is_inside(&place) {
            return Err(refused(&place, "leads out of the archive"));
        }
        let path = dir.join(&place);
        check_links(dir, &place)?;
        match entry.header().entry_type() {
            tar::EntryType::Directory => {
                std::fs::create_dir_all(&path)?;
                directories.push((path, entry.header().mode()?));
            }
            tar::EntryType::Link => {
                // A hard link names another entry, which moved along with this one.
                let link = entry.link_name()?.unwrap_or_default().into_owned();
                let link = link_place(&link, &place)
                    .ok_or_else(|| refused(&place, "is a link that leads out of the archive"))?;
                check_links(dir, &link)?;
                files::remove(&path)?;
                std::fs::hard_link(dir.join(link), &path)?;
            }
            kind => {
                let link = entry.link_name()?.unwrap_or_default();
                if kind == tar::EntryType::Symlink && !stays_inside(&place, &link) {
                    let why = format!(
                        "is a link to {}, which leads out of the archive; leave it out of the upload",
                        link.display()
                    );
                    return Err(refused(&place, &why));
                }
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent)?;
                }
                if !path.is_dir() {
                    files::remove(&path)?;
                }
                entry.unpack(&path)?;
            }
        }
    }
    for (path, mode) in directories.into_iter().rev() {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode & 0o7777);
        std::fs::set_permissions(path, mode)?;
    }
    Ok(())
}

fn refused(path: &Path, why: &str) -> io::Error {
    let message = format!("{} {why}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Whether a symbolic link at `place` leads to something below the directory that is unpacked into. What a link passes
/// through does not matter: links on the way were judged themselves.
fn stays_inside(place: &Path, link: &Path) -> bool {
    let mut depth = place.components().count().saturating_sub(1);
    for part in link.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir => match depth.checked_sub(1) {
                Some(up) => depth = up,
                None => return false,
            },
            Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

/// Where a hard link's target is: below the same top entry.
fn link_place(link: &Path, place: &Path) -> Option<PathBuf> {
    let top = place.components().next()?.as_os_str();
    let moved = re_root(link, top)?;
    is_inside(&moved).then_some(moved)
}

/// Replaces the first part of an entry's path by `name`.
fn re_root(path: &Path, name: &OsStr) -> Option<PathBuf> {
    let mut parts = path.components();
    while matches!(
        parts.next()?,
        Component::CurDir | Component::RootDir | Component::Prefix(_)
    ) {}
    let (top, rest) = (Path::new(name), parts.as_path());
    // Joining nothing would leave a slash at the end, which no file may have.
    Some(if rest.as_os_str().is_empty() {
        top.to_owned()
    } else {
        top.join(rest)
    })
}

fn is_inside(path: &Path) -> bool {
    path.components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// Refuses to write through a link that an earlier entry made.
fn check_links(dir: &Path, place: &Path) -> io::Result<()> {
    let mut path = dir.to_owned();
    for part in place.parent().into_iter().flat_map(Path::components) {
        path.push(part);
        if path
            .symlink_metadata()
            .is_ok_and(|found| found.is_symlink())
        {
            return Err(refused(place, "lies behind a link"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! Unpacks uploaded tars.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Component, Path, PathBuf};

use crate::files;
use crate::users::Account;

/// Unpacks `tar` so that its one top entry lands exactly at `target`, file or directory, replacing what is there.
pub(crate) fn unpack_at(tar: &Path, target: &Path, account: &Account) -> io::Result<()> {
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        let message = format!("{} cannot be replaced", target.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    };
    files::make_dirs(parent, account)?;
    files::remove(target)?;
    unpack(BufReader::new(File::open(tar)?), parent, |path| {
        re_root(path, name)
    })?;
    files::give_tree(target, account);
    Ok(())
}

/// Unpacks `tar` into `dir`.
pub(crate) fn unpack_into(tar: &Path, dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    unpack(BufReader::new(File::open(tar)?), dir, |path| {
        Some(path.to_owned())
    })
}

fn unpack(tar: impl Read, dir: &Path, place: impl Fn(&Path) -> Option<PathBuf>) -> io::Result<()> {
    let mut archive = tar::Archive::new(tar);
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
            let message = format!("{} leads out of the archive", place.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
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
                let Some(link) = self::link_place(&link, &place) else {
                    continue;
                };
                check_links(dir, &link)?;
                files::remove(&path)?;
                std::fs::hard_link(dir.join(link), &path)?;
            }
            _ => {
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
            let message = format!("{} lies behind a link", place.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn me() -> Account {
        Account {
            uid: 0,
            gid: 0,
            groups: vec![0],
            name: String::new(),
            home: "/".into(),
            is_switched: false,
        }
    }

    /// A tar of (path, content or None for a directory, mode).
    fn tar(dir: &Path, entries: &[(&str, Option<&str>, u32)]) -> PathBuf {
        let path = dir.join("a.tar");
        let mut builder = tar::Builder::new(File::create(&path).unwrap());
        for (name, content, mode) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_mode(*mode);
            header.set_size(content.map_or(0, str::len) as u64);
            header.set_entry_type(if content.is_some() {
                tar::EntryType::Regular
            } else {
                tar::EntryType::Directory
            });
            // Written by hand: the builder refuses paths that an attacker would use.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            builder
                .append(&header, content.unwrap_or_default().as_bytes())
                .unwrap();
        }
        builder.into_inner().unwrap();
        path
    }

    #[test]
    fn a_file_lands_exactly_at_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let tar = tar(dir.path(), &[("app.yml", Some("x: 1\n"), 0o640)]);
        let target = dir.path().join("new/.config/renamed.yml");
        unpack_at(&tar, &target, &me()).unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "x: 1\n");
        assert_eq!(
            target.metadata().unwrap().permissions().mode() & 0o777,
            0o640
        );
    }

    #[test]
    fn a_tree_replaces_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("data");
        std::fs::create_dir(&target).unwrap();
        std::fs::write(target.join("old"), "old").unwrap();
        let tar = tar(
            dir.path(),
            &[
                ("src/", None, 0o755),
                ("src/locked/", None, 0o555),
                ("src/locked/a", Some("a"), 0o600),
                ("src/b", Some("b"), 0o755),
            ],
        );
        unpack_at(&tar, &target, &me()).unwrap();
        assert!(!target.join("old").exists());
        assert_eq!(
            std::fs::read_to_string(target.join("locked/a")).unwrap(),
            "a"
        );
        assert_eq!(
            target
                .join("locked")
                .metadata()
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o555
        );
        assert_eq!(
            target.join("b").metadata().unwrap().permissions().mode() & 0o777,
            0o755
        );
    }

    #[test]
    fn an_archive_cannot_reach_out() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["top/../../evil", "../evil", "/../evil"] {
            let inner = dir.path().join("inner");
            std::fs::create_dir_all(&inner).unwrap();
            let tar = tar(dir.path(), &[(name, Some("x"), 0o644)]);
            let got = unpack_into(&tar, &inner);
            assert!(got.is_err() || !dir.path().join("evil").exists(), "{name}");
            assert!(!dir.path().join("evil").exists(), "{name}");
        }
    }
}

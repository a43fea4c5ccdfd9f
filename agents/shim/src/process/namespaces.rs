//! A root directory of the task's own: the machine's, plus places that only the task sees.
//!
//! A temporary file system holds one bind mount for each entry of `/`, so `/dstack` and `/workflow` can exist for the
//! task without being made on the machine.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Component, Path, PathBuf};

use dstack_agent_protocol::process_runtime::DSTACK_DIR;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};

use super::keeper::KeeperSpec;
use super::targets;

/// Where the new root is put together, below the task directory.
const ROOT_DIR: &str = "root";

/// Makes `/` the task's own, in the mount namespace that the caller has just entered.
pub(super) fn make_private_root(spec: &KeeperSpec, has_pids: bool) -> io::Result<()> {
    let no_path: Option<&Path> = None;
    // Nothing done here may reach the machine's mounts. What the machine unmounts later goes here too, so that a disk
    // is not kept busy by a task that does not use it.
    mount(
        no_path,
        "/",
        no_path,
        MsFlags::MS_REC | MsFlags::MS_SLAVE,
        no_path,
    )?;
    let root = spec.task_dir.join(ROOT_DIR);
    make_dir(&root)?;
    mount(
        Some("tmpfs"),
        &root,
        Some("tmpfs"),
        MsFlags::MS_NOSUID,
        Some("size=1m,mode=755"),
    )?;
    // Without this the bind mount of the directory that holds the task would take the new root along.
    mount(no_path, &root, no_path, MsFlags::MS_UNBINDABLE, no_path)?;
    let own: [(&Path, PathBuf); 2] = [
        (Path::new("dstack"), spec.task_dir.join(DSTACK_DIR)),
        (Path::new("workflow"), spec.work_dir.clone()),
    ];
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        if !own.iter().any(|(own, _)| *own == name) {
            mirror(&entry.path(), entry.file_type()?, &root.join(name))?;
        }
    }
    for (name, source) in &own {
        make_dir(&root.join(name))?;
        bind(source, &root.join(name))?;
    }
    let notes = targets::notes_dir(&spec.task_dir);
    for (source, target) in &spec.binds {
        let target = inside(&root, target)?;
        targets::make(&root, &target, &notes)?;
        bind(source, &target)?;
    }
    if has_pids {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(
            Some("proc"),
            &root.join("proc"),
            Some("proc"),
            flags,
            no_path,
        )?;
    }
    chdir(&root)?;
    // The old root ends up below the new one at the same place, and is taken away at once.
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")?;
    Ok(())
}

fn mirror(source: &Path, kind: fs::FileType, target: &Path) -> io::Result<()> {
    if kind.is_symlink() {
        return symlink(fs::read_link(source)?, target);
    }
    if kind.is_dir() {
        make_dir(target)?;
    } else {
        File::create(target)?;
    }
    bind(source, target)
}

fn bind(source: &Path, target: &Path) -> io::Result<()> {
    let no_path: Option<&Path> = None;
    mount(
        Some(source),
        target,
        no_path,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        no_path,
    )
    .map_err(|err| {
        let text = format!("mount {} at {}: {err}", source.display(), target.display());
        io::Error::other(text)
    })
}

fn make_dir(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(path) {
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// `path` below `root`; a path that is not absolute or climbs is refused.
fn inside(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let is_plain = path
        .components()
        .all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    match path.strip_prefix("/") {
        Ok(rest) if is_plain => Ok(root.join(rest)),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("mount path {} is not absolute and plain", path.display()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_paths_cannot_leave_the_root() {
        let root = Path::new("/task/root");
        assert_eq!(
            inside(root, Path::new("/data/x")).unwrap(),
            Path::new("/task/root/data/x")
        );
        for bad in ["data", "/data/../../etc", "../x"] {
            assert!(inside(root, Path::new(bad)).is_err(), "{bad}");
        }
    }
}

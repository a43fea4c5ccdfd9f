//! Directories of the machine that tasks see.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dstack_agent_protocol::shim::InstanceMount;

/// Makes the directories that do not exist; the last one is open to all users, since containers run as any of them.
/// What exists is left alone.
pub(crate) fn prepare_instance_mounts(mounts: &[InstanceMount]) -> io::Result<()> {
    for mount in mounts {
        let path = Path::new(&mount.instance_path);
        if path.exists() {
            continue;
        }
        let with_path =
            |err: io::Error| io::Error::new(err.kind(), format!("{}: {err}", path.display()));
        fs::create_dir_all(path).map_err(with_path)?;
        fs::set_permissions(path, Permissions::from_mode(0o777)).map_err(with_path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_directories_are_made_and_opened() {
        let root = tempfile::tempdir().unwrap();
        let mount = |name: &str| InstanceMount {
            instance_path: root.path().join(name).to_string_lossy().into_owned(),
            ..InstanceMount::default()
        };
        fs::create_dir(root.path().join("old")).unwrap();
        fs::set_permissions(root.path().join("old"), Permissions::from_mode(0o700)).unwrap();
        prepare_instance_mounts(&[mount("old"), mount("a/new")]).unwrap();
        let mode = |name: &str| {
            fs::metadata(root.path().join(name))
                .unwrap()
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!((mode("old"), mode("a/new")), (0o700, 0o777));
        fs::write(root.path().join("file"), "").unwrap();
        let err = prepare_instance_mounts(&[mount("file/x")]).unwrap_err();
        assert!(err.to_string().contains("file/x"), "{err}");
    }
}

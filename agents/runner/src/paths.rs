//! Where the runner keeps its files: at fixed places of a container, or below a task's directory.

use std::path::{Path, PathBuf};

use dstack_agent_protocol::process_runtime::{DSTACK_DIR, HOME_DIR, TMP_DIR, WORK_DIR};

/// The directory of the image that is a repository's default place.
const WORKFLOW: &str = "/workflow";

/// All places outside the job's own directories.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// Logs and uploads.
    pub(crate) temp: PathBuf,
    /// `/dstack` of a container.
    pub(crate) dstack: PathBuf,
    /// The login profile that gets a line; `None` leaves it alone.
    pub(crate) login_profile: Option<PathBuf>,
    /// Set without a container: home of a job that names no user.
    pub(crate) own_home: Option<PathBuf>,
    /// Set without a container: the default working directory.
    pub(crate) own_work: Option<PathBuf>,
    pub(crate) passwd: PathBuf,
    pub(crate) group: PathBuf,
}

impl Paths {
    pub(crate) fn in_container(temp: &Path) -> Self {
        Self {
            temp: temp.to_owned(),
            dstack: PathBuf::from("/dstack"),
            login_profile: Some(PathBuf::from("/etc/profile")),
            own_home: None,
            own_work: None,
            passwd: PathBuf::from("/etc/passwd"),
            group: PathBuf::from("/etc/group"),
        }
    }

    pub(crate) fn in_task(dir: &Path) -> Self {
        Self {
            temp: dir.join(TMP_DIR),
            dstack: dir.join(DSTACK_DIR),
            login_profile: None,
            own_home: Some(dir.join(HOME_DIR)),
            own_work: Some(dir.join(WORK_DIR)),
            ..Self::in_container(dir)
        }
    }

    /// Without a container there is no `/workflow` of the job's own, unless the shim mounted one there.
    pub(crate) fn place(&self, path: PathBuf, may_mount: bool) -> PathBuf {
        match (&self.own_work, path.strip_prefix(WORKFLOW)) {
            (Some(work), Ok(rest)) if !may_mount => work.join(rest),
            _ => path,
        }
    }

    pub(crate) fn default_repo_dir() -> &'static str {
        WORKFLOW
    }

    pub(crate) fn profile(&self) -> PathBuf {
        self.dstack.join("profile")
    }

    pub(crate) fn hostfile(&self) -> PathBuf {
        self.dstack.join("mpi/hostfile")
    }

    pub(crate) fn authorized_keys(&self) -> PathBuf {
        self.dstack.join("ssh/conf/authorized_keys")
    }

    pub(crate) fn archives(&self) -> PathBuf {
        self.temp.join("file_archives")
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.temp.join("repo_blobs")
    }
}

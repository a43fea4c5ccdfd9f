//! Where the runner keeps its files: at fixed places of a container, or below a task's directory.

use std::io;
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
    pub(crate) fn place(&self, path: PathBuf, is_mounted: bool) -> PathBuf {
        match (&self.own_work, path.strip_prefix(WORKFLOW)) {
            (Some(work), Ok(rest)) if !is_mounted && rest.as_os_str().is_empty() => work.clone(),
            (Some(work), Ok(rest)) if !is_mounted => work.join(rest),
            _ => path,
        }
    }

    /// Without a container, refuses to replace what is on the machine already: it is somebody's, and may even be the
    /// very folder that was uploaded. What lies below the task's own directories may be replaced.
    pub(crate) fn check_replaceable(&self, target: &Path, is_mounted: bool) -> io::Result<()> {
        let Some(work) = &self.own_work else {
            return Ok(());
        };
        if target.symlink_metadata().is_err() {
            return Ok(());
        }
        // The last part itself may be a link, which would be replaced and not followed.
        let real = target.parent().unwrap_or(target).canonicalize()?;
        let own = self.own_home.iter().chain([work, &self.temp]);
        let is_own = own
            .filter_map(|dir| dir.canonicalize().ok())
            .any(|dir| real.starts_with(dir));
        if is_own || (is_mounted && real.starts_with(WORKFLOW)) {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it is on the machine already, and a run without a container must not replace it; \
             choose another place by `local path:path in the working directory`",
        ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_container_the_workflow_directory_is_the_tasks_own() {
        let task = Paths::in_task(Path::new("/t"));
        let at = |path: &str, is_mounted| {
            task.place(PathBuf::from(path), is_mounted)
                .display()
                .to_string()
        };
        assert_eq!(at("/workflow", false), "/t/work");
        assert_eq!(at("/workflow/a", false), "/t/work/a");
        assert_eq!(at("/workflows", false), "/workflows");
        assert_eq!(at("/workflow/a", true), "/workflow/a");
        let container = Paths::in_container(Path::new("/tmp/runner"));
        assert_eq!(
            container.place("/workflow".into(), false),
            Path::new("/workflow")
        );
    }

    #[test]
    fn without_a_container_nothing_of_the_machine_is_replaced() {
        let machine = tempfile::tempdir().unwrap();
        let task = machine.path().join("task");
        let mine = machine.path().join("project");
        for dir in [&mine, &task.join("work"), &task.join("home")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        std::fs::write(task.join("task.json"), "").unwrap();
        std::fs::write(task.join("work/a"), "").unwrap();
        let paths = Paths::in_task(&task);
        let may = |target: PathBuf| paths.check_replaceable(&target, false).is_ok();
        assert!(may(task.join("work/a")));
        assert!(may(task.join("work/new")));
        assert!(may(task.join("home/.netrc")));
        assert!(may(machine.path().join("new/dir")));
        assert!(!may(mine.clone()));
        assert!(!may(task.join("work/../../project")));
        assert!(!may(task.join("task.json")));
        assert!(!may(task.join("work")));
        let container = Paths::in_container(Path::new("/tmp/runner"));
        container.check_replaceable(&mine, false).unwrap();
    }
}

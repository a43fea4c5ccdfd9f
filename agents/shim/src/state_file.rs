//! The state file of a task: what cannot be read back from the container or the process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use dstack_agent_protocol::Secret;
use dstack_agent_protocol::shim::TaskConfig;
use serde::{Deserialize, Serialize};

use crate::process::ProcessRecord;
use crate::task::{Task, Work};

pub(crate) const FILE_NAME: &str = "task.json";
const VERSION: u32 = 1;

/// Content of `task.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    version: u32,
    pub(crate) id: String,
    pub(crate) config: TaskConfig,
    #[serde(default)]
    pub(crate) termination_reason: String,
    #[serde(default)]
    pub(crate) termination_message: String,
    #[serde(default)]
    pub(crate) cleaned_up: bool,
    /// Our addition: the task runs, or was to run, without a container.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_process: bool,
    /// Our addition: what runs for a task without a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<ProcessRecord>,
    /// Our addition: GPUs of a task without a container, which containers tell themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) gpus: Vec<String>,
}

impl State {
    /// The state of `task`, without the registry login.
    pub(crate) fn of(task: &Task) -> Self {
        let mut config = task.config.clone();
        config.registry_username = String::new();
        config.registry_password = Secret::default();
        Self {
            version: VERSION,
            id: config.id.clone(),
            config,
            termination_reason: task.reason.clone(),
            termination_message: task.message.clone(),
            cleaned_up: task.is_cleaned_up,
            is_process: task.is_process,
            process: match &task.work {
                Work::Process(record) => Some(record.clone()),
                Work::Nothing | Work::Container(_) => None,
            },
            gpus: match &task.work {
                Work::Process(_) => task.gpus.clone().unwrap_or_default(),
                Work::Nothing | Work::Container(_) => Vec::new(),
            },
        }
    }

    /// Writes the file into `dir` so that a reader sees the old or the new content, even after a power cut.
    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        let json = serde_json::to_vec(self)?;
        write_durably(&dir.join(FILE_NAME), &json, 0o600)
    }

    /// Reads the file of `dir`; `None` if there is none.
    pub(crate) fn read(dir: &Path) -> io::Result<Option<Self>> {
        let bytes = match fs::read(dir.join(FILE_NAME)) {
            Ok(bytes) => bytes,
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(err),
        };
        let state: Self = serde_json::from_slice(&bytes)?;
        if state.version != VERSION {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "state file has version {}, known is {VERSION}",
                    state.version
                ),
            ));
        }
        Ok(Some(state))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Replaces `path` by a file with `bytes` and `mode`: temporary file, fsync, rename.
pub(crate) fn write_durably(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let mut file: File = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use serde_json::Value;

    use super::*;

    fn sample() -> Value {
        let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
        let path = root.join("../../tests/contract/agents/shim-file-task-state.json");
        serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap()["content"].clone()
    }

    #[test]
    fn the_sample_round_trips_through_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let state: State = serde_json::from_value(sample()).unwrap();
        state.write(dir.path()).unwrap();
        let path = dir.path().join(FILE_NAME);
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let written: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        assert_eq!(written, sample());
        assert_eq!(State::read(dir.path()).unwrap(), Some(state));
    }

    #[test]
    fn other_versions_are_refused_and_absence_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(State::read(dir.path()).unwrap(), None);
        let mut other = sample();
        other["version"] = 2.into();
        fs::write(dir.path().join(FILE_NAME), other.to_string()).unwrap();
        assert!(
            State::read(dir.path())
                .unwrap_err()
                .to_string()
                .contains("version 2")
        );
    }

    #[test]
    fn the_registry_login_is_not_kept() {
        let config = TaskConfig {
            registry_username: "u".into(),
            registry_password: "p".into(),
            ..TaskConfig::default()
        };
        let json = serde_json::to_value(State::of(&Task::new(config))).unwrap();
        assert_eq!(json["config"]["registry_username"], "");
        assert_eq!(json["config"]["registry_password"], "");
    }
}

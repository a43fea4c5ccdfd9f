//! A task in memory.

use std::path::PathBuf;

use dstack_agent_protocol::Secret;
use dstack_agent_protocol::shim::{
    ImagePullProgress, PortMapping, TaskConfig, TaskInfo, TaskStatus,
};
use sha2::{Digest, Sha256};

use crate::process::ProcessRecord;

/// What runs for a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Work {
    /// Nothing yet, or nothing any more.
    Nothing,
    /// A container, by id.
    Container(String),
    /// A process.
    Process(ProcessRecord),
}

/// Everything known about one task.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// The request, without the registry password once the image is there.
    pub(crate) config: TaskConfig,
    pub(crate) status: TaskStatus,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) ports: Option<Vec<PortMapping>>,
    pub(crate) progress: Option<ImagePullProgress>,
    /// Name of the container and of the task directory.
    pub(crate) name: String,
    pub(crate) work: Work,
    pub(crate) gpus: Option<Vec<String>>,
    /// Whether it runs, or will, without a container.
    pub(crate) is_process: bool,
    /// The task directory, once made.
    pub(crate) dir: Option<PathBuf>,
    /// Whether keys, volumes and GPUs have been given back.
    pub(crate) is_cleaned_up: bool,
}

/// A step that the task's state does not allow; mostly the task was terminated meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a task that is {from} cannot become {to}")]
pub(crate) struct Rejected {
    pub(crate) from: TaskStatus,
    pub(crate) to: TaskStatus,
}

impl Task {
    /// A task just submitted.
    pub(crate) fn new(config: TaskConfig) -> Self {
        Self {
            name: container_name(&config.name, &config.id),
            config,
            status: TaskStatus::Pending,
            reason: String::new(),
            message: String::new(),
            ports: None,
            progress: None,
            work: Work::Nothing,
            gpus: None,
            is_process: false,
            dir: None,
            is_cleaned_up: false,
        }
    }

    /// Goes to `to`.
    pub(crate) fn advance(&mut self, to: TaskStatus) -> Result<(), Rejected> {
        if !self.status.can_become(to) {
            return Err(Rejected {
                from: self.status,
                to,
            });
        }
        self.status = to;
        Ok(())
    }

    /// Drops the registry login, which nothing needs once the image is there.
    pub(crate) fn forget_login(&mut self) {
        self.config.registry_username = String::new();
        self.config.registry_password = Secret::default();
    }

    /// Ends the task. The first reason that is not empty stays.
    pub(crate) fn finish(&mut self, reason: &str, message: &str) {
        self.status = TaskStatus::Terminated;
        if self.reason.is_empty() {
            reason.clone_into(&mut self.reason);
            message.clone_into(&mut self.message);
        }
    }

    /// The task as the API tells it.
    pub(crate) fn info(&self) -> TaskInfo {
        TaskInfo {
            id: self.config.id.clone(),
            status: self.status,
            termination_reason: self.reason.clone(),
            termination_message: self.message.clone(),
            ports: self.ports.clone(),
            image_pull_progress: self.progress,
            container_name: self.name.clone(),
            container_id: match &self.work {
                Work::Container(id) => id.clone(),
                Work::Nothing | Work::Process(_) => String::new(),
            },
            gpus_ids: self.gpus.clone(),
        }
    }
}

/// Name of a task's container: the job's name and eight digits that tell attempts at the same job apart.
pub(crate) fn container_name(name: &str, id: &str) -> String {
    let digest = Sha256::digest(format!("{name}/{id}"));
    let suffix: String = digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{name}-{suffix}")
}

/// Whether `name` can name a container and a directory.
pub(crate) fn is_valid_name(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric();
    name.starts_with(is_word) && name.chars().all(|c| is_word(c) || "_.-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_names_follow_the_rule() {
        // printf 'my-run-0-0/23a2c7a0-6c88-48ee-8028-b9ad9f6f5c24' | sha256sum
        let name = container_name("my-run-0-0", "23a2c7a0-6c88-48ee-8028-b9ad9f6f5c24");
        assert_eq!(name, "my-run-0-0-dc8ea21c");
    }

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        assert!(is_valid_name("my-run.0_1"));
        for name in ["", "../x", "a/b", "-x", ".", "a b", "ä"] {
            assert!(!is_valid_name(name), "{name}");
        }
    }

    #[test]
    fn the_first_reason_wins() {
        let mut task = Task::new(TaskConfig::default());
        task.finish("", "");
        task.finish("executor_error", "first");
        task.finish("terminated_by_user", "second");
        assert_eq!(
            (task.reason.as_str(), task.message.as_str()),
            ("executor_error", "first")
        );
        assert_eq!(
            task.advance(TaskStatus::Running).unwrap_err().from,
            TaskStatus::Terminated
        );
    }
}

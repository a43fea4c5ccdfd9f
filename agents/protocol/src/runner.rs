//! The runner's API: one job, its states and its log.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Secret, nullable};

/// Body of `POST /api/submit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct SubmitRequest {
    /// The run.
    #[serde(deserialize_with = "nullable")]
    pub run: Run,
    /// What to execute.
    #[serde(deserialize_with = "nullable")]
    pub job_spec: JobSpec,
    /// This attempt at the job.
    #[serde(deserialize_with = "nullable")]
    pub job_submission: JobSubmission,
    /// The nodes of the job's replica.
    #[serde(deserialize_with = "nullable")]
    pub cluster_info: ClusterInfo,
    /// Values that go into the environment before `job_spec.env`; servers send none since they fill them in.
    #[serde(deserialize_with = "nullable")]
    pub secrets: BTreeMap<String, Secret>,
    /// How to fetch the repository, if there is one.
    pub repo_credentials: Option<RepoCredentials>,
    /// Log bytes allowed per hour; `None` or 0 means no limit.
    pub log_quota_hour: Option<u64>,
    /// A copy of `run.run_spec` for old runners; ours ignores it.
    #[serde(deserialize_with = "nullable")]
    pub run_spec: RunSpec,
}

/// The run a job belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Run {
    /// Id of the run.
    #[serde(deserialize_with = "nullable")]
    pub id: String,
    /// What the user asked for.
    #[serde(deserialize_with = "nullable")]
    pub run_spec: RunSpec,
}

/// The part of a run's specification that runners get.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct RunSpec {
    /// Name of the run.
    #[serde(deserialize_with = "nullable")]
    pub run_name: String,
    /// Id of the repository; names the uploaded code.
    #[serde(deserialize_with = "nullable")]
    pub repo_id: String,
    /// Kind of the repository.
    #[serde(deserialize_with = "nullable")]
    pub repo_data: RepoData,
    /// The whole run configuration, not interpreted here.
    pub configuration: Value,
    /// Path of the configuration file.
    #[serde(deserialize_with = "nullable")]
    pub configuration_path: String,
}

/// A repository: `remote`, `local` or `virtual`. Fields of other kinds are absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct RepoData {
    /// `remote`, `local` or `virtual`; other words fail when the repository is set up.
    #[serde(deserialize_with = "nullable")]
    pub repo_type: String,
    /// Name of a remote repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo_name: Option<String>,
    /// Branch of a remote repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo_branch: Option<String>,
    /// Commit of a remote repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo_hash: Option<String>,
    /// `user.name` for the clone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo_config_name: Option<String>,
    /// `user.email` for the clone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo_config_email: Option<String>,
    /// Directory of a local repository on the user's machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo_dir: Option<String>,
}

/// What the job executes, and as whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct JobSpec {
    /// Number of the replica.
    #[serde(deserialize_with = "nullable")]
    pub replica_num: u32,
    /// Number of the job in the replica: its rank.
    #[serde(deserialize_with = "nullable")]
    pub job_num: u32,
    /// Jobs in the replica: the number of nodes.
    #[serde(deserialize_with = "nullable")]
    pub jobs_per_replica: u32,
    /// The user to run as; `None` means the runner's own.
    pub user: Option<UnixUser>,
    /// Arguments, the program first.
    #[serde(deserialize_with = "nullable")]
    pub commands: Vec<String>,
    /// Environment of the job; values may be secrets.
    #[serde(deserialize_with = "nullable")]
    pub env: BTreeMap<String, Secret>,
    /// Whether only one branch is cloned.
    pub single_branch: Option<bool>,
    /// Seconds the job may run; `None` or 0 means no limit.
    pub max_duration: Option<u64>,
    /// Key pair with which the nodes of a replica reach each other.
    pub ssh_key: Option<JobSshKey>,
    /// Working directory, absolute or with `~`; `None` means the runner's own.
    pub working_dir: Option<String>,
    /// Repository of the job.
    pub repo_data: Option<RepoData>,
    /// Where the repository goes.
    pub repo_dir: Option<String>,
    /// `error` or `skip` when that directory is not empty; `None` means `skip`.
    pub repo_exists_action: Option<String>,
    /// Uploaded files and where they go.
    #[serde(deserialize_with = "nullable")]
    pub file_archives: Vec<FileArchive>,
}

/// A user by number or by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct UnixUser {
    /// User number.
    pub uid: Option<u32>,
    /// Group number.
    pub gid: Option<u32>,
    /// User name, if there is no number.
    pub username: Option<String>,
    /// Group name, if there is no number.
    pub groupname: Option<String>,
}

/// Key pair of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct JobSshKey {
    /// Private key in PEM form.
    #[serde(deserialize_with = "nullable")]
    pub private: Secret,
    /// Public key line.
    #[serde(deserialize_with = "nullable")]
    pub public: String,
}

/// An uploaded archive and where it is unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct FileArchive {
    /// Id under which it was uploaded.
    #[serde(deserialize_with = "nullable")]
    pub id: String,
    /// Target path.
    #[serde(deserialize_with = "nullable")]
    pub path: String,
}

/// One attempt at a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct JobSubmission {
    /// Id of the attempt.
    #[serde(deserialize_with = "nullable")]
    pub id: String,
}

/// The nodes of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ClusterInfo {
    /// Addresses by rank; an address may be empty.
    #[serde(deserialize_with = "nullable")]
    pub job_ips: Vec<String>,
    /// Address of rank 0.
    #[serde(deserialize_with = "nullable")]
    pub master_job_ip: String,
    /// GPUs of this node.
    #[serde(deserialize_with = "nullable")]
    pub gpus_per_job: u32,
    /// GPUs by rank; empty from old servers.
    #[serde(deserialize_with = "nullable")]
    pub gpus_per_node: Vec<u32>,
}

/// How to fetch a remote repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct RepoCredentials {
    /// URL to clone.
    #[serde(deserialize_with = "nullable")]
    pub clone_url: String,
    /// SSH key, if the URL is an SSH one.
    pub private_key: Option<Secret>,
    /// Token, if the URL is an HTTPS one.
    pub oauth_token: Option<Secret>,
}

/// JSON reply of `POST /api/run`. A reply without JSON means that the user or the directory could not be resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct RunResponse {
    /// Absolute working directory of the job.
    #[serde(deserialize_with = "nullable")]
    pub working_dir: String,
    /// Name of the job's user; empty if it has none.
    #[serde(deserialize_with = "nullable")]
    pub username: String,
}

/// Reply of `GET /api/pull?timestamp=N`: everything later than `N`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct PullResponse {
    /// State changes of the job.
    #[serde(deserialize_with = "nullable")]
    pub job_states: Vec<JobStateEvent>,
    /// Output of the job.
    #[serde(deserialize_with = "nullable")]
    pub job_logs: Vec<LogEvent>,
    /// The runner's own log.
    #[serde(deserialize_with = "nullable")]
    pub runner_logs: Vec<LogEvent>,
    /// Latest timestamp issued; the caller's next `N`.
    #[serde(deserialize_with = "nullable")]
    pub last_updated: i64,
    /// Seconds without an SSH connection of a user.
    #[serde(deserialize_with = "nullable")]
    pub no_connections_secs: i64,
    /// Whether more may come; `false` only when the job is over and all is recorded.
    #[serde(deserialize_with = "nullable")]
    pub has_more: bool,
}

/// State of a job as runners tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The command has been started.
    Running,
    /// Ended with code 0.
    Done,
    /// Ended otherwise, or could not start.
    Failed,
    /// Ended because it was told to.
    Terminated,
    /// Declared by the API, never sent.
    Terminating,
}

/// A state change of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStateEvent {
    /// The new state.
    pub state: JobState,
    /// When, in milliseconds of the runner's clock; see [`PullResponse::last_updated`].
    pub timestamp: i64,
    /// Why, if there is more to say than the state; a word of [`crate::reason`] or empty.
    #[serde(default, deserialize_with = "nullable")]
    pub termination_reason: String,
    /// Detail of the reason.
    #[serde(default, deserialize_with = "nullable")]
    pub termination_message: String,
    /// Exit code; -1 if a signal ended it, `None` if it did not end or never started.
    #[serde(default)]
    pub exit_status: Option<i32>,
}

/// A piece of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEvent {
    /// When, in milliseconds of the runner's clock.
    pub timestamp: i64,
    /// Raw bytes in standard base64.
    pub message: String,
}

/// Reply of `GET /api/metrics`; 404 where the machine offers none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Metrics {
    /// When, in microseconds since 1970.
    pub timestamp_micro: i64,
    /// CPU time used so far, in microseconds.
    pub cpu_usage_micro: u64,
    /// Memory used.
    pub memory_usage_bytes: u64,
    /// Memory used without what can be dropped at once.
    pub memory_working_set_bytes: u64,
    /// One entry a GPU.
    #[serde(deserialize_with = "nullable")]
    pub gpus: Vec<GpuMetrics>,
}

/// Load of one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct GpuMetrics {
    /// GPU memory used.
    pub gpu_memory_usage_bytes: u64,
    /// Load in percent.
    pub gpu_util_percent: u32,
}

use std::sync::Arc;

use dstack_api::jobs::{JobSpec, JobStatus, JobTerminationReason};
use dstack_backend_types::{JobProvisioningData, JobRuntimeData};
use jiff::Timestamp;

use crate::ids::{InstanceId, JobId, ProjectId, RunId};

/// How far the end of a terminating job has come. Each step is stored before the next begins.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The container is removed without asking the runner first.
    #[default]
    Hard,
    /// The runner is to be asked to stop; not done yet.
    Requested,
    /// The runner has been asked, or could not be reached: its last logs are read until `remove_at`.
    Sent,
    /// The container is gone, or the shim could not be reached; instance checks remove what it left.
    Removed,
}

/// One submission of one job of a run. A retry makes a new row with the next `submission_num`.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRow {
    /// Id of this submission; also the id of the shim's task.
    pub id: JobId,
    /// The run it belongs to.
    pub run_id: RunId,
    /// The project of the run.
    pub project_id: ProjectId,
    /// The instance it runs on, or the placeholder that is being provisioned for it.
    pub instance_id: Option<InstanceId>,
    /// Replica within the run, from 0.
    pub replica_num: u32,
    /// Node within the replica, from 0.
    pub job_num: u32,
    /// 0 for the first submission of this job, then counted up.
    pub submission_num: u32,
    /// `<run>-<job_num>-<replica_num>`.
    pub name: Arc<str>,
    /// What to run.
    pub spec: Arc<JobSpec>,
    /// The deployment of the run that this job was made for.
    pub deployment_num: u32,
    /// Where it stands.
    pub status: JobStatus,
    /// Why it is terminating or finished.
    pub termination_reason: Option<JobTerminationReason>,
    /// Details of the reason, for people.
    pub termination_reason_message: Option<String>,
    /// Exit status of the user's commands, as the runner reported it.
    pub exit_status: Option<i64>,
    /// When this submission was made.
    pub submitted_at: Timestamp,
    /// When a pipeline last wrote it.
    pub last_processed_at: Timestamp,
    /// When it began to run; `max_duration` counts from here.
    pub started_at: Option<Timestamp>,
    /// When it reached a final status.
    pub finished_at: Option<Timestamp>,
    /// How far its end has come; meaningful while terminating.
    pub stop: Stop,
    /// Until when the remaining logs of a terminating job are read.
    pub remove_at: Option<Timestamp>,
    /// The machine, as the backend described it; without host name until the address is known.
    pub provisioning_data: Option<Arc<JobProvisioningData>>,
    /// Share of the machine, ports, names reported by the runner.
    pub runtime_data: Option<Arc<JobRuntimeData>>,
    /// Blocks of the instance that this job holds; 0 when it holds none.
    pub blocks: u32,
    /// Position in the runner's events: its `last_updated` of the last stored pull, in milliseconds.
    pub runner_timestamp: i64,
    /// Since when the agents do not answer; `None` while they do.
    pub disconnected_at: Option<Timestamp>,
    /// Seconds without a connection to the job, as the runner reported; dev environments only.
    pub inactivity_secs: Option<i64>,
    /// Job 0 is placed and lets this job look for its machine. Always true for job 0 itself.
    pub released: bool,
    /// Its replica takes traffic (services).
    pub registered: bool,
}

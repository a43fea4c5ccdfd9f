//! Runs: what users submit.

mod status;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::config::{Profile, RunConfiguration};
use crate::jobs::{FileArchiveMapping, Job, JobPlan, JobSubmission};
use crate::repos::RunRepoData;
use crate::words::wire_enum;

pub use status::{RunStatus, RunTerminationReason};

/// What the user wants to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSpec {
    /// Name; none lets the server choose.
    #[serde(default)]
    pub run_name: Option<String>,
    /// Repository's id; none is `none`, the virtual repository.
    #[serde(default)]
    pub repo_id: Option<String>,
    /// Repository.
    #[serde(default)]
    pub repo_data: Option<RunRepoData>,
    /// Hash of the uploaded difference to the repository.
    #[serde(default)]
    pub repo_code_hash: Option<String>,
    /// Where the repository goes.
    #[serde(default)]
    pub repo_dir: Option<String>,
    /// Files.
    #[serde(default)]
    pub file_archives: Vec<FileArchiveMapping>,
    /// Not used any more; kept for old clients.
    #[serde(default)]
    pub working_dir: Option<String>,
    /// Where the configuration file was, relative to the user's folder.
    #[serde(default)]
    pub configuration_path: Option<String>,
    /// The configuration file's content.
    pub configuration: RunConfiguration,
    /// Profile merged below the configuration.
    #[serde(default)]
    pub profile: Option<Profile>,
    /// Key that may log in to the job; none is the user's own.
    #[serde(default)]
    pub ssh_key_pub: Option<String>,
}

/// The fleet a run uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunFleet {
    /// Id; version 4, since clients insist.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Name.
    pub name: String,
}

/// A model that a service serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceModelSpec {
    /// Name.
    pub name: String,
    /// Address of the model API; relative ones are joined with the server's.
    pub base_url: String,
    /// `chat`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Where a service is reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceSpec {
    /// Address; relative ones are joined with the server's.
    pub url: String,
    /// Model.
    #[serde(default)]
    pub model: Option<ServiceModelSpec>,
    /// Details of the model's API, under `openai`.
    #[serde(default)]
    pub options: serde_json::Map<String, serde_json::Value>,
}

/// A run as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Id; version 4, since clients insist.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Project.
    pub project_name: String,
    /// Who submitted it.
    pub user: String,
    /// Fleet in use.
    #[serde(default)]
    pub fleet: Option<RunFleet>,
    /// When it was submitted.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub submitted_at: Timestamp,
    /// When the server last looked at it.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub last_processed_at: Timestamp,
    /// Status.
    pub status: RunStatus,
    /// Text for screens: the status, `pulling` or `retrying`.
    #[serde(default)]
    pub status_message: String,
    /// A word of [`RunTerminationReason`]; newer servers may send others.
    #[serde(default)]
    pub termination_reason: Option<String>,
    /// What the user wants.
    pub run_spec: RunSpec,
    /// Jobs by replica and number.
    pub jobs: Vec<Job>,
    /// The last try of the first job.
    #[serde(default)]
    pub latest_job_submission: Option<JobSubmission>,
    /// US dollars so far.
    #[serde(default)]
    pub cost: f64,
    /// Where the service is reached.
    #[serde(default)]
    pub service: Option<ServiceSpec>,
    /// Number of in-place updates.
    #[serde(default)]
    pub deployment_num: u32,
    /// What went wrong, for people.
    #[serde(default)]
    pub error: Option<String>,
    /// Whether it was deleted, or replaced by a newer run of the same name.
    #[serde(default)]
    pub deleted: Option<bool>,
    /// When its schedule starts it next.
    #[serde(default, with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub next_triggered_at: Option<Timestamp>,
}

wire_enum! {
    /// What applying a plan does.
    pub enum ApplyAction {
        /// Makes something new, in place of a finished one of that name if there is one.
        Create = "create",
        /// Changes what is there.
        Update = "update",
    }
}

/// What applying a [`RunSpec`] would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPlan {
    /// Project.
    pub project_name: String,
    /// Who asks.
    pub user: String,
    /// The request's spec in normal form.
    pub run_spec: RunSpec,
    /// The spec that would be stored.
    #[serde(default)]
    pub effective_run_spec: Option<RunSpec>,
    /// The jobs; at least one.
    pub job_plans: Vec<JobPlan>,
    /// The run of that name.
    #[serde(default)]
    pub current_resource: Option<Run>,
    /// Whether applying makes a run or changes one.
    pub action: ApplyAction,
}

/// `POST /api/runs/list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListRunsRequest {
    /// Only this project.
    pub project_name: Option<String>,
    /// Only this repository; needs a project.
    pub repo_id: Option<String>,
    /// Only this user's.
    pub username: Option<String>,
    /// Only runs that are not finished.
    pub only_active: bool,
    /// Whether to send the jobs.
    pub include_jobs: bool,
    /// How many tries to send per job, newest ones, 0 to 10; none is 10.
    pub job_submissions_limit: Option<u32>,
    /// Cursor: time of the last row of the previous page.
    #[serde(with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub prev_submitted_at: Option<Timestamp>,
    /// Cursor: id of that row.
    #[schemars(with = "Option<crate::schema::Id>")]
    pub prev_run_id: Option<Uuid>,
    /// Page size, at most 100.
    pub limit: u32,
    /// Oldest first.
    pub ascending: bool,
}

impl Default for ListRunsRequest {
    fn default() -> Self {
        Self {
            project_name: None,
            repo_id: None,
            username: None,
            only_active: false,
            include_jobs: true,
            job_submissions_limit: None,
            prev_submitted_at: None,
            prev_run_id: None,
            limit: 100,
            ascending: false,
        }
    }
}

/// `POST /api/project/{project}/runs/get`; one of the two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GetRunRequest {
    /// Name of a run that is not deleted.
    pub run_name: Option<String>,
    /// Id, also of a deleted one.
    #[schemars(with = "Option<crate::schema::Id>")]
    pub id: Option<Uuid>,
}

/// `POST /api/project/{project}/runs/get_plan`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GetRunPlanRequest {
    /// What the user wants.
    pub run_spec: RunSpec,
    /// How many offers to send per job, 1 to 10000; none is 50.
    #[serde(default)]
    pub max_offers: Option<u32>,
    /// Dearest first. Left out when unset, since older servers do not know it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reverse_offers: bool,
    /// Whole machines instead of shares.
    #[serde(default)]
    pub full_offers: bool,
    /// Only what is free right now on existing machines.
    #[serde(default)]
    pub unallocated_resources: bool,
    /// Whether only the offers matter; fleets are then not required.
    #[serde(default)]
    pub for_offers_only: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
pub(crate) const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The plan as the client saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApplyRunPlanInput {
    /// What the user wants.
    pub run_spec: RunSpec,
    /// The run the client compared with.
    #[serde(default)]
    pub current_resource: Option<Run>,
}

/// `POST /api/project/{project}/runs/apply`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApplyRunPlanRequest {
    /// The plan.
    pub plan: ApplyRunPlanInput,
    /// Apply even if the run changed since.
    pub force: bool,
}

/// `POST /api/project/{project}/runs/stop`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StopRunsRequest {
    /// Which; unknown and finished ones are ignored.
    pub runs_names: Vec<String>,
    /// Without grace period.
    pub abort: bool,
}

/// `POST /api/project/{project}/runs/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteRunsRequest {
    /// Which; unknown ones are ignored.
    pub runs_names: Vec<String>,
}

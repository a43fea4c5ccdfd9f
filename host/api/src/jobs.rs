//! Jobs: one process on one machine, and each try to run it.

mod status;

use std::collections::BTreeMap;

use dstack_backend_types::{InstanceOfferWithAvailability, Requirements, Secret};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::config::{MountPoint, UtilizationPolicy};
use crate::repos::RunRepoData;
use crate::words::wire_enum;

pub use dstack_backend_types::{JobProvisioningData, JobRuntimeData, NetworkMode, RegistryAuth};
pub use status::{JobStatus, JobTerminationReason, RetryEvent, status_message};

/// A port of the job that the client forwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppSpec {
    /// Port in the container.
    pub port: u16,
    /// Port on the user's machine; none lets the client choose.
    #[serde(default)]
    pub map_to_port: Option<u16>,
    /// `app_<n>`.
    pub app_name: String,
    /// Path to append to the address that is shown.
    #[serde(default)]
    pub url_path: Option<String>,
    /// Query to append to the address that is shown.
    #[serde(default)]
    pub url_query_params: Option<BTreeMap<String, String>>,
}

/// Who the commands run as. Names and numbers may be mixed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UnixUser {
    /// User number.
    pub uid: Option<u32>,
    /// Group number.
    pub gid: Option<u32>,
    /// User name.
    pub username: Option<String>,
    /// Group name.
    pub groupname: Option<String>,
}

/// Retry policy of a job, fixed when the run was submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Retry {
    /// What is retried.
    pub on_events: Vec<RetryEvent>,
    /// For how long, in seconds.
    pub duration: i64,
    /// How often at most; no limit if unset. Not in the compatible language, so absent on the wire when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
}

/// Key pair shared by the jobs of one replica. Stored, but never shown by the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobSshKey {
    /// OpenSSH private key.
    pub private: Secret<String>,
    /// OpenSSH public key.
    pub public: String,
}

wire_enum! {
    /// What to do when the repository's folder already has content.
    pub enum RepoExistsAction {
        /// Fail the job.
        Error = "error",
        /// Leave the folder as it is.
        Skip = "skip",
    }
}

wire_enum! {
    /// Method of an HTTP probe.
    pub enum HttpMethod {
        /// GET.
        Get = "get",
        /// POST.
        Post = "post",
        /// PUT.
        Put = "put",
        /// DELETE.
        Delete = "delete",
        /// PATCH.
        Patch = "patch",
        /// HEAD.
        Head = "head",
    }
}

wire_enum! {
    /// Kind of a probe.
    pub enum ProbeType {
        /// An HTTP request.
        Http = "http",
    }
}

/// A header of a probe's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HttpHeader {
    /// Name.
    pub name: String,
    /// Value.
    pub value: String,
}

/// A readiness probe with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeSpec {
    /// Kind.
    #[serde(rename = "type")]
    pub kind: ProbeType,
    /// Path to ask for.
    pub url: String,
    /// Method.
    #[serde(default = "get")]
    pub method: HttpMethod,
    /// Headers.
    #[serde(default)]
    pub headers: Vec<HttpHeader>,
    /// Body.
    #[serde(default)]
    pub body: Option<String>,
    /// Seconds to wait for the answer.
    pub timeout: u32,
    /// Seconds between two probes.
    pub interval: u32,
    /// Successes in a row until the replica is ready.
    pub ready_after: u32,
    /// Stop probing once ready.
    #[serde(default)]
    pub until_ready: bool,
}

const fn get() -> HttpMethod {
    HttpMethod::Get
}

/// One archive of files and where its content goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileArchiveMapping {
    /// Archive's id, as `files/upload_archive` answered it.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Path in the container; relative to the working folder, or absolute.
    pub path: String,
}

/// Everything one job needs, worked out from the run when it is submitted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobSpec {
    /// Replica, from 0.
    #[serde(default)]
    pub replica_num: u32,
    /// Node within the replica, from 0.
    pub job_num: u32,
    /// `<run>-<job>-<replica>`.
    pub job_name: String,
    /// Nodes of the replica.
    #[serde(default = "one")]
    pub jobs_per_replica: u32,
    /// Replica group of a service.
    #[serde(default = "group_zero")]
    pub replica_group: String,
    /// Ports that clients forward.
    #[serde(default)]
    pub app_specs: Option<Vec<AppSpec>>,
    /// Who the commands run as.
    #[serde(default)]
    pub user: Option<UnixUser>,
    /// Program and arguments.
    pub commands: Vec<String>,
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// Home folder.
    #[serde(default)]
    pub home_dir: Option<String>,
    /// Image.
    pub image_name: String,
    /// Whether the container is privileged.
    #[serde(default)]
    pub privileged: bool,
    /// Whether only one branch of the repository is fetched.
    #[serde(default)]
    pub single_branch: Option<bool>,
    /// Seconds the commands may run.
    #[serde(default)]
    pub max_duration: Option<i64>,
    /// Seconds between asking the commands to stop and killing them.
    #[serde(default)]
    pub stop_duration: Option<i64>,
    /// When badly used GPUs end the job.
    #[serde(default)]
    pub utilization_policy: Option<UtilizationPolicy>,
    /// Login for the image's registry.
    #[serde(default)]
    #[schemars(with = "Option<crate::schema::RegistryAuth>")]
    pub registry_auth: Option<RegistryAuth>,
    /// What the machine must have.
    #[schemars(with = "crate::schema::Requirements")]
    pub requirements: Requirements,
    /// Retry policy.
    #[serde(default)]
    pub retry: Option<Retry>,
    /// Mounts.
    #[serde(default)]
    pub volumes: Option<Vec<MountPoint>>,
    /// Key pair of the replica's nodes; always null in what the API shows.
    #[serde(default)]
    pub ssh_key: Option<JobSshKey>,
    /// Folder the commands start in; none is the image's, or the repository's.
    #[serde(default)]
    pub working_dir: Option<String>,
    /// Repository.
    #[serde(default)]
    pub repo_data: Option<RunRepoData>,
    /// Hash of the uploaded difference to the repository.
    #[serde(default)]
    pub repo_code_hash: Option<String>,
    /// Where the repository goes.
    #[serde(default = "workflow")]
    pub repo_dir: String,
    /// What to do when that folder has content.
    #[serde(default)]
    pub repo_exists_action: Option<RepoExistsAction>,
    /// Files.
    #[serde(default)]
    pub file_archives: Vec<FileArchiveMapping>,
    /// Port of the service.
    #[serde(default)]
    pub service_port: Option<u16>,
    /// Readiness probes.
    #[serde(default)]
    pub probes: Vec<ProbeSpec>,
    /// Node group of a task: position.
    #[serde(default)]
    pub node_group_index: u32,
    /// Node group of a task: name.
    #[serde(default = "group_zero")]
    pub node_group_name: String,
    /// Position within the node group.
    #[serde(default)]
    pub node_group_job_index: u32,
}

const fn one() -> u32 {
    1
}

fn group_zero() -> String {
    "0".to_owned()
}

fn workflow() -> String {
    "/workflow".to_owned()
}

/// How far a probe got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// Successes in a row.
    pub success_streak: u32,
}

/// How far the image is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImagePullProgress {
    /// Bytes fetched.
    pub downloaded_bytes: u64,
    /// Bytes unpacked.
    pub extracted_bytes: u64,
    /// Bytes known so far.
    pub total_bytes: u64,
    /// Whether the total is known for all layers.
    pub is_total_bytes_final: bool,
}

/// One try to run a job, as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobSubmission {
    /// Id; version 4, since clients insist.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Number of the try, from 0.
    pub submission_num: u32,
    /// The run's deployment it belongs to.
    #[serde(default)]
    pub deployment_num: u32,
    /// When it was made.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub submitted_at: Timestamp,
    /// When the server last looked at it.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub last_processed_at: Timestamp,
    /// When it ended.
    #[serde(default, with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub finished_at: Option<Timestamp>,
    /// Seconds without connections.
    #[serde(default)]
    pub inactivity_secs: Option<i64>,
    /// Status.
    pub status: JobStatus,
    /// Text of the STATUS column.
    #[serde(default)]
    pub status_message: String,
    /// A word of [`JobTerminationReason`]; newer servers may send others.
    #[serde(default)]
    pub termination_reason: Option<String>,
    /// Details of the reason.
    #[serde(default)]
    pub termination_reason_message: Option<String>,
    /// Exit code of the commands.
    #[serde(default)]
    pub exit_status: Option<i64>,
    /// The machine.
    #[serde(default)]
    #[schemars(with = "Option<crate::schema::JobProvisioningData>")]
    pub job_provisioning_data: Option<JobProvisioningData>,
    /// What it got on the machine.
    #[serde(default)]
    #[schemars(with = "Option<crate::schema::JobRuntimeData>")]
    pub job_runtime_data: Option<JobRuntimeData>,
    /// What went wrong, for people.
    #[serde(default)]
    pub error: Option<String>,
    /// Probes in the order of the spec.
    #[serde(default)]
    pub probes: Vec<Probe>,
    /// How far the image is fetched.
    #[serde(default)]
    pub image_pull_progress: Option<ImagePullProgress>,
}

/// How to reach a running job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JobConnectionInfo {
    /// Name of the IDE.
    pub ide_name: Option<String>,
    /// Address that opens the IDE once attached.
    pub attached_ide_url: Option<String>,
    /// Address that opens the IDE through the SSH proxy.
    pub proxied_ide_url: Option<String>,
    /// Command for a shell once attached.
    pub attached_ssh_command: Option<Vec<String>>,
    /// Command for a shell through the SSH proxy.
    pub proxied_ssh_command: Option<Vec<String>>,
    /// SSH proxy.
    pub sshproxy_hostname: Option<String>,
    /// Its port; none is 22.
    pub sshproxy_port: Option<u16>,
    /// The job's name at the proxy.
    pub sshproxy_upstream_id: Option<String>,
}

/// A job and its tries, as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// What it needs.
    pub job_spec: JobSpec,
    /// Its tries, oldest first.
    pub job_submissions: Vec<JobSubmission>,
    /// How to reach it; only from `runs/get` and while it runs.
    #[serde(default)]
    pub job_connection_info: Option<JobConnectionInfo>,
}

/// A job that would be made, and the machines it could get.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobPlan {
    /// What it needs.
    pub job_spec: JobSpec,
    /// The first offers.
    #[schemars(with = "Vec<crate::schema::InstanceOfferWithAvailability>")]
    pub offers: Vec<InstanceOfferWithAvailability>,
    /// How many offers there are.
    pub total_offers: u64,
    /// The highest price among all offers, US dollars per hour.
    #[serde(default)]
    pub max_price: Option<f64>,
}

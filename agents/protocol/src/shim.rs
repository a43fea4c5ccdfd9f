//! The shim's API: tasks on one machine, the machine itself, the agents' own binaries.

use serde::{Deserialize, Serialize};

use crate::{Secret, nullable};

/// Longest wait of the long poll of a task, in milliseconds; below the 9 s that clients wait for any call.
pub const LONG_POLL_MAX_MS: u64 = 8_000;

/// Where a task is in its life.
///
/// ```text
/// pending ─► preparing ─► pulling ─► creating ─► running ─► terminated     (and any ─► terminated)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Accepted, nothing done yet.
    Pending,
    /// Getting GPUs, directories, keys and volumes.
    Preparing,
    /// Pulling the image.
    Pulling,
    /// Making the container.
    Creating,
    /// The runner has been started and the ports are known.
    Running,
    /// Over; nothing leaves this state.
    Terminated,
}

impl TaskStatus {
    /// Every status, in the order of a task's life.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Preparing,
        Self::Pulling,
        Self::Creating,
        Self::Running,
        Self::Terminated,
    ];

    /// Whether a task may go from `self` to `next`. `running` may be entered again (to publish ports), and so may
    /// `terminated` (terminating twice is no error).
    pub const fn can_become(self, next: Self) -> bool {
        match next {
            Self::Pending => false,
            Self::Preparing => matches!(self, Self::Pending),
            Self::Pulling => matches!(self, Self::Preparing),
            Self::Creating => matches!(self, Self::Pulling),
            Self::Running => matches!(self, Self::Creating | Self::Running),
            Self::Terminated => true,
        }
    }

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Preparing => "preparing",
            Self::Pulling => "pulling",
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Terminated => "terminated",
        }
    }

    /// The status of a word on the wire.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

impl std::fmt::Display for TaskStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a container is connected; an empty or missing word on the wire means `host`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkMode {
    /// The machine's own network; ports are not mapped.
    #[default]
    #[serde(alias = "")]
    Host,
    /// Docker's bridge; the agents' ports are mapped to free ports of the machine's loopback.
    Bridge,
}

/// Body of `POST /api/tasks`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct TaskConfig {
    /// Id of the job's submission.
    #[serde(deserialize_with = "nullable")]
    pub id: String,
    /// Name of the job, `<run>-<job number>-<replica number>`.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Registry login; empty with an empty password means anonymous.
    #[serde(deserialize_with = "nullable")]
    pub registry_username: String,
    /// Registry password.
    #[serde(deserialize_with = "nullable")]
    pub registry_password: Secret,
    /// Image reference; the process runtime needs the field but does not use it.
    #[serde(deserialize_with = "nullable")]
    pub image_name: String,
    /// User in the container; empty means `root`, which the runner needs.
    #[serde(deserialize_with = "nullable")]
    pub container_user: String,
    /// Whether the container gets all of the machine's devices and capabilities.
    #[serde(deserialize_with = "nullable")]
    pub privileged: bool,
    /// GPUs wanted: -1 every free one (even none), 0 none, else exactly so many.
    #[serde(deserialize_with = "nullable")]
    pub gpu: i64,
    /// CPUs; 0 means no limit.
    #[serde(deserialize_with = "nullable")]
    pub cpu: f64,
    /// Memory in bytes; 0 means no limit.
    #[serde(deserialize_with = "nullable")]
    pub memory: i64,
    /// Size of `/dev/shm` in bytes; 0 means Docker's default.
    #[serde(deserialize_with = "nullable")]
    pub shm_size: i64,
    /// Host or bridge network.
    #[serde(deserialize_with = "nullable")]
    pub network_mode: NetworkMode,
    /// Network disks to mount on the machine first.
    #[serde(deserialize_with = "nullable")]
    pub volumes: Vec<VolumeInfo>,
    /// Where those disks appear in the container.
    #[serde(deserialize_with = "nullable")]
    pub volume_mounts: Vec<VolumeMount>,
    /// Directories of the machine to be seen in the container.
    #[serde(deserialize_with = "nullable")]
    pub instance_mounts: Vec<InstanceMount>,
    /// Exact device list that replaces what the GPU vendor would need.
    #[serde(deserialize_with = "nullable")]
    pub gpu_devices: Vec<GpuDevice>,
    /// Account of the machine that gets `host_ssh_keys`.
    #[serde(deserialize_with = "nullable")]
    pub host_ssh_user: String,
    /// Public keys that may log in to the machine while the task lives.
    #[serde(deserialize_with = "nullable")]
    pub host_ssh_keys: Vec<String>,
    /// Public keys that may log in to the container.
    #[serde(deserialize_with = "nullable")]
    pub container_ssh_keys: Vec<String>,
}

/// A network disk of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct VolumeInfo {
    /// Backend that made the disk.
    #[serde(deserialize_with = "nullable")]
    pub backend: String,
    /// The user's name of the volume.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// The provider's id of the disk.
    #[serde(deserialize_with = "nullable")]
    pub volume_id: String,
    /// Whether a blank disk may be formatted.
    #[serde(deserialize_with = "nullable")]
    pub init_fs: bool,
    /// Device name under which the provider attached it, if it said so.
    pub device_name: Option<String>,
}

/// Where a network disk appears in the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct VolumeMount {
    /// Name of a volume of the task.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Path in the container.
    #[serde(deserialize_with = "nullable")]
    pub path: String,
}

/// A directory of the machine seen in the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct InstanceMount {
    /// Path on the machine; made if it does not exist.
    #[serde(deserialize_with = "nullable")]
    pub instance_path: String,
    /// Path in the container.
    #[serde(deserialize_with = "nullable")]
    pub path: String,
    /// For the server's planning only; the shim mounts it all the same.
    #[serde(deserialize_with = "nullable")]
    pub optional: bool,
}

/// A device file handed to the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct GpuDevice {
    /// Device file of the machine.
    #[serde(deserialize_with = "nullable")]
    pub path_on_host: String,
    /// Its path in the container.
    #[serde(deserialize_with = "nullable")]
    pub path_in_container: String,
}

/// State of one task; reply of `GET /api/tasks/{id}`, submit and terminate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Id of the task.
    pub id: String,
    /// Where it is in its life.
    pub status: TaskStatus,
    /// Why it ended; empty before.
    #[serde(default, deserialize_with = "nullable")]
    pub termination_reason: String,
    /// Detail of the reason; may be empty.
    #[serde(default, deserialize_with = "nullable")]
    pub termination_message: String,
    /// Port mappings; `None` until known, and the server waits that long. Empty with host networking.
    #[serde(default)]
    pub ports: Option<Vec<PortMapping>>,
    /// Progress of the pull; `None` before the first layer and after a restart.
    #[serde(default)]
    pub image_pull_progress: Option<ImagePullProgress>,
    /// Name of the container or of the task directory.
    #[serde(default, deserialize_with = "nullable")]
    pub container_name: String,
    /// Id of the container; empty until there is one, and always in the process runtime.
    #[serde(default, deserialize_with = "nullable")]
    pub container_id: String,
    /// GPUs owned by the task (the plural is the API's).
    #[serde(default)]
    pub gpus_ids: Option<Vec<String>>,
}

/// A port of the container and the port of the machine that leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMapping {
    /// Port of the machine's loopback.
    pub host: u16,
    /// Port in the container, for example [`crate::RUNNER_PORT`].
    pub container: u16,
}

/// How far a pull is, summed over the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImagePullProgress {
    /// Bytes downloaded.
    pub downloaded_bytes: u64,
    /// Bytes unpacked.
    pub extracted_bytes: u64,
    /// Bytes known so far.
    pub total_bytes: u64,
    /// Whether every layer's size is known.
    pub is_total_bytes_final: bool,
}

/// Reply of `GET /api/tasks`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskList {
    /// All known tasks, terminated ones too.
    #[serde(deserialize_with = "nullable")]
    pub tasks: Vec<TaskListItem>,
}

/// One task of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskListItem {
    /// Id of the task.
    pub id: String,
    /// Where it is in its life.
    pub status: TaskStatus,
}

/// Body of `POST /api/tasks/{id}/terminate`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TerminateRequest {
    /// Why; kept only if the task has no reason yet.
    #[serde(deserialize_with = "nullable")]
    pub termination_reason: String,
    /// Detail of the reason.
    #[serde(deserialize_with = "nullable")]
    pub termination_message: String,
    /// Seconds between the polite and the hard end; 0 kills at once.
    #[serde(deserialize_with = "nullable")]
    pub timeout: u32,
}

/// Body of `POST /api/shutdown`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ShutdownRequest {
    /// Whether requests in flight are cut off.
    #[serde(deserialize_with = "nullable")]
    pub force: bool,
}

/// Reply of `GET /api/instance/health`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InstanceHealth {
    /// What NVIDIA's library says; `None` where it is absent.
    #[serde(default)]
    pub dcgm: Option<DcgmHealth>,
}

/// Health of the machine's NVIDIA GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DcgmHealth {
    /// 0 pass, 10 warning, 20 failure.
    pub overall_health: i64,
    /// What was found, worst first.
    #[serde(default, deserialize_with = "nullable")]
    pub incidents: Vec<DcgmIncident>,
}

/// One finding about a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DcgmIncident {
    /// The watched part, by the library's number.
    pub system: i64,
    /// 0 pass, 10 warning, 20 failure.
    pub health: i64,
    /// Text for the user.
    pub error_message: String,
    /// The library's error number.
    pub error_code: i64,
    /// Kind of the entity, by the library's number.
    pub entity_group_id: i64,
    /// The entity, for example the GPU's index.
    pub entity_id: i64,
}

/// Reply of `GET /api/instance/info`; unknown fields are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InstanceInfo {
    /// `nvidia`, `amd`, `intel` or `tenstorrent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_vendor: Option<String>,
    /// Driver version of the first GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_driver_version: Option<String>,
}

/// Reply of `GET /api/components`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ComponentList {
    /// The runner and the shim.
    #[serde(deserialize_with = "nullable")]
    pub components: Vec<Component>,
}

/// One of the agents' binaries on the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// `dstack-runner` or `dstack-shim`.
    pub name: String,
    /// Version of the file; empty unless installed.
    #[serde(default, deserialize_with = "nullable")]
    pub version: String,
    /// State of the file.
    pub status: ComponentStatus,
}

/// State of an agent's binary on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComponentStatus {
    /// There is no such file.
    NotInstalled,
    /// The file is there and told its version.
    Installed,
    /// A download runs.
    Installing,
    /// The file is there but does not work.
    Error,
}

/// Body of `POST /api/components/install`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InstallRequest {
    /// `dstack-runner` or `dstack-shim`.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Where to download it.
    #[serde(deserialize_with = "nullable")]
    pub url: String,
}

/// Content of `host_info.json`, by which a host added by SSH tells what it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    /// `none`, `nvidia`, `amd`, `intel` or `tenstorrent`.
    pub gpu_vendor: String,
    /// Name of the first GPU; empty without GPUs.
    #[serde(default, deserialize_with = "nullable")]
    pub gpu_name: String,
    /// Memory of the first GPU, in MiB.
    #[serde(default, deserialize_with = "nullable")]
    pub gpu_memory: u64,
    /// Number of GPUs.
    #[serde(default, deserialize_with = "nullable")]
    pub gpu_count: u32,
    /// Addresses with prefix length, without the loopback.
    #[serde(default, deserialize_with = "nullable")]
    pub addresses: Vec<String>,
    /// Free bytes of the file system that holds images and tasks.
    pub disk_size: u64,
    /// Logical CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
}

//! The bodies that agents get: from rows to the agents' wire.

use bytes::Bytes;
use dstack_agent_protocol::Secret;
use dstack_agent_protocol::runner::{
    ClusterInfo, FileArchive, JobSpec, JobSshKey, JobSubmission, RepoCredentials, RepoData, Run,
    RunSpec, SubmitRequest, UnixUser,
};
use dstack_agent_protocol::shim::{
    InstanceMount, NetworkMode, TaskConfig, VolumeInfo, VolumeMount,
};
use dstack_api::config::MountPoint;
use dstack_api::jobs::NetworkMode as JobNetwork;
use dstack_api::repos::{RemoteRepoCreds, RunRepoData};
use dstack_engine::job_running::Cluster;
use dstack_engine::model::{Held, JobRow, RunRow};
use dstack_engine::volumes::mounts;
use dstack_remote::KeyPair;

/// Everything for the task of a job, beside the job.
#[derive(Debug)]
pub(crate) struct TaskOrder<'a> {
    pub(crate) job: &'a JobRow,
    /// The volumes that hang on the machine for it.
    pub(crate) volumes: &'a [Held],
    /// Public keys that may enter the container: the project's and the user's.
    pub(crate) container_ssh_keys: Vec<String>,
    /// The account of the machine that gets the user's key, to serve as a jump host.
    pub(crate) host_ssh_user: String,
    /// The user's public keys.
    pub(crate) host_ssh_keys: Vec<String>,
    /// User name and password of the image's registry, with secrets filled in.
    pub(crate) registry: Option<(String, String)>,
}

impl TaskOrder<'_> {
    /// The body of the shim's task.
    pub(crate) fn config(self) -> TaskConfig {
        let job = self.job;
        let spec = &job.spec;
        let runtime = job.runtime_data.as_deref();
        let (user, password) = self.registry.unwrap_or_default();
        TaskConfig {
            id: job.id.to_string(),
            name: job.name.to_string(),
            registry_username: user,
            registry_password: Secret::new(password),
            image_name: spec.image_name.clone(),
            container_user: "root".to_owned(),
            privileged: spec.privileged,
            gpu: runtime.and_then(|data| data.gpu).map_or(-1, i64::from),
            cpu: runtime.and_then(|data| data.cpu).unwrap_or(0.0),
            memory: runtime.and_then(|data| data.memory).map_or(0, gigabytes),
            shm_size: spec
                .requirements
                .resources
                .shm_size
                .map_or(0, |size| gigabytes(size.0)),
            network_mode: match runtime.map(|data| data.network_mode) {
                Some(JobNetwork::Bridge) => NetworkMode::Bridge,
                Some(JobNetwork::Host) | None => NetworkMode::Host,
            },
            volumes: self.volumes.iter().map(disk).collect(),
            volume_mounts: volume_mounts(job),
            instance_mounts: folders(job),
            gpu_devices: Vec::new(),
            host_ssh_user: self.host_ssh_user,
            host_ssh_keys: self.host_ssh_keys,
            container_ssh_keys: self.container_ssh_keys,
        }
    }
}

/// A disk for the shim to mount. One that was made outside is never formatted.
fn disk(held: &Held) -> VolumeInfo {
    let volume = &held.volume;
    let data = volume.provisioning_data.as_deref();
    let attachment = held.attachment.data.as_ref();
    VolumeInfo {
        backend: volume.configuration.backend.as_str().to_owned(),
        name: volume.name.to_string(),
        volume_id: data.map(|data| data.volume_id.clone()).unwrap_or_default(),
        init_fs: !volume.external,
        device_name: attachment.and_then(|data| data.device_name.clone()),
    }
}

/// Where the job's volumes appear: of each mount point the one that was chosen when the job was placed.
fn volume_mounts(job: &JobRow) -> Vec<VolumeMount> {
    let taken = job.runtime_data.as_deref();
    let taken = taken
        .and_then(|data| data.volume_names.as_deref())
        .unwrap_or_default();
    mounts::mounts(&job.spec)
        .filter_map(|(names, path)| {
            let name = names.iter().find(|name| taken.contains(name))?;
            Some(VolumeMount {
                name: name.clone(),
                path: path.to_owned(),
            })
        })
        .collect()
}

/// Folders of the machine that the job mounts.
fn folders(job: &JobRow) -> Vec<InstanceMount> {
    job.spec
        .volumes
        .iter()
        .flatten()
        .filter_map(|mount| match mount {
            MountPoint::Instance {
                instance_path,
                path,
                optional,
            } => Some(InstanceMount {
                instance_path: instance_path.clone(),
                path: path.clone(),
                optional: *optional,
            }),
            MountPoint::Volume { .. } => None,
        })
        .collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "memory of a machine is far below 2^63 bytes"
)]
fn gigabytes(amount: f64) -> i64 {
    (amount * 1024.0 * 1024.0 * 1024.0) as i64
}

/// What a runner gets: the job, its files, its code.
#[derive(Debug)]
pub(crate) struct RunnerOrder {
    pub(crate) submit: SubmitRequest,
    pub(crate) archives: super::Archives,
    pub(crate) code: Option<Bytes>,
}

/// Everything for the runner's job, beside the rows.
#[derive(Debug)]
pub(crate) struct JobOrder<'a> {
    pub(crate) run: &'a RunRow,
    pub(crate) job: &'a JobRow,
    pub(crate) cluster: &'a Cluster,
    /// The key of the replica's nodes, where there are several.
    pub(crate) replica_key: Option<KeyPair>,
    /// The environment with secrets filled in.
    pub(crate) env: std::collections::BTreeMap<String, String>,
    pub(crate) repo_creds: Option<RemoteRepoCreds>,
    /// Bytes of log in an hour; `None` is unlimited.
    pub(crate) log_quota_hour: Option<u64>,
}

impl JobOrder<'_> {
    /// The body of the runner's submit.
    pub(crate) fn submit(self) -> SubmitRequest {
        let (run, job) = (self.run, self.job);
        let spec = &job.spec;
        let run_spec = RunSpec {
            run_name: run.name.to_string(),
            repo_id: run.spec.repo_id.clone().unwrap_or_default(),
            repo_data: repo_data(run.spec.repo_data.as_ref()),
            configuration: serde_json::to_value(&run.spec.configuration).unwrap_or_default(),
            configuration_path: run.spec.configuration_path.clone().unwrap_or_default(),
        };
        SubmitRequest {
            run: Run {
                id: run.id.to_string(),
                run_spec: run_spec.clone(),
            },
            job_spec: JobSpec {
                replica_num: spec.replica_num,
                job_num: spec.job_num,
                jobs_per_replica: spec.jobs_per_replica,
                user: spec.user.as_ref().map(|user| UnixUser {
                    uid: user.uid,
                    gid: user.gid,
                    username: user.username.clone(),
                    groupname: user.groupname.clone(),
                }),
                commands: spec.commands.clone(),
                env: self
                    .env
                    .into_iter()
                    .map(|(name, value)| (name, Secret::new(value)))
                    .collect(),
                single_branch: spec.single_branch,
                max_duration: spec
                    .max_duration
                    .and_then(|limit| u64::try_from(limit).ok()),
                ssh_key: self.replica_key.map(|key| JobSshKey {
                    private: key.private,
                    public: key.public,
                }),
                working_dir: spec.working_dir.clone(),
                repo_data: spec.repo_data.as_ref().map(|data| repo_data(Some(data))),
                repo_dir: Some(spec.repo_dir.clone()),
                repo_exists_action: spec.repo_exists_action.map(|action| action.to_string()),
                file_archives: spec
                    .file_archives
                    .iter()
                    .map(|archive| FileArchive {
                        id: archive.id.to_string(),
                        path: archive.path.clone(),
                    })
                    .collect(),
            },
            job_submission: JobSubmission {
                id: job.id.to_string(),
            },
            cluster_info: cluster(self.cluster),
            secrets: std::collections::BTreeMap::new(),
            repo_credentials: self.repo_creds.map(|creds| RepoCredentials {
                clone_url: creds.clone_url,
                private_key: creds
                    .private_key
                    .map(|key| Secret::new(key.expose().clone())),
                oauth_token: creds
                    .oauth_token
                    .map(|token| Secret::new(token.expose().clone())),
            }),
            log_quota_hour: self.log_quota_hour,
            run_spec,
        }
    }
}

fn cluster(cluster: &Cluster) -> ClusterInfo {
    ClusterInfo {
        job_ips: cluster.job_ips.clone(),
        master_job_ip: cluster.job_ips.first().cloned().unwrap_or_default(),
        gpus_per_job: cluster.gpus_per_node.first().copied().unwrap_or(0),
        gpus_per_node: cluster.gpus_per_node.clone(),
    }
}

fn repo_data(data: Option<&RunRepoData>) -> RepoData {
    match data {
        Some(RunRepoData::Remote(remote)) => RepoData {
            repo_type: "remote".to_owned(),
            repo_name: Some(remote.repo_name.clone()),
            repo_branch: remote.repo_branch.clone(),
            repo_hash: remote.repo_hash.clone(),
            repo_config_name: remote.repo_config_name.clone(),
            repo_config_email: remote.repo_config_email.clone(),
            repo_dir: None,
        },
        Some(RunRepoData::Local { repo_dir }) => RepoData {
            repo_type: "local".to_owned(),
            repo_dir: Some(repo_dir.clone()),
            ..RepoData::default()
        },
        Some(RunRepoData::Virtual {}) | None => RepoData {
            repo_type: "virtual".to_owned(),
            ..RepoData::default()
        },
    }
}

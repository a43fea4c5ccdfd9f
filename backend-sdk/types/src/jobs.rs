//! The part of a run and a job that a backend sees.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::requirements::Requirements;
use crate::volumes::Volume;

/// The run a job belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The host's id.
    pub id: Uuid,
    /// Its name.
    pub run_name: String,
    /// The project.
    pub project_name: String,
    /// Name of the person who started it.
    pub user: String,
    /// Tags of the merged profile.
    #[serde(default)]
    pub tags: Option<BTreeMap<String, String>>,
}

/// Login to an image registry.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryAuth {
    /// User.
    pub username: String,
    /// Never printed.
    pub password: String,
}

impl fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryAuth")
            .field("username", &self.username)
            .field("password", &"***")
            .finish()
    }
}

/// A folder of a volume or of the instance in the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMount {
    /// Name of the network volume, if it is one.
    #[serde(default)]
    pub volume: Option<String>,
    /// Folder of the instance, if it is one.
    #[serde(default)]
    pub instance_path: Option<String>,
    /// Where it is in the container.
    pub path: String,
}

/// A job. VM backends need the name only; container backends start its container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobInfo {
    /// The host's id of the submission.
    pub id: Uuid,
    /// `<run>-<number of the job>-<number of the replica>`.
    pub job_name: String,
    /// Number of the job in its replica, from 0.
    #[serde(default)]
    pub job_num: u32,
    /// Number of the replica, from 0.
    #[serde(default)]
    pub replica_num: u32,
    /// Nodes of a replica.
    #[serde(default = "one")]
    pub jobs_per_replica: u32,
    /// Image of the container.
    #[serde(default)]
    pub image_name: String,
    /// Login to the image's registry.
    #[serde(default)]
    pub registry_auth: Option<RegistryAuth>,
    /// Whether the container runs privileged.
    #[serde(default)]
    pub privileged: bool,
    /// User in the container, if one is asked for: `name`, `uid` or `uid:gid`.
    #[serde(default)]
    pub container_user: Option<String>,
    /// Mounts.
    #[serde(default)]
    pub mounts: Vec<JobMount>,
    /// What it needs.
    pub requirements: Requirements,
    /// See `InstanceConfiguration::provider_ref`.
    #[serde(default)]
    pub provider_ref: Option<String>,
}

/// A job of a group with its volumes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobConfiguration {
    /// The job.
    pub job: JobInfo,
    /// Its volumes.
    #[serde(default)]
    pub volumes: Vec<Volume>,
}

const fn one() -> u32 {
    1
}

//! Requests and replies of the base methods and of machines.

use serde::{Deserialize, Serialize};

use crate::instances::{InstanceConfiguration, SshKey};
use crate::jobs::{JobConfiguration, JobInfo, RunInfo};
use crate::offers::InstanceOfferWithAvailability;
use crate::placement::{ComputeGroup, ComputeGroupProvisioningData, PlacementGroup};
use crate::provisioning::JobProvisioningData;
use crate::requirements::Requirements;
use crate::volumes::Volume;

/// A reply without content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

/// Asks for offers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GetOffersRequest {
    /// What they must have.
    pub requirements: Requirements,
    /// Backends that cut slices off a node: return whole nodes instead of slices.
    #[serde(default)]
    pub full_offers: bool,
    /// Backends that know what is in use: subtract it.
    #[serde(default)]
    pub unallocated_resources: bool,
    /// The image that would run, where it is known. Only backends whose way of running a job depends on it look.
    #[serde(default)]
    pub image: Option<String>,
}

/// Offers, or the last chunk of them if earlier ones were emitted while the call ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GetOffersReply {
    /// In the backend's own order, mostly by price.
    pub offers: Vec<InstanceOfferWithAvailability>,
}

/// Makes a machine or container for a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunJobRequest {
    /// The run.
    pub run: RunInfo,
    /// The job; `job.provider_ref` makes the call safe to repeat.
    pub job: JobInfo,
    /// The offer to take.
    pub offer: InstanceOfferWithAvailability,
    /// The project's key pair.
    pub project_key: SshKey,
    /// Volumes of the job.
    #[serde(default)]
    pub volumes: Vec<Volume>,
    /// Where to place it.
    #[serde(default)]
    pub placement_group: Option<PlacementGroup>,
    /// Public keys that may log in beside the project's; container backends only.
    #[serde(default)]
    pub extra_authorized_keys: Vec<String>,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunJobReply {
    /// May lack an address; see `JobProvisioningData`.
    pub provisioning_data: JobProvisioningData,
}

/// Deletes a machine or container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminateInstanceRequest {
    /// The provider's id.
    pub instance_id: String,
    /// Where it is.
    pub region: String,
    /// The backend's own data.
    #[serde(default)]
    pub backend_data: Option<String>,
}

/// Asks for what was not known at creation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateProvisioningDataRequest {
    /// What is known.
    pub provisioning_data: JobProvisioningData,
    /// The project's key pair.
    pub project_key: SshKey,
}

/// What is known now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateProvisioningDataReply {
    /// The same as in the request if there is no news.
    pub provisioning_data: JobProvisioningData,
}

/// Asks whether the account can be reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthRequest {}

/// Health of the account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReply {
    /// For people, e.g. the account's name.
    #[serde(default)]
    pub message: Option<String>,
}

/// Makes a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateInstanceRequest {
    /// The offer to take; its `availability_zones` are the zones to choose from.
    pub offer: InstanceOfferWithAvailability,
    /// What to make; `config.provider_ref` makes the call safe to repeat.
    pub config: InstanceConfiguration,
    /// Where to place it.
    #[serde(default)]
    pub placement_group: Option<PlacementGroup>,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateInstanceReply {
    /// May lack an address; see `JobProvisioningData`.
    pub provisioning_data: JobProvisioningData,
}

/// Makes all nodes of a cluster by one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunJobsRequest {
    /// The run.
    pub run: RunInfo,
    /// The jobs with their volumes, one node each.
    pub jobs: Vec<JobConfiguration>,
    /// The offer to take for each node.
    pub offer: InstanceOfferWithAvailability,
    /// The project's key pair.
    pub project_key: SshKey,
    /// Where to place them.
    #[serde(default)]
    pub placement_group: Option<PlacementGroup>,
    /// What each node needs.
    pub requirements: Requirements,
    /// Public keys that may log in beside the project's.
    #[serde(default)]
    pub extra_authorized_keys: Vec<String>,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunJobsReply {
    /// One entry for each job, in the order of the request.
    pub group: ComputeGroupProvisioningData,
}

/// Deletes all nodes made by one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TerminateComputeGroupRequest {
    /// The group.
    pub group: ComputeGroup,
}

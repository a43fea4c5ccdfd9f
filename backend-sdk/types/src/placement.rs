//! Groups of machines: placed close together, or made by one call.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::backend_type::BackendType;
use crate::provisioning::JobProvisioningData;

/// How a placement group places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementStrategy {
    /// As close as possible.
    #[default]
    Cluster,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementGroupConfiguration {
    /// Who makes it.
    pub backend: BackendType,
    /// Where.
    pub region: String,
    /// How it places.
    #[serde(default)]
    pub placement_strategy: PlacementStrategy,
}

/// What came out of making a placement group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementGroupProvisioningData {
    /// Who made it.
    pub backend: BackendType,
    /// For the backend itself; nobody else reads it.
    #[serde(default)]
    pub backend_data: Option<String>,
}

/// A placement group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementGroup {
    /// Unique name, fit for the provider.
    pub name: String,
    /// The project.
    pub project_name: String,
    /// What was asked for.
    pub configuration: PlacementGroupConfiguration,
    /// What came out of it; `None` before it is made.
    #[serde(default)]
    pub provisioning_data: Option<PlacementGroupProvisioningData>,
    /// Put on it like on an instance; see `InstanceConfiguration`.
    #[serde(default)]
    pub provider_ref: Option<String>,
}

/// What came out of making all nodes by one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComputeGroupProvisioningData {
    /// The provider's id of the group.
    pub compute_group_id: String,
    /// The provider's name of the group.
    pub compute_group_name: String,
    /// Who made it.
    pub backend: BackendType,
    /// Where it is.
    pub region: String,
    /// One for each job, in the order of the request.
    pub job_provisioning_datas: Vec<JobProvisioningData>,
    /// For the backend itself; nobody else reads it.
    #[serde(default)]
    pub backend_data: Option<String>,
}

/// Nodes made by one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComputeGroup {
    /// The host's id.
    pub id: Uuid,
    /// The project.
    pub project_name: String,
    /// Name, if it has one.
    #[serde(default)]
    pub name: Option<String>,
    /// What came out of making it.
    pub provisioning_data: ComputeGroupProvisioningData,
}

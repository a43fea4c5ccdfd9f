//! Requests and replies of placement groups, gateways, volumes and listing.

use serde::{Deserialize, Serialize};

use crate::gateways::{
    GatewayComputeConfiguration, GatewayLoadBalancerData, GatewayProvisioningData,
};
use crate::listing::{RegionFailure, ResourceGroup};
use crate::offers::InstanceOffer;
use crate::placement::{PlacementGroup, PlacementGroupProvisioningData};
use crate::provisioning::JobProvisioningData;
use crate::volumes::{Volume, VolumeAttachmentData, VolumeProvisioningData};

/// Makes a placement group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreatePlacementGroupRequest {
    /// What to make.
    pub placement_group: PlacementGroup,
    /// The first instance that will be placed in it.
    pub master_offer: InstanceOffer,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatePlacementGroupReply {
    /// Data of the group.
    pub provisioning_data: PlacementGroupProvisioningData,
}

/// Deletes a placement group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletePlacementGroupRequest {
    /// The group.
    pub placement_group: PlacementGroup,
}

/// Asks whether an offer can be placed in a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IsSuitablePlacementGroupRequest {
    /// The group.
    pub placement_group: PlacementGroup,
    /// The offer.
    pub offer: InstanceOffer,
}

/// Whether an offer can be placed in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsSuitablePlacementGroupReply {
    /// The answer.
    pub suitable: bool,
}

/// Asks whether groups go together with a reservation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlacementGroupsCompatibleWithReservationRequest {
    /// The offer.
    pub offer: InstanceOffer,
    /// The reservation.
    pub reservation: String,
}

/// Whether groups go together with a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementGroupsCompatibleWithReservationReply {
    /// The answer.
    pub compatible: bool,
}

/// Makes a gateway machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateGatewayReplicaRequest {
    /// What to make.
    pub config: GatewayComputeConfiguration,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateGatewayReplicaReply {
    /// Data of the machine.
    pub provisioning_data: GatewayProvisioningData,
}

/// Deletes a gateway machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TerminateGatewayReplicaRequest {
    /// The provider's id.
    pub instance_id: String,
    /// What was made.
    pub config: GatewayComputeConfiguration,
    /// The backend's own data.
    #[serde(default)]
    pub backend_data: Option<String>,
}

/// Makes a load balancer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateGatewayLoadBalancerRequest {
    /// What it serves.
    pub config: GatewayComputeConfiguration,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateGatewayLoadBalancerReply {
    /// Data of the load balancer.
    pub load_balancer: GatewayLoadBalancerData,
}

/// Deletes a load balancer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TerminateGatewayLoadBalancerRequest {
    /// What it serves.
    pub config: GatewayComputeConfiguration,
    /// The load balancer.
    pub load_balancer: GatewayLoadBalancerData,
}

/// Puts a gateway machine behind a load balancer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegisterGatewayReplicaRequest {
    /// What it serves.
    pub config: GatewayComputeConfiguration,
    /// The load balancer.
    pub load_balancer: GatewayLoadBalancerData,
    /// The machine.
    pub replica: GatewayProvisioningData,
}

/// Takes a gateway machine from a load balancer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeregisterGatewayReplicaRequest {
    /// What it serves.
    pub config: GatewayComputeConfiguration,
    /// The load balancer.
    pub load_balancer: GatewayLoadBalancerData,
    /// The machine.
    pub replica: GatewayProvisioningData,
}

/// Takes over a volume that was made outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegisterVolumeRequest {
    /// The volume; `configuration.volume_id` names it.
    pub volume: Volume,
}

/// What is known of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegisterVolumeReply {
    /// Data of the volume.
    pub provisioning_data: VolumeProvisioningData,
}

/// Makes a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateVolumeRequest {
    /// What to make.
    pub volume: Volume,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateVolumeReply {
    /// Data of the volume.
    pub provisioning_data: VolumeProvisioningData,
}

/// Deletes a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeleteVolumeRequest {
    /// The volume.
    pub volume: Volume,
}

/// Attaches a volume to an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttachVolumeRequest {
    /// The volume.
    pub volume: Volume,
    /// The instance.
    pub provisioning_data: JobProvisioningData,
}

/// How it hangs on the instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachVolumeReply {
    /// The device.
    pub attachment_data: VolumeAttachmentData,
}

/// Detaches a volume from an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DetachVolumeRequest {
    /// The volume.
    pub volume: Volume,
    /// The instance.
    pub provisioning_data: JobProvisioningData,
    /// Without regard to the file system; may lose data.
    #[serde(default)]
    pub force: bool,
}

/// Asks whether a volume is off an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IsVolumeDetachedRequest {
    /// The volume.
    pub volume: Volume,
    /// The instance.
    pub provisioning_data: JobProvisioningData,
}

/// Whether a volume is off an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsVolumeDetachedReply {
    /// The answer.
    pub detached: bool,
}

/// Asks what stands in the account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListResourceGroupsRequest {
    /// Only these regions; empty means all of the configuration.
    #[serde(default)]
    pub regions: Vec<String>,
}

/// What stands in the account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListResourceGroupsReply {
    /// Groups of the regions that could be listed as a whole.
    pub groups: Vec<ResourceGroup>,
    /// Regions that could not.
    #[serde(default)]
    pub failures: Vec<RegionFailure>,
}

impl ListResourceGroupsReply {
    /// These of the groups that were asked for, where all regions were listed by one request.
    pub fn of(
        groups: impl IntoIterator<Item = ResourceGroup>,
        request: &ListResourceGroupsRequest,
    ) -> Self {
        let is_asked = |group: &ResourceGroup| {
            request.regions.is_empty() || request.regions.contains(&group.region)
        };
        Self {
            groups: groups.into_iter().filter(is_asked).collect(),
            failures: Vec::new(),
        }
    }
}

/// Deletes what nobody knows of any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteResourceGroupRequest {
    /// As it was listed.
    pub group: ResourceGroup,
}

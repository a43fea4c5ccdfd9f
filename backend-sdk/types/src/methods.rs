//! Every method of a backend: its number, its request, its reply.
//!
//! Numbers are for ever. A request or reply grows by fields with a default. Requests implement [`Method`], so a caller
//! writes `call(&CreateInstanceRequest { .. })` and gets a [`CreateInstanceReply`].

mod compute;
mod configurator;
mod extras;

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use compute::*;
pub use configurator::*;
pub use extras::*;

/// A request that belongs to one method.
pub trait Method: Serialize + DeserializeOwned + Debug {
    /// Its number.
    const NUMBER: u32;
    /// Its name, for logs: `create_instance`.
    const NAME: &'static str;
    /// The capability it belongs to.
    const CAPABILITY: &'static str;
    /// What comes back.
    type Reply: Serialize + DeserializeOwned + Debug;
}

macro_rules! methods {
    ($($(#[$doc:meta])* $constant:ident = $number:literal, $name:literal, $capability:ident, $request:ident => $reply:ident;)+) => {
        $(
            $(#[$doc])*
            pub const $constant: u32 = $number;
            impl Method for $request {
                const NUMBER: u32 = $number;
                const NAME: &'static str = $name;
                const CAPABILITY: &'static str = crate::capability::$capability;
                type Reply = $reply;
            }
        )+

        /// Every method: number, name, capability.
        pub const ALL: &[(u32, &str, &str)] = &[$(($number, $name, crate::capability::$capability)),+];
    };
}

methods! {
    /// Offers that fit requirements.
    GET_OFFERS = 1, "get_offers", COMPUTE, GetOffersRequest => GetOffersReply;
    /// Makes a machine or container for a job.
    RUN_JOB = 2, "run_job", COMPUTE, RunJobRequest => RunJobReply;
    /// Deletes a machine or container.
    TERMINATE_INSTANCE = 3, "terminate_instance", COMPUTE, TerminateInstanceRequest => Done;
    /// Completes what was not known at creation.
    UPDATE_PROVISIONING_DATA = 4, "update_provisioning_data", COMPUTE, UpdateProvisioningDataRequest => UpdateProvisioningDataReply;
    /// Whether the account can be reached.
    HEALTH = 6, "health", COMPUTE, HealthRequest => HealthReply;
    /// Makes a machine.
    CREATE_INSTANCE = 16, "create_instance", CREATE_INSTANCE, CreateInstanceRequest => CreateInstanceReply;
    /// Makes all nodes of a cluster.
    RUN_JOBS = 32, "run_jobs", GROUP_PROVISIONING, RunJobsRequest => RunJobsReply;
    /// Deletes all nodes made by one call.
    TERMINATE_COMPUTE_GROUP = 33, "terminate_compute_group", GROUP_PROVISIONING, TerminateComputeGroupRequest => Done;
    /// Makes a placement group.
    CREATE_PLACEMENT_GROUP = 48, "create_placement_group", PLACEMENT_GROUPS, CreatePlacementGroupRequest => CreatePlacementGroupReply;
    /// Deletes a placement group.
    DELETE_PLACEMENT_GROUP = 49, "delete_placement_group", PLACEMENT_GROUPS, DeletePlacementGroupRequest => Done;
    /// Whether an offer can be placed in a group.
    IS_SUITABLE_PLACEMENT_GROUP = 50, "is_suitable_placement_group", PLACEMENT_GROUPS, IsSuitablePlacementGroupRequest => IsSuitablePlacementGroupReply;
    /// Whether groups go together with a reservation.
    PLACEMENT_GROUPS_COMPATIBLE_WITH_RESERVATION = 51, "placement_groups_compatible_with_reservation", PLACEMENT_GROUPS, PlacementGroupsCompatibleWithReservationRequest => PlacementGroupsCompatibleWithReservationReply;
    /// Makes a gateway machine.
    CREATE_GATEWAY_REPLICA = 64, "create_gateway_replica", GATEWAY, CreateGatewayReplicaRequest => CreateGatewayReplicaReply;
    /// Deletes a gateway machine.
    TERMINATE_GATEWAY_REPLICA = 65, "terminate_gateway_replica", GATEWAY, TerminateGatewayReplicaRequest => Done;
    /// Makes a load balancer.
    CREATE_GATEWAY_LOAD_BALANCER = 80, "create_gateway_load_balancer", GATEWAY_LOAD_BALANCER, CreateGatewayLoadBalancerRequest => CreateGatewayLoadBalancerReply;
    /// Deletes a load balancer.
    TERMINATE_GATEWAY_LOAD_BALANCER = 81, "terminate_gateway_load_balancer", GATEWAY_LOAD_BALANCER, TerminateGatewayLoadBalancerRequest => Done;
    /// Puts a gateway machine behind a load balancer.
    REGISTER_GATEWAY_REPLICA = 82, "register_gateway_replica", GATEWAY_LOAD_BALANCER, RegisterGatewayReplicaRequest => Done;
    /// Takes a gateway machine from a load balancer.
    DEREGISTER_GATEWAY_REPLICA = 83, "deregister_gateway_replica", GATEWAY_LOAD_BALANCER, DeregisterGatewayReplicaRequest => Done;
    /// Takes over a volume that was made outside.
    REGISTER_VOLUME = 96, "register_volume", VOLUMES, RegisterVolumeRequest => RegisterVolumeReply;
    /// Makes a volume.
    CREATE_VOLUME = 97, "create_volume", VOLUMES, CreateVolumeRequest => CreateVolumeReply;
    /// Deletes a volume.
    DELETE_VOLUME = 98, "delete_volume", VOLUMES, DeleteVolumeRequest => Done;
    /// Attaches a volume to an instance.
    ATTACH_VOLUME = 99, "attach_volume", VOLUMES, AttachVolumeRequest => AttachVolumeReply;
    /// Detaches a volume from an instance.
    DETACH_VOLUME = 100, "detach_volume", VOLUMES, DetachVolumeRequest => Done;
    /// Whether a volume is off an instance.
    IS_VOLUME_DETACHED = 101, "is_volume_detached", VOLUMES, IsVolumeDetachedRequest => IsVolumeDetachedReply;
    /// What stands in the account.
    LIST_RESOURCE_GROUPS = 112, "list_resource_groups", RESOURCE_LISTING, ListResourceGroupsRequest => ListResourceGroupsReply;
    /// Deletes what nobody knows of any more.
    DELETE_RESOURCE_GROUP = 113, "delete_resource_group", RESOURCE_LISTING, DeleteResourceGroupRequest => Done;
    /// Checks a configuration, with the provider if need be.
    VALIDATE_CONFIG = 256, "configurator.validate", CONFIGURATOR, ValidateConfigRequest => Done;
    /// Turns a configuration with credentials into what is stored.
    CREATE_CONFIG = 257, "configurator.create", CONFIGURATOR, CreateConfigRequest => CreateConfigReply;
    /// The stored record without credentials.
    PUBLIC_VIEW = 258, "configurator.public_view", CONFIGURATOR, PublicViewRequest => PublicViewReply;
    /// The configuration's JSON schema.
    DESCRIBE_CONFIG = 259, "configurator.describe", CONFIGURATOR, DescribeConfigRequest => DescribeConfigReply;
    /// The stored record as a configuration with credentials.
    WITH_CREDS = 260, "configurator.with_creds", CONFIGURATOR, WithCredsRequest => WithCredsReply;
}

macro_rules! replies_of {
    ($($field:ident: $data:path => $($reply:ident),+;)+) => { $($(
        impl From<$data> for $reply {
            fn from($field: $data) -> Self {
                Self { $field }
            }
        }
    )+)+ };
}

// A backend writes `Ok(data.into())`.
replies_of! {
    provisioning_data: crate::provisioning::JobProvisioningData => RunJobReply, UpdateProvisioningDataReply, CreateInstanceReply;
    provisioning_data: crate::volumes::VolumeProvisioningData => RegisterVolumeReply, CreateVolumeReply;
    attachment_data: crate::volumes::VolumeAttachmentData => AttachVolumeReply;
    provisioning_data: crate::gateways::GatewayProvisioningData => CreateGatewayReplicaReply;
    load_balancer: crate::gateways::GatewayLoadBalancerData => CreateGatewayLoadBalancerReply;
    provisioning_data: crate::placement::PlacementGroupProvisioningData => CreatePlacementGroupReply;
    group: crate::placement::ComputeGroupProvisioningData => RunJobsReply;
}

/// Name of a method, for logs.
pub fn name_of(number: u32) -> Option<&'static str> {
    ALL.iter()
        .find(|(known, ..)| *known == number)
        .map(|(_, name, _)| *name)
}

//! Optional capabilities: placement, gateways, volumes, listing.

use dstack_backend_types::BackendError;
use dstack_backend_types::methods::{
    AttachVolumeReply, AttachVolumeRequest, CreateGatewayLoadBalancerReply,
    CreateGatewayLoadBalancerRequest, CreateGatewayReplicaReply, CreateGatewayReplicaRequest,
    CreatePlacementGroupReply, CreatePlacementGroupRequest, CreateVolumeReply, CreateVolumeRequest,
    DeletePlacementGroupRequest, DeleteResourceGroupRequest, DeleteVolumeRequest,
    DeregisterGatewayReplicaRequest, DetachVolumeRequest, Done, IsSuitablePlacementGroupReply,
    IsSuitablePlacementGroupRequest, IsVolumeDetachedReply, IsVolumeDetachedRequest,
    ListResourceGroupsReply, ListResourceGroupsRequest,
    PlacementGroupsCompatibleWithReservationReply, PlacementGroupsCompatibleWithReservationRequest,
    RegisterGatewayReplicaRequest, RegisterVolumeReply, RegisterVolumeRequest,
    TerminateGatewayLoadBalancerRequest, TerminateGatewayReplicaRequest,
};

use super::Compute;

/// Instances can be placed close together. Capability `placement_groups`.
pub trait PlacementGroups: Compute {
    /// Makes a group. `master_offer` is the first instance that will be tried in it.
    ///
    /// # Errors
    /// `placement_group_not_supported` if that instance type cannot be placed: the host goes on without a group.
    fn create_placement_group(
        &self,
        request: &CreatePlacementGroupRequest,
    ) -> Result<CreatePlacementGroupReply, BackendError>;

    /// Deletes a group. One that does not exist is a success.
    ///
    /// # Errors
    /// `placement_group_in_use` while it has members: the host calls again later.
    fn delete_placement_group(
        &self,
        request: &DeletePlacementGroupRequest,
    ) -> Result<Done, BackendError>;

    /// Whether the offer can be placed in the group. Decides from the data alone, without input or output.
    ///
    /// # Errors
    /// `internal` if the group's data cannot be read.
    fn is_suitable_placement_group(
        &self,
        request: &IsSuitablePlacementGroupRequest,
    ) -> Result<IsSuitablePlacementGroupReply, BackendError>;

    /// Whether groups can be used together with the reservation; yes by default.
    ///
    /// # Errors
    /// `not_found` if the reservation does not exist.
    fn placement_groups_compatible_with_reservation(
        &self,
        _request: &PlacementGroupsCompatibleWithReservationRequest,
    ) -> Result<PlacementGroupsCompatibleWithReservationReply, BackendError> {
        Ok(PlacementGroupsCompatibleWithReservationReply { compatible: true })
    }
}

/// Gateway machines. Capability `gateway`.
pub trait Gateways: Compute {
    /// Makes a machine for the gateway and waits for its address.
    ///
    /// # Errors
    /// `no_capacity`, `quota`, `invalid`.
    fn create_gateway_replica(
        &self,
        request: &CreateGatewayReplicaRequest,
    ) -> Result<CreateGatewayReplicaReply, BackendError>;

    /// Deletes the machine and what was made beside it. One that does not exist is a success.
    ///
    /// # Errors
    /// `not_yet_terminated` instead of waiting.
    fn terminate_gateway_replica(
        &self,
        request: &TerminateGatewayReplicaRequest,
    ) -> Result<Done, BackendError>;
}

/// A load balancer before several gateway machines. Capability `gateway_load_balancer`.
pub trait GatewayLoadBalancer: Gateways {
    /// Makes the load balancer with the certificate of the configuration.
    ///
    /// # Errors
    /// `invalid` if certificate or network do not fit.
    fn create_gateway_load_balancer(
        &self,
        request: &CreateGatewayLoadBalancerRequest,
    ) -> Result<CreateGatewayLoadBalancerReply, BackendError>;

    /// Deletes the load balancer. One that does not exist is a success.
    ///
    /// # Errors
    /// `not_yet_terminated` instead of waiting.
    fn terminate_gateway_load_balancer(
        &self,
        request: &TerminateGatewayLoadBalancerRequest,
    ) -> Result<Done, BackendError>;

    /// Puts a gateway machine behind it. One that is behind it already is a success.
    ///
    /// # Errors
    /// `not_found` if the load balancer or the machine is gone.
    fn register_gateway_replica(
        &self,
        request: &RegisterGatewayReplicaRequest,
    ) -> Result<Done, BackendError>;

    /// Takes a gateway machine from it. One that is not behind it is a success.
    ///
    /// # Errors
    /// `transport`, `rate_limited`.
    fn deregister_gateway_replica(
        &self,
        request: &DeregisterGatewayReplicaRequest,
    ) -> Result<Done, BackendError>;
}

/// Network volumes. Capability `volumes`.
pub trait Volumes: Compute {
    /// Facts of a volume that was made outside.
    ///
    /// # Errors
    /// `not_found`; `invalid` if it cannot be used.
    fn register_volume(
        &self,
        request: &RegisterVolumeRequest,
    ) -> Result<RegisterVolumeReply, BackendError>;

    /// Makes a volume, or finds the one that carries the same `provider_ref`.
    ///
    /// # Errors
    /// `unsupported` if the backend only takes over volumes; `quota`; `invalid`.
    fn create_volume(
        &self,
        _request: &CreateVolumeRequest,
    ) -> Result<CreateVolumeReply, BackendError> {
        Err(BackendError::unsupported(
            "this backend does not create volumes, register an existing one",
        ))
    }

    /// Deletes a volume. One that does not exist is a success.
    ///
    /// # Errors
    /// `unsupported` if the backend only takes over volumes.
    fn delete_volume(&self, _request: &DeleteVolumeRequest) -> Result<Done, BackendError> {
        Err(BackendError::unsupported(
            "this backend does not delete volumes",
        ))
    }

    /// Attaches a volume to a running instance. Needed if a volume may be `attachable`; others are given to `run_job`.
    ///
    /// # Errors
    /// `not_found` if volume or instance are gone; `invalid` if they are in different zones.
    fn attach_volume(
        &self,
        _request: &AttachVolumeRequest,
    ) -> Result<AttachVolumeReply, BackendError> {
        Err(BackendError::unsupported(
            "volumes of this backend are attached when the instance is made",
        ))
    }

    /// Begins to detach a volume. Needed if a volume may be `detachable`; others end with the instance. One that is not
    /// attached is a success.
    ///
    /// # Errors
    /// `transport`, `rate_limited`.
    fn detach_volume(&self, _request: &DetachVolumeRequest) -> Result<Done, BackendError> {
        Err(BackendError::unsupported(
            "volumes of this backend are detached when the instance is deleted",
        ))
    }

    /// Whether a volume is off; yes by default. If it never becomes so, the host detaches with `force`.
    ///
    /// # Errors
    /// `transport`, `rate_limited`.
    fn is_volume_detached(
        &self,
        _request: &IsVolumeDetachedRequest,
    ) -> Result<IsVolumeDetachedReply, BackendError> {
        Ok(IsVolumeDetachedReply { detached: true })
    }
}

/// What stands in the account can be listed and deleted by group. Capability `resource_listing`.
///
/// The host deletes groups whose `provider_ref` it does not know and which are old enough. So every resource that outlives
/// its instance must carry the reference, and nothing else may: not volumes, nothing made by `run_jobs`.
pub trait ResourceListing: Compute {
    /// All groups of the account, region by region.
    ///
    /// A region is listed as a whole or not at all: if one of its listings fails, none of its groups is returned and it
    /// stands in `failures`. Else a living instance's disk would look like an orphan. Instances that are being deleted
    /// are left out, what was made beside them is not.
    ///
    /// # Errors
    /// `auth`, `transport` if nothing at all could be listed.
    fn list_resource_groups(
        &self,
        request: &ListResourceGroupsRequest,
    ) -> Result<ListResourceGroupsReply, BackendError>;

    /// Deletes a group, the instance first. What is gone already is a success. Nothing that does not carry the group's
    /// `provider_ref` may be touched.
    ///
    /// # Errors
    /// `not_yet_terminated` between steps: a later pass lists what is left and calls again.
    fn delete_resource_group(
        &self,
        request: &DeleteResourceGroupRequest,
    ) -> Result<Done, BackendError>;
}

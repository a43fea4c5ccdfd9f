//! From a method number and bytes to a trait's method and back. One function for each capability, named like its trait, so
//! that the macro needs no other name.

use crate::capabilities as caps;
use dstack_backend_types::{
    BackendError, Method,
    methods::{
        self, CreateConfigRequest, DescribeConfigRequest, PublicViewRequest, ValidateConfigRequest,
        WithCredsRequest,
    },
};

/// `None` if the capability has no such method.
pub type Answer = Option<Result<Vec<u8>, BackendError>>;

fn run<M: Method>(
    request: &[u8],
    method: impl FnOnce(&M) -> Result<M::Reply, BackendError>,
) -> Answer {
    let answer = serde_json::from_slice::<M>(request)
        .map_err(|e| {
            BackendError::invalid(format!(
                "a request of {} that is not understood: {e}",
                M::NAME
            ))
        })
        .and_then(|request| method(&request))
        .and_then(|reply| {
            serde_json::to_vec(&reply).map_err(|e| BackendError::internal(e.to_string()))
        });
    Some(answer)
}

macro_rules! dispatchers {
    ($($capability:ident { $($method:ident = $number:ident),+ $(,)? })+) => { $(
        /// The methods of the trait of this name.
        #[allow(non_snake_case, reason = "named like the trait, so that the macro needs no other name")]
        pub fn $capability<B: caps::$capability>(backend: &B, method: u32, request: &[u8]) -> Answer {
            match method {
                $(methods::$number => run(request, |request| caps::$capability::$method(backend, request)),)+
                _ => None,
            }
        }
    )+ };
}

dispatchers! {
    Compute {
        get_offers = GET_OFFERS,
        run_job = RUN_JOB,
        terminate_instance = TERMINATE_INSTANCE,
        update_provisioning_data = UPDATE_PROVISIONING_DATA,
        health = HEALTH,
    }
    CreateInstance { create_instance = CREATE_INSTANCE }
    GroupProvisioning { run_jobs = RUN_JOBS, terminate_compute_group = TERMINATE_COMPUTE_GROUP }
    PlacementGroups {
        create_placement_group = CREATE_PLACEMENT_GROUP,
        delete_placement_group = DELETE_PLACEMENT_GROUP,
        is_suitable_placement_group = IS_SUITABLE_PLACEMENT_GROUP,
        placement_groups_compatible_with_reservation = PLACEMENT_GROUPS_COMPATIBLE_WITH_RESERVATION,
    }
    Gateways {
        create_gateway_replica = CREATE_GATEWAY_REPLICA,
        terminate_gateway_replica = TERMINATE_GATEWAY_REPLICA,
    }
    GatewayLoadBalancer {
        create_gateway_load_balancer = CREATE_GATEWAY_LOAD_BALANCER,
        terminate_gateway_load_balancer = TERMINATE_GATEWAY_LOAD_BALANCER,
        register_gateway_replica = REGISTER_GATEWAY_REPLICA,
        deregister_gateway_replica = DEREGISTER_GATEWAY_REPLICA,
    }
    Volumes {
        register_volume = REGISTER_VOLUME,
        create_volume = CREATE_VOLUME,
        delete_volume = DELETE_VOLUME,
        attach_volume = ATTACH_VOLUME,
        detach_volume = DETACH_VOLUME,
        is_volume_detached = IS_VOLUME_DETACHED,
    }
    ResourceListing {
        list_resource_groups = LIST_RESOURCE_GROUPS,
        delete_resource_group = DELETE_RESOURCE_GROUP,
    }
}

/// The configurator's methods, which need no opened backend.
pub fn configurator<C: caps::Configurator>(method: u32, request: &[u8]) -> Answer {
    let configurator = C::default();
    match method {
        methods::VALIDATE_CONFIG => run(request, |r: &ValidateConfigRequest| {
            configurator.validate(r)
        }),
        methods::CREATE_CONFIG => run(request, |r: &CreateConfigRequest| configurator.create(r)),
        methods::PUBLIC_VIEW => run(request, |r: &PublicViewRequest| configurator.public_view(r)),
        methods::DESCRIBE_CONFIG => run(request, |r: &DescribeConfigRequest| {
            configurator.describe(r)
        }),
        methods::WITH_CREDS => run(request, |r: &WithCredsRequest| configurator.with_creds(r)),
        _ => None,
    }
}

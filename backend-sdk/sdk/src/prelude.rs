//! What nearly every backend uses: `use dstack_backend_sdk::prelude::*;`.

pub use crate::capabilities::{
    Backend, Compute, Configurator, CreateInstance, GatewayLoadBalancer, Gateways,
    GroupProvisioning, Instance, InstanceState, PlacementGroups, ResourceListing, SimpleCloud,
    Volumes, run_container, run_job_on_new_instance,
};
pub use crate::offers::{AllOffers, AllOffersCache, DiskPolicy, FilteredOffersCache, Provider};
pub use crate::rest::{ErrorMap, Paging, Rest};
pub use crate::{BackendError, ErrorKind, Result, Secret, names, offers, provisioning, tags};
pub use dstack_backend_types::methods::*;
pub use dstack_backend_types::resources::{Memory, Range};
pub use dstack_backend_types::{
    BackendType, CatalogItem, CloudResource, CpuArchitecture, InstanceAvailability,
    InstanceConfiguration, InstanceOfferWithAvailability, InstanceRuntime, JobProvisioningData,
    Requirements, ResourceGroup, Volume, VolumeAttachmentData, VolumeProvisioningData,
};

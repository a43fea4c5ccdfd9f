//! Data that crosses the border between the host and a backend plugin, and the rules that both sides share.
//!
//! Used by the SDK, the loader and every crate of the host that speaks of offers, machines or volumes. JSON of a thing
//! that is also part of the HTTP API is that of the HTTP API. Unknown fields are ignored, new fields have defaults.
//! Only data and pure functions here: no files, no network, no clock.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "cargo tells tests where they are"
    )
)]

pub mod agents;
pub mod backend_type;
pub mod capability;
pub mod catalog;
pub mod error;
pub mod gateways;
pub mod gpus;
pub mod instances;
pub mod jobs;
pub mod listing;
pub mod manifest;
pub mod matching;
pub mod methods;
pub mod offers;
pub mod placement;
pub mod provisioning;
pub mod reading;
pub mod requirements;
pub mod resources;
pub mod secret;
pub mod services;
pub mod volumes;

pub use agents::AgentUrls;
pub use backend_type::{BackendKind, BackendType};
pub use catalog::CatalogItem;
pub use error::{BackendError, ErrorKind};
pub use gateways::{GatewayComputeConfiguration, GatewayLoadBalancerData, GatewayProvisioningData};
pub use instances::{
    AcceleratorVendor, CpuArchitecture, Disk, Gpu, InstanceConfiguration, InstanceType, Resources,
    SshKey,
};
pub use jobs::{JobConfiguration, JobInfo, JobMount, RegistryAuth, RunInfo};
pub use listing::{CloudResource, RegionFailure, ResourceGroup};
pub use manifest::Manifest;
pub use methods::{Done, Method};
pub use offers::{
    InstanceAvailability, InstanceOffer, InstanceOfferWithAvailability, InstanceRuntime,
};
pub use placement::{
    ComputeGroup, ComputeGroupProvisioningData, PlacementGroup, PlacementGroupConfiguration,
    PlacementGroupProvisioningData, PlacementStrategy,
};
pub use provisioning::{
    GpuDriverInfo, JobProvisioningData, JobRuntimeData, NetworkMode, SshConnectionParams,
};
pub use requirements::Requirements;
pub use resources::ResourcesSpec;
pub use secret::Secret;
pub use volumes::{Volume, VolumeAttachmentData, VolumeConfiguration, VolumeProvisioningData};

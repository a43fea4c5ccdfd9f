//! A backend with machines, side disks, volumes, gateways and groups over plain HTTP, right in every way but the one that its configuration's
//! `defect` names. The conformance suite must find each. Ships nowhere.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "some defects are just that"
)]

mod backend;
mod cloud;
mod config;
mod extras;
mod listing;
mod volumes;

pub use backend::Wrong;
pub use config::{Config, Defect, WrongConfigurator};

dstack_backend_sdk::export_backend! {
    name: "wrong", backend: Wrong, configurator: WrongConfigurator,
    capabilities: [
        CreateInstance, ResourceListing, Volumes, Gateways, GatewayLoadBalancer, PlacementGroups, GroupProvisioning,
    ],
    flags: ["privileged", "instance_volumes", "multinode"],
}

//! A backend with machines, side disks and volumes over plain HTTP, right in every way but the one that its configuration's
//! `defect` names. The conformance suite must find each. Ships nowhere.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "some defects are just that"
)]

mod backend;
mod cloud;
mod config;
mod listing;
mod volumes;

pub use backend::Wrong;
pub use config::{Config, Defect, WrongConfigurator};

dstack_backend_sdk::export_backend! {
    name: "wrong", backend: Wrong, configurator: WrongConfigurator,
    capabilities: [CreateInstance, ResourceListing, Volumes], flags: ["privileged", "instance_volumes"],
}

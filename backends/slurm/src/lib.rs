#![doc = include_str!("../README.md")]

mod cluster;
mod compute;
mod config;
mod gpu;
mod image;
mod keys;
mod login;
mod node;
mod offers;
mod place;
mod queue;
mod script;

dstack_backend_sdk::export_backend! {
    name: "slurm",
    backend: compute::Slurm,
    configurator: config::SlurmConfigurator,
    capabilities: [GroupProvisioning, ResourceListing],
    flags: ["multinode"],
    provisioning_timeout_s: 1200, // pulling an image counts
}

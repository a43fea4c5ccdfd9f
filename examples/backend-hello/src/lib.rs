#![doc = include_str!("../README.md")]

mod compute;
mod config;
mod volumes;

dstack_backend_sdk::export_backend! {
    name: "hello",
    backend: compute::Hello,
    configurator: config::HelloConfigurator,
    capabilities: [CreateInstance, Volumes, ResourceListing],
    flags: ["privileged", "instance_volumes"],
}

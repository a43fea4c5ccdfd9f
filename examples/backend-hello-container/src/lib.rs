#![doc = include_str!("../README.md")]

mod compute;
mod config;

dstack_backend_sdk::export_backend! {
    name: "hello-container",
    backend: compute::HelloContainer,
    configurator: config::HelloContainerConfigurator,
    capabilities: [ResourceListing],
    flags: [],
    provisioning_timeout_s: 1200, // pulling an image counts
}

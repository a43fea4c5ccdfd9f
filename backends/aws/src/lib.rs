#![doc = include_str!("../README.md")]

mod addresses;
mod backend;
mod balancers;
#[cfg(test)]
mod bed;
mod client;
mod compute;
mod config;
mod configurator;
mod create;
mod credentials;
mod errors;
mod gateways;
mod images;
mod interfaces;
mod listing;
mod machines;
mod network;
mod offers;
mod params;
mod placement;
mod regions;
mod reservations;
mod security;
mod volumes;
mod xml;

dstack_backend_sdk::export_backend! {
    name: "aws",
    backend: backend::Aws,
    configurator: configurator::AwsConfigurator,
    capabilities: [CreateInstance, PlacementGroups, Gateways, GatewayLoadBalancer, Volumes, ResourceListing],
    flags: ["privileged", "instance_volumes", "multinode", "reservation", "private_gateway"],
    environment: [
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_EC2_METADATA_DISABLED",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_ENDPOINT_URL",
        "DSTACK_VM_BASE_IMAGE_VERSION", "DSTACK_VM_BASE_IMAGE_PREFIX",
    ],
}

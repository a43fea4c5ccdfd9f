//! A whole backend: configuration, offers, machines, clean-up. Copy it to begin one of your own.
//!
//! Its cloud is a list in memory, so nothing starts for real; everything else is what a real backend does, in the same
//! places. Only the host uses it, as a `.so`. It depends on the SDK alone: no HTTP stack, thread, file or environment of
//! its own.

mod cloud;
mod compute;
mod config;
#[cfg(test)]
mod tests;

pub use compute::Hello;
pub use config::{HelloConfig, HelloConfigurator, HelloCreds};

dstack_backend_sdk::export_backend! {
    name: "hello",
    backend: Hello,
    configurator: HelloConfigurator,
    capabilities: [CreateInstance, ResourceListing],
    flags: ["privileged", "instance_volumes"],
}

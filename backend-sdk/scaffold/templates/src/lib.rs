//! __Name__ as a backend. Only the host uses it, as a `.so`; it depends on the SDK alone.

mod backend;
mod client;
mod compute;
mod config;
mod configurator;
mod offers;

// FILL-IN: capabilities are traits of the SDK that the backend implements (`Volumes`, `Gateways`, …), flags are promises without
// a trait (`multinode`, `reservation`, …). Add `environment: ["__NAME___API_KEY"]` and use `credentials::find` to take
// credentials from the server's environment.
dstack_backend_sdk::export_backend! {
    name: "__name__",
    backend: backend::__Name__Backend,
    configurator: configurator::__Name__Configurator,
    //? vm
    capabilities: [CreateInstance, ResourceListing],
    flags: ["privileged", "instance_volumes"],
    //? container
    capabilities: [ResourceListing],
    flags: [],
    provisioning_timeout_s: 1200, // pulling an image counts
    //?
}

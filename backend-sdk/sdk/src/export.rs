//! `export_backend!`: makes a shared library a backend. The rest of this module is what the macro expands to.

#[doc(hidden)]
pub mod dispatch;
#[doc(hidden)]
pub mod entry;
#[doc(hidden)]
pub mod manifest;

#[doc(hidden)]
pub use dstack_backend_abi::export_module;

/// Makes this crate's shared library a backend, named and described once.
///
/// ```
/// # use dstack_backend_sdk::{types::methods::*, *};
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize, JsonSchema)] struct Config { token: Secret<String> }
/// # #[derive(Default)] struct AcmeConfigurator;
/// # impl Configurator for AcmeConfigurator {
/// #     type Config = Config;
/// #     fn check(&self, _: &Config) -> Result<(), BackendError> { Ok(()) }
/// # }
/// # struct Acme;
/// # impl Backend for Acme {
/// #     type Configurator = AcmeConfigurator;
/// #     fn new(_: Config) -> Result<Self, BackendError> { Ok(Acme) }
/// # }
/// # impl Compute for Acme {
/// #     fn get_offers(&self, _: &GetOffersRequest) -> Result<GetOffersReply, BackendError> { Ok(GetOffersReply::default()) }
/// #     fn run_job(&self, r: &RunJobRequest) -> Result<RunJobReply, BackendError> { run_job_on_new_instance(self, r) }
/// #     fn terminate_instance(&self, _: &TerminateInstanceRequest) -> Result<Done, BackendError> { Ok(Done {}) }
/// # }
/// # impl capabilities::CreateInstance for Acme {
/// #     fn create_instance(&self, _: &CreateInstanceRequest) -> Result<CreateInstanceReply, BackendError> {
/// #         Err(BackendError::no_capacity("none"))
/// #     }
/// # }
/// dstack_backend_sdk::export_backend! {
///     name: "acme",                                  // ^[a-z][a-z0-9_-]{0,31}$, the `type` in configurations
///     backend: Acme,                                 // implements `Backend` and `Compute`
///     configurator: AcmeConfigurator,                // its `Backend::Configurator`
///     capabilities: [CreateInstance],                // traits that it implements; `compute`, `configurator` are implied
///     flags: ["privileged", "instance_volumes"],     // what needs no trait
///     provisioning_timeout_s: 1200,                  // optional: how long its machines take, if not 600 s
///     environment: ["ACME_API_KEY"],                 // optional: variables that `credentials::find` may ask for
/// }
/// # fn main() {}
/// ```
///
/// A capability whose trait is not implemented does not compile; one that is not listed is never called. The crate needs
/// `crate-type = ["cdylib", "rlib"]` and the usual `panic = "unwind"`: a panic then becomes an error of that call alone.
#[macro_export]
macro_rules! export_backend {
    (
        name: $name:literal, backend: $backend:ty, configurator: $configurator:ty,
        capabilities: [$($capability:ident),* $(,)?], flags: [$($flag:literal),* $(,)?]
        $(, provisioning_timeout_s: $timeout:literal)?
        $(, environment: [$($variable:literal),* $(,)?])? $(,)?
    ) => {
        #[cfg(not(panic = "unwind"))]
        compile_error!("a backend must be built with panic = \"unwind\": otherwise a panic ends the host");

        const _: () = {
            const WORDS: &[&str] = &[$($crate::__capability_word!($capability),)* $($flag),*];
            const PARTS: $crate::export::manifest::Parts = $crate::export::manifest::Parts {
                name: $name,
                version: env!("CARGO_PKG_VERSION"),
                words: WORDS,
                provisioning_timeout_s: 0 $(+ $timeout)?,
                environment: &[$($($variable),*)?],
            };
            const LENGTH: usize = $crate::export::manifest::length(&PARTS);
            #[used]
            #[unsafe(link_section = ".dstack.plugin")]
            static MANIFEST: [u8; LENGTH] = $crate::export::manifest::bytes(&PARTS);

            struct Exported;
            impl $crate::export::entry::Exported for Exported {
                type Backend = $backend;
                fn manifest() -> &'static [u8] {
                    &MANIFEST
                }
                fn dispatch(
                    backend: &$backend,
                    method: u32,
                    request: &[u8],
                ) -> $crate::export::dispatch::Answer {
                    let answer = $crate::export::dispatch::Compute(backend, method, request);
                    $(let answer = answer.or_else(|| $crate::export::dispatch::$capability(backend, method, request));)*
                    answer
                }
            }
            const fn same_configurator<C: $crate::Configurator, B: $crate::Backend<Configurator = C>>() {}
            const _: () = same_configurator::<$configurator, $backend>();

            $crate::export::export_module!($crate::export::entry::module::<Exported>());
        };
    };
}

/// The manifest's word of a capability trait.
#[doc(hidden)]
#[macro_export]
macro_rules! __capability_word {
    (CreateInstance) => { "create_instance" };
    (GroupProvisioning) => { "group_provisioning" };
    (PlacementGroups) => { "placement_groups" };
    (Gateways) => { "gateway" };
    (GatewayLoadBalancer) => { "gateway_load_balancer" };
    (Volumes) => { "volumes" };
    (ResourceListing) => { "resource_listing" };
    ($other:ident) => {
        compile_error!(concat!(
            "`", stringify!($other), "` is no capability: CreateInstance, GroupProvisioning, PlacementGroups, Gateways, ",
            "GatewayLoadBalancer, Volumes, ResourceListing; `compute` and `configurator` are implied"
        ))
    };
}

//! What a backend author needs: traits, export macro, host services, helpers.
//!
//! A backend is a shared library of its own. Its crate depends on this one only, implements [`Backend`], [`Compute`], a
//! [`Configurator`] and the [`capabilities`] its provider has, and names them once in the export macro. Methods block; all
//! waiting goes through the host's services. Nothing here knows of the host's database, API or agents.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "cargo tells tests where they are"
    )
)]

pub mod arch;
pub mod boot;
mod call;
pub mod capabilities;
pub mod config;
pub mod credentials;
pub mod export;
pub mod host;
pub mod names;
pub mod offers;
pub mod prelude;
pub mod provisioning;
pub mod rest;
pub mod tags;
pub mod testing;
#[cfg(test)]
mod vectors;

pub use call::{Call, Entered};
pub use capabilities::{Backend, Compute, Configurator, run_job_on_new_instance};
pub use dstack_backend_types as types;
pub use dstack_backend_types::{BackendError, ErrorKind, Secret};
pub use host::http;
pub use schemars;
pub use serde;
pub use serde_json;

/// What methods return.
pub type Result<T, E = BackendError> = std::result::Result<T, E>;

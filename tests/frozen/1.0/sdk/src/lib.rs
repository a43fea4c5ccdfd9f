//! The part of the SDK of 1.0 that makes a module of a backend. Frozen: see `../README.md`.

mod entry;
mod error;
mod payloads;

pub use dstack_backend_abi::export_module;
pub use entry::{Backend, host, module};
pub use error::{BackendError, ErrorKind};
pub use payloads::*;

/// Numbers of methods.
pub mod methods {
    /// Offers that fit requirements.
    pub const GET_OFFERS: u32 = 1;
    /// Deletes a machine or container.
    pub const TERMINATE_INSTANCE: u32 = 3;
    /// Whether the account can be reached.
    pub const HEALTH: u32 = 6;
    /// Makes a machine.
    pub const CREATE_INSTANCE: u32 = 16;
    /// The configuration's JSON schema.
    pub const DESCRIBE_CONFIG: u32 = 259;
}

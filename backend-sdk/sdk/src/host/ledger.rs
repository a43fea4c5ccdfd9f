//! What is made beside a machine is written down before it is made, so that the host can delete what is left.
//!
//! ```no_run
//! # fn make_disk(_: &str) -> Result<String, dstack_backend_sdk::BackendError> { Ok(String::new()) }
//! # fn f(provider_ref: &str) -> Result<(), dstack_backend_sdk::BackendError> {
//! use dstack_backend_sdk::{host::ledger, types::services::SideResource};
//! let disk = SideResource {
//!     provider_ref: provider_ref.to_owned(),
//!     kind: "disk".to_owned(),
//!     name: format!("dstack-disk-r{provider_ref}"),
//!     region: "north".to_owned(),
//!     ..SideResource::default()
//! };
//! ledger::declare(&disk)?;
//! let id = make_disk(&disk.name)?;
//! # drop(id); Ok(()) }
//! ```
//!
//! Entries belong to the machine with the same `provider_ref` and are left alone as long as it lives. Settle an entry once the
//! thing is deleted, or when it goes away with its machine by itself. Both work in a call that was told to end, too.

use super::ask;
use dstack_backend_types::{
    BackendError,
    services::{LEDGER, LedgerRequest, SideResource},
};

/// Writes down what is about to be made; again with its id, once there is one. Comes back when it is stored.
///
/// # Errors
/// `unsupported` if the backend lacks the capability `resource_listing`, or outside of a host; `invalid` without reference, kind
/// or name; `transport` if it could not be stored: then do not make the thing.
pub fn declare(resource: &SideResource) -> Result<(), BackendError> {
    ask(
        LEDGER,
        &LedgerRequest::Declare {
            resource: resource.clone(),
        },
    )
}

/// Crosses an entry out. Success if there is none.
///
/// # Errors
/// As [`declare`].
pub fn settle(resource: &SideResource) -> Result<(), BackendError> {
    ask(
        LEDGER,
        &LedgerRequest::Settle {
            provider_ref: resource.provider_ref.clone(),
            kind: resource.kind.clone(),
            name: resource.name.clone(),
        },
    )
}

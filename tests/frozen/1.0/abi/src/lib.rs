//! The frozen border between the host and a backend plugin.
//!
//! Two sides use it: `dstack-backend-sdk`, whose `export_backend!` fills a [`BackendModule`], and the host's loader, which
//! reads one. Everything of the domain crosses as bytes (JSON), so the border knows numbers and bytes only and must never
//! learn more: no domain type, no further dependency.
//!
//! **Nothing in [`border`] may change**, not a field, not a parameter's name, not the package's name: the load check compares
//! them all, and every plugin ever built carries its own copy. Growth happens by new method and service numbers and by new
//! strings in the manifest. The test `the_border_is_frozen` compares the types with a verbatim copy of 1.0.0.
#![allow(
    unsafe_code,
    reason = "raw pointers cross here; each block says why it is sound"
)]

mod border;
#[doc(hidden)]
pub mod private;

pub use abi_stable::{
    abi_stability::abi_checking::check_layout_compatibility,
    library::{AbiHeaderRef, LibraryError},
    std_types::{
        RResult,
        RResult::{RErr, ROk},
        RSlice, RStr, RVec,
    },
};
pub use border::{
    BackendModule, BackendModulePrefix, BackendModuleRef, Handle, Header, HostServices, Reply,
    SECTION, SYMBOL,
};

//! Makes the crate of a new backend.
//!
//! `cargo xtask new-backend` and `dstack backend new` use it. It writes one new folder and touches nothing else: no network, no
//! build, no other file. What it makes builds, loads and passes the conformance suite against its own fake provider; the places
//! to fill in are found by one word, [`SEARCH_WORD`].
//!
//! ```
//! use dstack_backend_scaffold::{Auth, Kind, Order, Place, Sdk, create};
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! let order = Order { name: "ExampleXYZ".to_owned(), kind: Kind::Vm, auth: Auth::Bearer };
//! let created = create(&order, &Place::Outside { folder: folder.to_owned(), sdk: Sdk::Version }).unwrap();
//! assert_eq!(created.package, "dstack-backend-examplexyz");
//! assert!(created.folder.join("src/compute.rs").is_file());
//! ```

mod error;
mod names;
mod order;
mod render;
mod sdk;
mod write;

pub use error::ScaffoldError;
pub use names::Names;
pub use order::{Auth, Created, Kind, Order, Place, Sdk};
pub use write::create;

/// Marks each place to fill in.
pub const SEARCH_WORD: &str = "FILL-IN";

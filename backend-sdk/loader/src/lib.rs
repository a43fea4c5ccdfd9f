//! Inspects, opens and calls one backend plugin (a `.so` file).
//!
//! `dstack-plugins` (policy, folders, threads) and the local `dstack backend` commands use it. It is the only place that
//! loads foreign code, and it knows no policy: who may load what, from where, and how long a call may take is decided above.
//!
//! ```no_run
//! # fn example(services: dstack_backend_abi::HostServices) -> Result<(), Box<dyn std::error::Error>> {
//! let inspected = dstack_backend_loader::inspect("/opt/backends/libacme.so".as_ref())?; // nothing of the file runs
//! println!("{} {}", inspected.manifest.name, inspected.sha256);
//! let plugin = inspected.open(services)?;                                               // constructors run, `init` is called
//! let backend = plugin.open_backend(br#"{"type":"acme"}"#).map_err(|e| format!("{e:?}"))?;
//! let _reply = backend.call(6, 1, b"{}").map_err(|e| format!("{e:?}"))?;
//! # Ok(()) }
//! ```
#![allow(
    unsafe_code,
    reason = "the one dlopen; each block says why it is sound"
)]

mod elf;
mod error;
mod inspect;
mod plugin;

pub use elf::ElfFacts;
pub use error::{InspectError, OpenError};
pub use inspect::{Inspected, MAX_FILE_BYTES, inspect};
pub use plugin::{OpenedBackend, Plugin, ReplyBytes};

//! The local backend: this machine as a cloud.
//!
//! It offers one machine, the one the server runs on, at no price. Making an instance starts a shim here, through the host's
//! service `machine`; the shim runs jobs in Docker or, without an engine, as plain processes. The shim outlives the server.
//! It is a plugin like any other and knows only the SDK; whether the one machine is free is the host's knowledge.

mod backend;
mod config;
mod machine;
mod offers;

pub use backend::Local;
pub use config::{LocalConfig, LocalConfigurator, Runtime};
pub use machine::LocalData;

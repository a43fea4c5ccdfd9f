//! Finds backend plugins, calls them on bounded threads under a deadline, and serves the host services.
//!
//! The server and `dstack backend list` use it. It touches plugin folders, call threads and what the host services need
//! (clock, chance, cache, this machine). Services that need another room (SSH, ledger, catalog, HTTP) are traits that the
//! server hands in. It knows no SQL and decides nothing about runs.
//!
//! One bad plugin never harms the rest: files are inspected before anything of them runs, a panic is a typed error, a call
//! that overruns its deadline is told to end and its thread or process replaced, and a backend that loses threads, dies or
//! times out again and again is switched off for a while. What is not trusted runs in a child process, where also a crash is
//! a typed error. A plugin is loaded at its first use; listing loads nothing.
//!
//! ```no_run
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! use dstack_plugins::{Plugins, PluginsConfig};
//! let plugins = Plugins::load(PluginsConfig::new(vec!["/opt/dstack/backends".into()]));
//! for status in plugins.list() {
//!     println!("{} {:?} {:?}", status.name, status.state, status.error);
//! }
//! let local = plugins.open("local", &serde_json::json!({"type": "local"})).await?;
//! local.health().await?;
//! # Ok(()) }
//! ```
#![allow(
    unsafe_code,
    reason = "the functions that plugins call back; each block says why it is sound"
)]

mod backend;
mod breaker;
mod call;
mod config;
mod discover;
mod error;
mod events;
mod folder;
mod health;
mod lock;
mod methods;
mod plugins;
mod pool;
mod registry;
mod services;
mod slot;
mod stats;
mod status;
mod verify;
mod watch;
mod worker;

pub use backend::{Backend, ReplyBytes};
pub use config::{Deadlines, Isolation, Limits, PluginsConfig};
pub use error::CallError;
pub use events::{PluginEvent, What};
pub use lock::{LOCK_FILE, LockFile, LockedPlugin, write_lock};
pub use methods::ConfiguratorHandle;
pub use plugins::Plugins;
pub use registry::Reloaded;
pub use services::{
    Caller, ExternalService, ExternalServices, HttpConfig, HttpProxy, HttpTape, ServiceAnswer,
    ServiceUsage, Variables,
    machine::{Machine, MachineConfig},
};
pub use stats::{DURATION_BOUNDS_S, MethodStats, PluginStats};
pub use status::{PluginState, PluginStatus};
pub use verify::{VerifiedPlugin, verify_folder};
pub use worker::{WORKER_ARGUMENT, WorkerLimits, WorkerProgram, run_worker};

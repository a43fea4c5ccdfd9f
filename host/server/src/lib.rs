//! The control plane: routes, services, pipelines, logs.
//!
//! The binary starts it with [`Server::start`] and runs it until a signal. Requests go route → service → store; loops go
//! pipeline → engine → store, and reach the outside through [`ports`]. It must not hold SQL (that is the store's), open
//! plugins itself (the plugin host's) or decide what a row becomes next (the engine's).
//!
//! ```no_run
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! use dstack_server::{ProcessVars, Server, Settings};
//!
//! let settings = Settings::from_env(&ProcessVars)?;
//! let plugins = dstack_plugins::PluginsConfig::new(vec!["/opt/dstack/backends".into()]);
//! let server = Server::start(settings, plugins).await?;
//! println!("{}", server.url());
//! server.run(std::future::pending()).await?;
//! # Ok(()) }
//! ```

mod agent_files;
pub mod app;
pub mod clouds;
mod compat;
mod connections;
mod constant;
pub mod error;
mod extract;
pub mod logs;
pub mod machines;
mod metrics;
pub mod pipelines;
mod plugin_care;
pub mod ports;
mod pulls;
mod readers;
mod registry;
pub mod roles;
mod routes;
mod services;
pub mod settings;
mod start;
pub mod tasks;

pub use routes::router;
pub use routes::table::{BodyKind, OperationInfo, operations};
pub use services::backends::Backends;
pub use services::keyring::{Keyring, KeyringError};
pub use settings::{ProcessVars, Settings, SettingsError, Vars};
pub use start::{FIRST_PROJECT, Server, StartError};

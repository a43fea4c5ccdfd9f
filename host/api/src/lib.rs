//! HTTP and YAML model: every request, response and configuration, with validation.
//!
//! Used by the server, the command line and the engine. Shapes, normal forms and words only: nothing here reads a
//! file, the clock or the network, and nothing decides what depends on stored state. Unknown fields are ignored when
//! reading; the server refuses them in requests by itself. Optional fields are written as `null` unless a field says
//! otherwise.
//!
//! ```
//! use dstack_api::jobs::{JobStatus, JobTerminationReason};
//!
//! assert!(JobStatus::Running.can_become(JobStatus::Terminating));
//! assert_eq!(JobTerminationReason::VolumeError.status(), JobStatus::Failed);
//! ```

pub mod auth;
pub mod backends;
pub mod config;
pub mod error;
pub mod events;
pub mod explain;
pub mod exports;
pub mod files;
pub mod fleets;
pub mod gateways;
pub mod gpus;
pub mod instances;
pub mod jobs;
pub mod logs;
pub mod metrics;
pub mod plan;
pub mod plugins;
pub mod projects;
pub mod repos;
pub mod runs;
pub mod schema;
pub mod secrets;
pub mod server_info;
pub mod sshproxy;
pub mod templates;
pub mod time;
pub mod tokens;
pub mod users;
pub mod volumes;
pub mod words;
pub mod yaml;

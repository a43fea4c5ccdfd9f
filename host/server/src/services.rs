//! What requests do, one file a domain. Services are the only callers of the store on behalf of requests.

pub(crate) mod backend_schema;
pub(crate) mod backends;
pub(crate) mod events;
pub(crate) mod exports;
pub(crate) mod fleets;
pub(crate) mod gateways;
pub(crate) mod gpus;
pub(crate) mod health_checks;
pub(crate) mod host_keys;
pub(crate) mod images;
pub(crate) mod job_metrics;
pub(crate) mod keyring;
pub(crate) mod ledger;
pub(crate) mod names;
pub(crate) mod plans;
pub(crate) mod projects;
pub(crate) mod public_keys;
pub(crate) mod repos;
mod run_views;
pub(crate) mod runs;
pub(crate) mod secrets;
pub(crate) mod ssh_commands;
pub(crate) mod sshproxy;
pub(crate) mod templates;
pub(crate) mod tokens;
pub(crate) mod users;
pub(crate) mod volumes;

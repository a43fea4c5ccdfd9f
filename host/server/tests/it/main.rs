//! The server over its socket, with a real database and no backends, but where one is asked for.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking; it finds its data by the package folder"
)]

mod api;
mod backends;
#[path = "../../../../tests/support/plugins/built.rs"]
mod built;
mod catalog;
mod client;
mod endpoints;
mod errors;
mod exports;
mod fleets;
mod fuzz;
mod images;
mod limits;
mod metrics;
mod openapi;
mod resources;
mod roles;
mod runs;
mod support;
mod tokens;
mod uploads;
mod users;
mod volumes;
mod wire;

//! The server over its socket, with a real database and no backends.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking; it finds its data by the package folder"
)]

mod api;
mod catalog;
mod client;
mod endpoints;
mod errors;
mod exports;
mod fleets;
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

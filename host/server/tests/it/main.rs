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
mod exports;
mod images;
mod limits;
mod metrics;
mod replay;
mod resources;
mod roles;
mod runs;
mod support;
mod tokens;
mod users;
mod volumes;
mod wire;

//! The shapes against recorded exchanges, and the registry against itself.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests; cargo tells where the crate is"
)]

mod golden;
mod registry;
mod wire;

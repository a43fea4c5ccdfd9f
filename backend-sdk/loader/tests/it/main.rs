//! Inspects and opens real files: right ones, and every wrong one that can be made.
#![allow(unsafe_code, reason = "a host for the plugins under test")]
#![allow(
    clippy::unwrap_used,
    reason = "a test may fail by it, in its helpers too"
)]

#[path = "../../../../tests/support/plugins/built.rs"]
mod built;
mod compile;
mod files;
mod frozen;
mod open;

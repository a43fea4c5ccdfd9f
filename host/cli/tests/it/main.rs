//! Whole commands against a server that answers what was recorded, screen by screen.

#![expect(
    clippy::unwrap_used,
    reason = "in helpers of tests too a failure is a failed test"
)]

mod apply;
mod attach;
mod backends;
mod config;
mod errors;
mod prices;
mod resources;
mod screens;
mod world;

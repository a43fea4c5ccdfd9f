//! The store on real SQLite files, and once more on a real PostgreSQL server (`postgres.rs`).
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from start to end"
)]

mod core;
mod differential;
mod leases;
mod ledger;
mod lists;
mod postgres;
mod random_changes;
mod rows;
mod services;
mod support;

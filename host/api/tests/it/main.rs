//! Recorded exchanges of the reference system, read into our types and written again.
#![allow(
    clippy::too_many_lines,
    clippy::disallowed_methods,
    reason = "a table of operations; tests find their data by the package folder"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corpus;
#[expect(
    unreachable_pub,
    reason = "shared with the test support crate, where it is public"
)]
#[path = "../../../../tests/support/src/corpus.rs"]
mod runner;
mod wire;

//! Recorded exchanges of the reference system, read into our types and written again.
#![allow(
    clippy::too_many_lines,
    clippy::disallowed_methods,
    reason = "a table of operations; tests find their data by the package folder"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod grammars;
mod schemas;
mod wire;

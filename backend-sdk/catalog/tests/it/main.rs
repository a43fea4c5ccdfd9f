//! The library against real files, the reference library, and broken sources.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests; the environment tells where the reference library is"
)]

mod checks;
mod collectors;
mod oracle;
mod queries;
mod snapshot;
mod sources;
mod support;

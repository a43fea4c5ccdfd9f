//! The suite's side of HTTP.

/// The header with the host that a backend asked for.
pub const ASKED_HOST: &str = "x-conformance-host";

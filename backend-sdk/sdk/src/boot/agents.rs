//! Where agents are downloaded from. What this host says of it: [`host::agent_urls`](crate::host::agent_urls).

pub use dstack_backend_types::AgentUrls;

/// Templates of the reference system's public downloads: shim, runner.
pub const REFERENCE_AGENT_URLS: (&str, &str) = (
    "https://dstack-runner-downloads.s3.eu-west-1.amazonaws.com/{version}/binaries/dstack-shim-linux-{arch}",
    "https://dstack-runner-downloads.s3.eu-west-1.amazonaws.com/{version}/binaries/dstack-runner-linux-{arch}",
);

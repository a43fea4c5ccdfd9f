//! What an SSH proxy in front of the jobs asks.

use dstack_backend_types::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `POST /api/sshproxy/get_upstream`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GetUpstreamRequest {
    /// Id of a running job submission.
    pub id: String,
}

/// One hop to a job; the last one is the job itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamHost {
    /// Address as the hop before reaches it.
    pub host: String,
    /// Port.
    pub port: u16,
    /// User.
    pub user: String,
    /// Key that opens it.
    pub private_key: Secret<String>,
}

/// Answer of `POST /api/sshproxy/get_upstream`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GetUpstreamResponse {
    /// The way, first hop first.
    pub hosts: Vec<UpstreamHost>,
    /// Public keys that may go it.
    pub authorized_keys: Vec<String>,
}

//! The server itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the reference system whose API and behaviour this server speaks.
pub const COMPATIBLE_VERSION: &str = "0.22.5";

/// Response header that tells which host answered, with its own version.
pub const HOST_VERSION_HEADER: &str = "x-dstack-host-version";

/// Request header by which our own client makes itself known, with its own version.
pub const CLIENT_HEADER: &str = "x-dstack-client";

/// Request header with the API version the client speaks.
pub const API_VERSION_HEADER: &str = "x-api-version";

/// `POST /api/server/get_info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerInfo {
    /// Version of the reference system the server acts as.
    #[serde(default)]
    pub server_version: Option<String>,
}

/// `GET /healthcheck`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthcheckResponse {
    /// `running`.
    pub status: String,
}

//! Backend plugins of this server (`POST /api/x/plugins/list`, ours, global admins only).

use serde::{Deserialize, Serialize};

/// What the host knows about one plugin file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginInfo {
    /// Backend's type; the file's name where it could not be read.
    pub name: String,
    /// Version of the backend.
    #[serde(default)]
    pub version: Option<String>,
    /// Version of the SDK it was built with.
    #[serde(default)]
    pub sdk: Option<String>,
    /// The file.
    pub path: String,
    /// `available` (not used yet), `loaded`, `refused`, `shadowed`, `failed`, `unhealthy` or `unavailable`.
    pub state: String,
    /// Why it is in that state, and what to do about it.
    #[serde(default)]
    pub reason: Option<String>,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// `in_process` or `process`.
    #[serde(default)]
    pub isolation: Option<String>,
    /// SHA-256 of the file, in hexadecimal.
    #[serde(default)]
    pub sha256: Option<String>,
}

/// Answer of `POST /api/x/plugins/list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPluginsResponse {
    /// Every file found, in search order.
    pub plugins: Vec<PluginInfo>,
}

//! Backend plugins of this server (`/api/x/plugins/…`, ours, global admins only).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What the host knows about one plugin file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// `available` (not used yet), `loaded`, `refused`, `shadowed`, `removed`, `failed`, `unhealthy` or `unavailable`.
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
    /// What was counted of it since the server began; none for files that are not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<PluginLoad>,
}

/// What was counted of a plugin since the server began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PluginLoad {
    /// Calls that have ended.
    pub calls: u64,
    /// Of these, with an error.
    pub errors: u64,
    /// Calls that run now.
    pub running: usize,
    /// Calls that wait for their turn.
    pub waiting: usize,
    /// Processes that took the place of one that ended.
    pub respawns: u64,
    /// Processes that ended without being told to.
    pub deaths: u64,
    /// Threads that never came back.
    pub lost_threads: usize,
    /// Whether calls are refused, since it failed again and again.
    pub is_breaker_open: bool,
}

/// Answer of `POST /api/x/plugins/list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListPluginsResponse {
    /// Every file found, in search order.
    pub plugins: Vec<PluginInfo>,
}

/// Answer of `POST /api/x/plugins/reload`: names of backends, and what became of `config.yml`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadPluginsResponse {
    /// Not there before.
    pub added: Vec<String>,
    /// Another file is used from now on.
    pub replaced: Vec<String>,
    /// There is another file, which is used after a restart of the server.
    pub after_restart: Vec<String>,
    /// Not there any more.
    pub removed: Vec<String>,
    /// `project/backend` of the sections of `config.yml` that are used from now on.
    #[serde(default)]
    pub configured: Vec<String>,
    /// What is not used of `config.yml`: lines with file, place and reason.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// `POST /api/x/plugins/describe`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DescribePluginRequest {
    /// The backend.
    pub name: String,
}

/// What a plugin says of itself and of its configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PluginDescription {
    /// Its manifest.
    pub manifest: Value,
    /// JSON schema of its configuration; secret fields carry `writeOnly`.
    pub schema: Value,
}

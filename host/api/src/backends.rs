//! Backends of projects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A backend of a project, without credentials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackendInfo {
    /// Type of the backend.
    pub name: String,
    /// Its configuration, tagged by `type`.
    pub config: serde_json::Value,
}

/// `POST /api/project/{project}/backends/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteBackendsRequest {
    /// Types.
    pub backends_names: Vec<String>,
}

/// `POST /api/project/{project}/backends/create_yaml` and `update_yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackendYamlRequest {
    /// Configuration as in the server's `config.yml`.
    pub config_yaml: String,
}

/// Answer of `POST /api/project/{project}/backends/{type}/get_yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackendInfoYaml {
    /// Type.
    pub name: String,
    /// Configuration as in the server's `config.yml`.
    pub config_yaml: String,
}

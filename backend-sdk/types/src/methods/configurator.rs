//! Requests and replies of the configuration methods. Configurations travel as JSON objects.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What the host stores of a backend: two JSON objects, the second one encrypted.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StoredConfig {
    /// Without credentials.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// Credentials only; never printed.
    #[serde(default)]
    pub auth: Map<String, Value>,
}

impl fmt::Debug for StoredConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration part may hold tokens a plugin failed to mark, so only its keys are shown.
        let keys: Vec<&String> = self.config.keys().collect();
        f.debug_struct("StoredConfig")
            .field("config", &keys)
            .field("auth", &"***")
            .finish()
    }
}

/// A configuration with credentials, as a user wrote it. Never printed.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConfigWithCreds(pub Map<String, Value>);

impl fmt::Debug for ConfigWithCreds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigWithCreds(***)")
    }
}

/// Checks a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ValidateConfigRequest {
    /// As the user wrote it.
    pub config: ConfigWithCreds,
    /// Whether default credentials of the server's machine may be used.
    #[serde(default)]
    pub default_creds_enabled: bool,
}

/// Turns a checked configuration into what is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateConfigRequest {
    /// The project, for resources that belong to it.
    #[serde(default)]
    pub project_name: String,
    /// As the user wrote it.
    pub config: ConfigWithCreds,
}

/// What to store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateConfigReply {
    /// The record.
    pub record: StoredConfig,
}

/// Asks for a record without its credentials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublicViewRequest {
    /// The record.
    pub record: StoredConfig,
}

/// A record without its credentials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublicViewReply {
    /// Configuration with `type`, no credentials.
    pub config: Map<String, Value>,
}

/// Asks for the configuration's JSON schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribeConfigRequest {}

/// The configuration's JSON schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DescribeConfigReply {
    /// Secret fields carry `writeOnly: true`; defaults and descriptions are in their usual places.
    pub schema: Value,
}

/// Asks for a record as a configuration with credentials, for administrators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WithCredsRequest {
    /// The record.
    pub record: StoredConfig,
}

/// A record as a configuration with credentials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WithCredsReply {
    /// As a user would write it.
    pub config: ConfigWithCreds,
}

//! What a plugin says about itself, readable without running it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Largest manifest that is read, in bytes.
pub const MAX_MANIFEST_BYTES: usize = 64 * 1024;

/// The border's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbiVersion {
    /// Must be that of the host.
    pub major: u32,
    /// For information.
    #[serde(default)]
    pub minor: u32,
}

/// A plugin's manifest. Stands as JSON in the section `.dstack.plugin` of the file. Unknown keys are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this shape: 1.
    pub schema: u32,
    /// The backend type it serves.
    pub name: String,
    /// Version of the plugin.
    pub version: String,
    /// Version of the SDK it was built with.
    pub sdk: String,
    /// Version of the border.
    pub abi: AbiVersion,
    /// Encodings of requests and replies; `json` always works.
    #[serde(default)]
    pub encodings: Vec<String>,
    /// Capability words; unknown ones are ignored.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Seconds from the request to a usable instance, for offers that do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_timeout_s: Option<u64>,
    /// Variables of the server's environment that it may ask for, mostly credentials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// JSON schema of the configuration, if it is constant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_schema: Option<Value>,
}

impl Manifest {
    /// Whether the plugin has the capability. The implied ones count.
    pub fn has(&self, capability: &str) -> bool {
        capability == crate::capability::COMPUTE
            || capability == crate::capability::CONFIGURATOR
            || self.capabilities.iter().any(|word| word == capability)
    }
}

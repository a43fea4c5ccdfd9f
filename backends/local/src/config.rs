//! The configuration: `{type: local, runtime: auto}`.

use dstack_backend_sdk::{BackendError, Configurator, schemars};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How jobs run on this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    /// Job by job: in Docker if an engine answers and has the image, or its registry answers for it; else as a process.
    #[default]
    Auto,
    /// In Docker; without an engine the machine is not available.
    Docker,
    /// As processes, without containers.
    Process,
}

impl Runtime {
    /// The word of the configuration and of the shim's flag.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Docker => "docker",
            Self::Process => "process",
        }
    }
}

/// Configuration of the local backend. It has no credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LocalConfig {
    /// `local`.
    #[serde(rename = "type", default = "local")]
    pub kind: String,
    /// How jobs run.
    #[serde(default)]
    pub runtime: Runtime,
}

fn local() -> String {
    "local".to_owned()
}

/// Nothing to check but the shape.
#[derive(Debug, Default)]
pub struct LocalConfigurator;

impl Configurator for LocalConfigurator {
    type Config = LocalConfig;

    fn check(&self, config: &LocalConfig) -> Result<(), BackendError> {
        if config.kind == "local" {
            return Ok(());
        }
        Err(BackendError::invalid(format!(
            "type: {:?} is not `local`",
            config.kind
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::{LocalConfig, Runtime};

    #[test]
    fn a_misspelt_key_is_named() {
        let config = r#"{"type": "local", "runtime": "process"}"#;
        let config: LocalConfig = serde_json::from_str(config).unwrap();
        assert_eq!(config.runtime, Runtime::Process);
        let error =
            serde_json::from_str::<LocalConfig>(r#"{"type": "local", "runtim": "process"}"#)
                .unwrap_err()
                .to_string();
        assert!(
            error.contains("runtim") && error.contains("`runtime`"),
            "{error}"
        );
    }
}

//! The configuration and its check.

use dstack_backend_sdk::schemars::{self, JsonSchema};
use dstack_backend_sdk::{BackendError, Configurator, Secret};
use serde::{Deserialize, Serialize};

use crate::cloud;

/// What stands in `config.yml` under `type: hello`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "schemars")]
pub struct HelloConfig {
    /// Regions to use; all if empty.
    #[serde(default)]
    pub regions: Vec<String>,
    /// How to log in.
    pub creds: HelloCreds,
}

/// Credentials. `Secret` keeps them out of logs, and in the encrypted part of the record.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "schemars")]
pub struct HelloCreds {
    /// The key of the account; this cloud takes any that begins with `hello-`.
    pub api_key: Secret<String>,
}

/// Checks configurations. Storing, showing and describing them follows from the type.
#[derive(Debug, Default)]
pub struct HelloConfigurator;

impl Configurator for HelloConfigurator {
    type Config = HelloConfig;

    fn check(&self, config: &HelloConfig) -> Result<(), BackendError> {
        if let Some(unknown) = config
            .regions
            .iter()
            .find(|region| !cloud::REGIONS.contains(&region.as_str()))
        {
            return Err(BackendError::invalid(format!(
                "unknown region {unknown}, expected one of {}",
                cloud::REGIONS.join(", ")
            )));
        }
        log_in(&config.creds)
    }
}

pub(crate) fn log_in(creds: &HelloCreds) -> Result<(), BackendError> {
    if creds.api_key.expose().starts_with("hello-") {
        return Ok(());
    }
    Err(BackendError::auth(
        "the key is not one of this cloud",
        ["creds.api_key"],
    ))
}

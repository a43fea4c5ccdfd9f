//! The configuration, its check, and the client that follows from it.

use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};

/// What stands in `config.yml` under `type: hello-container`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HelloContainerConfig {
    /// Regions to use; all if empty.
    #[serde(default)]
    pub(crate) regions: Vec<String>,
    /// Address of the API.
    #[serde(default = "api_url")]
    pub(crate) api_url: String,
    /// How to log in.
    pub(crate) creds: HelloContainerCreds,
}

/// Credentials. `Secret` keeps them out of logs, and in the encrypted part of the record.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HelloContainerCreds {
    /// The account's key.
    pub(crate) api_key: Secret<String>,
}

fn api_url() -> String {
    "https://api.hello.example/v1".to_owned()
}

impl HelloContainerConfig {
    pub(crate) fn api(&self) -> Rest {
        let errors = ErrorMap::new()
            .code("sold_out", ErrorKind::NoCapacity)
            .code("limit_reached", ErrorKind::Quota)
            .auth_fields(["creds.api_key"]);
        Rest::new(&self.api_url)
            .key_header("x-api-key", &self.creds.api_key)
            .errors(errors)
    }
}

/// Checks configurations. Storing, showing and describing them follows from the type.
#[derive(Debug, Default)]
pub(crate) struct HelloContainerConfigurator;

impl Configurator for HelloContainerConfigurator {
    type Config = HelloContainerConfig;

    fn check(&self, config: &HelloContainerConfig) -> Result<()> {
        config.api().get("/account").done()
    }
}

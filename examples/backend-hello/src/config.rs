//! The configuration, its check, and the client that follows from it.

use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};

/// What stands in `config.yml` under `type: hello`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HelloConfig {
    /// Regions to use; all if empty.
    #[serde(default)]
    pub(crate) regions: Vec<String>,
    /// Tags of everything that is made.
    #[serde(default)]
    pub(crate) tags: tags::Tags,
    /// Address of the API; the public one if there is none.
    pub(crate) api_url: Option<String>,
    /// How to log in.
    pub(crate) creds: HelloCreds,
}

/// Credentials. `Secret` keeps them out of logs, and in the encrypted part of the record.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HelloCreds {
    /// The account's key.
    pub(crate) api_key: Secret<String>,
}

impl HelloConfig {
    pub(crate) fn api(&self) -> Rest {
        let url = self.api_url.as_deref();
        let errors = ErrorMap::new()
            .code("sold_out", ErrorKind::NoCapacity)
            .code("limit_reached", ErrorKind::Quota)
            .auth_fields(["creds.api_key"]);
        let api = Rest::new(url.unwrap_or("https://api.hello.example/v1")).errors(errors);
        api.bearer(&self.creds.api_key)
    }
}

/// Checks configurations. Storing, showing and describing them follows from the type.
#[derive(Debug, Default)]
pub(crate) struct HelloConfigurator;

impl Configurator for HelloConfigurator {
    type Config = HelloConfig;

    fn check(&self, config: &HelloConfig) -> Result<()> {
        config.api().get("/account").done()
    }
}

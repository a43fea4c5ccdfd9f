//! The configuration: one type. What is stored, shown to members and described in the schema follows from it.

use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};

/// What stands in `config.yml` under `type: __name__`.
// FILL-IN: fields of the provider, each with `#[serde(default)]` unless it must be there. Comments become the documentation.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct __Name__Config {
    /// Regions to use; all if empty.
    #[serde(default)]
    pub(crate) regions: Vec<String>,
    //? vm
    /// Tags of everything that is made.
    #[serde(default)]
    pub(crate) tags: tags::Tags,
    //?
    /// Address of the API; the public one if there is none.
    pub(crate) api_url: Option<String>,
    /// How to log in.
    pub(crate) creds: __Name__Creds,
}

/// Credentials. `Secret` keeps them out of logs, and in the encrypted part of the record.
// FILL-IN: what the provider calls them.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct __Name__Creds {
    //? bearer
    /// The account's key.
    pub(crate) api_key: Secret<String>,
    //? basic
    /// The account's user.
    pub(crate) user: String,
    /// The user's password.
    pub(crate) password: Secret<String>,
    //? signed
    /// The name of the key.
    pub(crate) access_key: Secret<String>,
    /// The key itself.
    pub(crate) secret_key: Secret<String>,
    //?
}

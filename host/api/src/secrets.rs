//! Secrets of projects.

use dstack_backend_types::Secret as Hidden;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A secret as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Secret {
    /// Id.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// Value; null in lists.
    #[serde(default)]
    pub value: Option<Hidden<String>>,
}

/// `POST /api/project/{project}/secrets/get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GetSecretRequest {
    /// Name.
    pub name: String,
}

/// `POST /api/project/{project}/secrets/create_or_update`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreateOrUpdateSecretRequest {
    /// Name.
    pub name: String,
    /// Value, at most 5000 characters.
    pub value: Hidden<String>,
}

/// `POST /api/project/{project}/secrets/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteSecretsRequest {
    /// Names; if one is unknown, none is deleted.
    pub secrets_names: Vec<String>,
}

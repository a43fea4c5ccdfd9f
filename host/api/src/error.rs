//! Error bodies, and the words clients act on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::wire_enum;

wire_enum! {
    /// Code of a 400 answer. Clients know these and no others.
    pub enum ErrorCode {
        /// Anything without a code of its own.
        Error = "error",
        /// The name is taken.
        ResourceExists = "resource_exists",
        /// No such thing. Not a 404: clients poll for this code to see that something is gone.
        ResourceNotExists = "resource_not_exists",
        /// The provider refused the credentials.
        InvalidCredentials = "invalid_credentials",
        /// The project has no such backend.
        BackendNotAvailable = "backend_not_available",
        /// The repository was not initialised.
        RepoDoesNotExist = "repo_does_not_exist",
        /// The gateway refused.
        GatewayError = "gateway_error",
    }
}

/// One element of a 400 answer's `detail` list. Clients crash on any further key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorDetail {
    /// What happened, for people.
    pub msg: String,
    /// A word of [`ErrorCode`], or null for what clients only print.
    #[serde(default)]
    pub code: Option<String>,
    /// Path of the field to blame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
}

/// Body of a 400 answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BadRequestBody {
    /// One element, or one per field to blame.
    pub detail: Vec<ErrorDetail>,
}

/// Body of a 403 or 404 answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeniedBody {
    /// The one error.
    pub detail: ErrorDetail,
}

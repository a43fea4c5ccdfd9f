//! Login by a browser.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A way to log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OAuthProviderInfo {
    /// Name.
    pub name: String,
    /// Whether it may be used.
    pub enabled: bool,
}

/// `POST /api/auth/get_next_redirect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GetNextRedirectRequest {
    /// What the provider gave to the browser.
    pub code: String,
    /// Where the login began: base64 of an object with `value` and `local_port`.
    pub state: String,
}

/// Answer of `POST /api/auth/get_next_redirect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GetNextRedirectResponse {
    /// Where the browser goes next: back to the command line that waits; none if no one waits.
    #[serde(default)]
    pub redirect_url: Option<String>,
}

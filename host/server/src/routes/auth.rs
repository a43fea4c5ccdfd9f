//! `/api/auth/…`: no login by browser yet; what its pages ask is answered all the same.

use axum::Json;
use base64::Engine as _;
use dstack_api::auth::{GetNextRedirectRequest, GetNextRedirectResponse, OAuthProviderInfo};
use serde::Deserialize;

use crate::error::ApiError;
use crate::extract::Body;

/// Longest state that is looked at, in bytes.
const MAX_STATE: usize = 4096;

/// What a login's state says.
#[derive(Debug, Deserialize)]
struct State {
    #[serde(default)]
    local_port: Option<u16>,
}

/// `list_providers`: none.
pub(super) async fn list_providers() -> Json<Vec<OAuthProviderInfo>> {
    Json(Vec::new())
}

/// `get_next_redirect`: a login that began at a command line goes back to it.
///
/// # Errors
/// 400 for a state that no login of ours has.
pub(super) async fn get_next_redirect(
    Body(request): Body<GetNextRedirectRequest>,
) -> Result<Json<GetNextRedirectResponse>, ApiError> {
    let GetNextRedirectRequest { code, state } = request;
    let read = (state.len() <= MAX_STATE)
        .then(|| {
            base64::engine::general_purpose::STANDARD
                .decode(&state)
                .ok()
        })
        .flatten()
        .and_then(|text| serde_json::from_slice::<State>(&text).ok());
    let read = read.ok_or_else(|| ApiError::refused("Invalid state token"))?;
    let encode = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let redirect_url = read.local_port.map(|port| {
        format!(
            "http://localhost:{port}/auth/callback?code={}&state={}",
            encode(&code),
            encode(&state)
        )
    });
    Ok(Json(GetNextRedirectResponse { redirect_url }))
}

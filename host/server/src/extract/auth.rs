//! Who is asking.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use dstack_api::users::GlobalRole;
use dstack_store::users::UserRow;

use crate::app::App;
use crate::error::ApiError;

/// Any user with a valid token.
#[derive(Debug, Clone)]
pub(crate) struct Authenticated(pub(crate) Arc<UserRow>);

/// A global admin.
#[derive(Debug, Clone)]
pub(crate) struct GlobalAdmin(pub(crate) Arc<UserRow>);

impl Authenticated {
    /// Whether the user may do everything.
    pub(crate) fn is_admin(&self) -> bool {
        self.0.global_role == GlobalRole::Admin
    }
}

impl FromRequestParts<App> for Authenticated {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let token = bearer(parts).ok_or(ApiError::NotAuthenticated)?;
        let user = app
            .users
            .by_token(token)
            .await?
            .ok_or_else(ApiError::invalid_token)?;
        Ok(Self(user))
    }
}

impl FromRequestParts<App> for GlobalAdmin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let user = Authenticated::from_request_parts(parts, app).await?;
        if user.is_admin() {
            Ok(Self(user.0))
        } else {
            Err(ApiError::access_denied())
        }
    }
}

fn bearer(parts: &Parts) -> Option<&str> {
    let value = parts.headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then_some(token.trim())
}

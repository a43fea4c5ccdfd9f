//! What handlers take: each type proves something about the request.

mod auth;
mod body;
pub(crate) mod guard;
mod named;
mod project;
mod strict;

pub(crate) use auth::{Authenticated, Extra};
pub(crate) use body::{Body, OptionalBody};
pub(crate) use project::{Access, InProject};
pub(crate) use strict::StrictBody;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::app::App;
use crate::compat::Client;
use crate::error::ApiError;

impl FromRequestParts<App> for Client {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, ApiError> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

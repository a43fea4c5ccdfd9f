//! Who is asking.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use dstack_api::projects::ProjectRole;
use dstack_api::tokens::Scope;
use dstack_api::users::GlobalRole;
use dstack_backend_types::Secret;
use dstack_store::users::UserRow;

use crate::app::App;
use crate::error::ApiError;
use crate::roles::Needs;

/// A user who may use the operation; found out by the guard before the handler.
#[derive(Debug, Clone)]
pub(crate) struct Authenticated(pub(crate) Arc<UserRow>, pub(crate) Option<Arc<Extra>>);

/// The extra token by which a user came.
#[derive(Debug)]
pub(crate) struct Extra {
    /// What it is good for.
    pub(crate) scopes: Vec<Scope>,
    /// The token itself.
    pub(crate) token: Secret<String>,
}

impl Authenticated {
    /// Whether the user may do everything. Extra tokens never make a global admin.
    pub(crate) fn is_admin(&self) -> bool {
        self.0.global_role == GlobalRole::Admin
    }

    /// Whether the token is good for the operation. An extra token for the project answers the role that it is limited to.
    pub(super) fn check_scopes(
        &self,
        needs: Needs,
        project: Option<&str>,
    ) -> Result<Option<ProjectRole>, ApiError> {
        let Some(extra) = &self.1 else {
            return Ok(None);
        };
        let of_project = extra.scopes.iter().find_map(|scope| match scope {
            Scope::Project(name, role) if Some(name.as_str()) == project => Some(*role),
            _ => None,
        });
        let reads = extra.scopes.contains(&Scope::Read);
        let runs = extra.scopes.contains(&Scope::Runs);
        let has_project = extra
            .scopes
            .iter()
            .any(|scope| matches!(scope, Scope::Project(..)));
        let good = match needs {
            Needs::Read => reads || runs || of_project.is_some(),
            Needs::Runs => runs || of_project.is_some(),
            Needs::ProjectScope => of_project.is_some(),
            Needs::Own => runs || has_project,
            Needs::Whole => false,
        };
        if !good {
            return Err(ApiError::Denied(
                "Access denied: the token is not good for this operation".to_owned(),
            ));
        }
        // A token of several scopes is limited by the project's only where the others do not allow the operation.
        let by_others = match needs {
            Needs::Read => reads || runs,
            Needs::Runs => runs,
            Needs::ProjectScope | Needs::Own | Needs::Whole => false,
        };
        Ok(of_project.filter(|_| !by_others))
    }
}

impl FromRequestParts<App> for Authenticated {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ApiError::Internal("an operation without its guard".to_owned()))
    }
}

/// The token of a request.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then_some(token.trim())
}

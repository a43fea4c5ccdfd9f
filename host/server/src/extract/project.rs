//! What the caller may do in the project of the path.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use dstack_api::projects::ProjectRole;
use dstack_store::projects::ProjectRow;
use dstack_store::users::UserRow;

use crate::app::App;
use crate::error::ApiError;

/// A caller and the project of the path.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    /// Who asks.
    pub(crate) user: Arc<UserRow>,
    /// Whether the user is a global admin, who may do everything in every project.
    pub(crate) is_admin: bool,
    /// The project.
    pub(crate) project: Arc<ProjectRow>,
    /// The caller's role in it.
    pub(crate) role: Option<ProjectRole>,
}

impl Access {
    /// Whether the caller is a member, or may act as one.
    pub(crate) fn is_member(&self) -> bool {
        self.is_admin || self.role.is_some()
    }

    /// Whether the caller may manage members.
    pub(crate) fn is_manager(&self) -> bool {
        self.is_admin || matches!(self.role, Some(ProjectRole::Admin | ProjectRole::Manager))
    }

    /// Whether the caller may do everything in the project.
    pub(crate) fn is_project_admin(&self) -> bool {
        self.is_admin || self.role == Some(ProjectRole::Admin)
    }
}

/// A user who may use the operation in the project of the path; found out by the guard before the handler.
#[derive(Debug, Clone)]
pub(crate) struct InProject(pub(crate) Access);

impl FromRequestParts<App> for InProject {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, ApiError> {
        let access = parts.extensions.get::<Access>().cloned();
        access
            .map(Self)
            .ok_or_else(|| ApiError::Internal("an operation without its guard".to_owned()))
    }
}

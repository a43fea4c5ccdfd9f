//! What the caller may do in the project of the path.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use dstack_api::projects::ProjectRole;
use dstack_store::projects::{self, ProjectRow};
use dstack_store::users::UserRow;

use super::Authenticated;
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

impl FromRequestParts<App> for Access {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let user = Authenticated::from_request_parts(parts, app).await?;
        let path = Path::<HashMap<String, String>>::from_request_parts(parts, app).await;
        let name = path
            .ok()
            .and_then(|Path(mut path)| path.remove("project_name"))
            .ok_or(ApiError::NotFound)?;
        let user_id = user.0.id;
        let found = app
            .store
            .read(move |tx| {
                let Some(project) =
                    projects::by_name(tx, &name)?.filter(|project| !project.deleted)
                else {
                    return Ok(None);
                };
                let role = projects::role(tx, project.id, user_id)?;
                Ok(Some((project, role)))
            })
            .await?;
        let (project, role) = found.ok_or(ApiError::NotFound)?;
        Ok(Self {
            is_admin: user.is_admin(),
            user: user.0,
            project: Arc::new(project),
            role,
        })
    }
}

macro_rules! proof {
    ($(#[$meta:meta])* $name:ident, $allowed:expr) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        pub(crate) struct $name(pub(crate) Access);

        impl FromRequestParts<App> for $name {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
                let access = Access::from_request_parts(parts, app).await?;
                let allowed: fn(&Access, &App) -> bool = $allowed;
                if allowed(&access, app) { Ok(Self(access)) } else { Err(ApiError::access_denied()) }
            }
        }
    };
}

proof!(
    /// A member of the project.
    Member,
    |access, _| access.is_member()
);
proof!(
    /// A member, or anybody if the project is public.
    MemberOrPublic,
    |access, _| access.is_member() || access.project.is_public
);
proof!(
    /// A project admin or manager.
    Manager,
    |access, _| access.is_manager()
);
proof!(
    /// A project admin.
    ProjectAdmin,
    |access, _| access.is_project_admin()
);
proof!(
    /// Who may read and change secrets: admins, and managers where the server allows it.
    SecretsManager,
    |access, app| {
        access.is_project_admin() || (access.is_manager() && app.permissions.managers_manage_secrets)
    }
);

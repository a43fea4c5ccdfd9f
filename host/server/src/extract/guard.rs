//! What stands before every handler: is the body JSON, who asks, for which project, and may they?
//!
//! The order is that of the compatible server: a body that is no JSON is told first, then the token, the project, the
//! role; what the body says comes last.

use std::collections::HashMap;
use std::sync::Arc;

use axum::RequestPartsExt as _;
use axum::extract::{Path, Request};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use dstack_api::projects::ProjectRole;
use dstack_store::{exports, projects};

use super::auth::{Authenticated, bearer};
use super::body;
use super::project::Access;
use crate::app::App;
use crate::error::ApiError;
use crate::roles::{Class, Needs, Standing};

/// What an operation asks of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard {
    pub(crate) class: Class,
    pub(crate) needs: Needs,
    /// Whether the body is JSON.
    pub(crate) is_json: bool,
}

/// Lets a request through, with what was found out about it among its extensions.
pub(crate) async fn stand(app: App, guard: Guard, request: Request, next: Next) -> Response {
    match admit(&app, guard, request).await {
        Ok(request) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

async fn admit(app: &App, guard: Guard, request: Request) -> Result<Request, ApiError> {
    let (mut parts, content) = request.into_parts();
    let content = if guard.is_json {
        let whole = Request::from_parts(parts.clone(), content);
        let bytes = body::read(whole, app).await?;
        body::check_syntax(&bytes)?;
        // Handlers take it from here, without another copy.
        parts.extensions.insert(Whole(bytes));
        axum::body::Body::empty()
    } else {
        content
    };
    match guard.class {
        Class::Anyone => {}
        Class::SshProxy => ssh_proxy(app, &parts)?,
        Class::Authenticated | Class::GlobalAdmin => {
            let caller = authenticate(app, &parts).await?;
            let standing = Standing {
                is_global_admin: caller.is_admin(),
                ..Standing::default()
            };
            if !guard.class.allows(standing) {
                return Err(ApiError::access_denied());
            }
            caller.check_scopes(guard.needs, body_project(&caller, &parts).as_deref())?;
            parts.extensions.insert(caller);
        }
        _ => {
            let access = in_project(app, guard, &mut parts).await?;
            parts.extensions.insert(access);
        }
    }
    Ok(Request::from_parts(parts, content))
}

/// The bytes of a JSON body.
#[derive(Debug, Clone)]
pub(super) struct Whole(pub(super) Bytes);

async fn authenticate(app: &App, parts: &Parts) -> Result<Authenticated, ApiError> {
    let token = bearer(&parts.headers).ok_or(ApiError::NotAuthenticated)?;
    app.users
        .caller(token)
        .await?
        .ok_or_else(ApiError::invalid_token)
}

/// The project that the body of a list over all projects names; looked at only where a token depends on it.
fn body_project(caller: &Authenticated, parts: &Parts) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Of {
        project_name: Option<String>,
    }
    caller.1.as_ref()?;
    let Whole(bytes) = parts.extensions.get()?;
    serde_json::from_slice::<Of>(bytes).ok()?.project_name
}

fn ssh_proxy(app: &App, parts: &Parts) -> Result<(), ApiError> {
    let token = bearer(&parts.headers).ok_or(ApiError::NotAuthenticated)?;
    let wanted = app.settings.sshproxy.as_ref().map(|proxy| &proxy.token);
    if wanted.is_some_and(|wanted| crate::constant::same(wanted.expose(), token)) {
        return Ok(());
    }
    Err(ApiError::access_denied())
}

async fn in_project(app: &App, guard: Guard, parts: &mut Parts) -> Result<Access, ApiError> {
    let caller = authenticate(app, parts).await?;
    let path = parts.extract::<Path<HashMap<String, String>>>().await;
    let name = path
        .ok()
        .and_then(|Path(mut path)| path.remove("project_name"))
        .ok_or(ApiError::NotFound)?;
    let user = caller.0.id;
    let asks_for_imports = matches!(
        guard.class,
        Class::MemberOrImporter | Class::MemberPublicOrImporter
    );
    let found = app
        .store
        .read(move |tx| {
            let Some(project) = projects::by_name(tx, &name)?.filter(|project| !project.deleted)
            else {
                return Ok(None);
            };
            let role = projects::role(tx, project.id, user)?;
            let imports =
                role.is_none() && asks_for_imports && exports::lends_to_user(tx, project.id, user)?;
            Ok(Some((project, role, imports)))
        })
        .await?;
    let (project, role, imports) = found.ok_or(ApiError::NotFound)?;
    let mut access = Access {
        is_admin: caller.is_admin(),
        user: Arc::clone(&caller.0),
        project: Arc::new(project),
        role,
    };
    if let Some(limit) = caller.check_scopes(guard.needs, Some(&access.project.name))? {
        access = access.limited_to(limit);
    }
    let standing = Standing {
        is_global_admin: access.is_admin,
        role: access.role,
        is_public: access.project.is_public,
        imports,
        managers_see_secrets: app.permissions.managers_manage_secrets,
    };
    if guard.class.allows(standing) {
        Ok(access)
    } else {
        Err(ApiError::access_denied())
    }
}

impl Access {
    /// The same with no more than a role: what an extra token for a project may do.
    fn limited_to(mut self, limit: ProjectRole) -> Self {
        let own = if self.is_admin {
            Some(ProjectRole::Admin)
        } else {
            self.role
        };
        self.is_admin = false;
        self.role = own.map(|own| if rank(own) < rank(limit) { own } else { limit });
        self
    }
}

const fn rank(role: ProjectRole) -> u8 {
    match role {
        ProjectRole::User => 0,
        ProjectRole::Manager => 1,
        ProjectRole::Admin => 2,
    }
}

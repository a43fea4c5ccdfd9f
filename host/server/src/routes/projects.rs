//! `/api/projects/…`

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use dstack_api::backends::BackendInfo;
use dstack_api::projects::{
    CreateProjectRequest, DeleteProjectsRequest, ListProjectsRequest, Project, ProjectsInfoList,
    RemoveProjectMembersRequest, SetProjectMembersRequest, UpdateProjectRequest,
};

use serde_json::json;

use super::documents::Either;
use super::table::Operation;
use super::users::listed;
use crate::app::App;
use crate::clouds::ProjectBackends as _;
use crate::compat::Client;
use crate::error::ApiError;
use crate::extract::{Authenticated, Body, InProject, OptionalBody};
use crate::roles::{Class, Needs};

/// `list`: what the caller may see.
pub(super) async fn list(
    State(app): State<App>,
    caller: Authenticated,
    OptionalBody(request): OptionalBody<ListProjectsRequest>,
) -> Result<Response, ApiError> {
    Ok(listed(app.projects.list(&caller, request).await?))
}

/// `list_only_no_fleets`
pub(super) async fn list_only_no_fleets(
    State(app): State<App>,
    caller: Authenticated,
) -> Result<Json<Vec<Project>>, ApiError> {
    Ok(Json(app.projects.without_fleets(&caller).await?))
}

/// `create`
pub(super) async fn create(
    State(app): State<App>,
    caller: Authenticated,
    client: Client,
    Body(request): Body<CreateProjectRequest>,
) -> Result<Json<Project>, ApiError> {
    Ok(Json(app.projects.create(&caller, request, &client).await?))
}

/// `delete`
pub(super) async fn delete(
    State(app): State<App>,
    caller: Authenticated,
    Body(request): Body<DeleteProjectsRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(
        app.projects.delete(&caller, request.projects_names).await?,
    ))
}

/// `get`
pub(super) async fn get(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
) -> Result<Json<Project>, ApiError> {
    let mut project = app.projects.get(access.project.id, &client).await?;
    if client.ours {
        // Backends that need no configuration have no row.
        for backend in app.backends.of(access.project.id).await.iter() {
            let name = backend.kind.as_str();
            if !project.backends.iter().any(|known| known.name == name) {
                project.backends.push(BackendInfo {
                    name: name.to_owned(),
                    config: json!({"type": name}),
                });
            }
        }
    }
    Ok(Json(project))
}

/// `set_members`: replaces all.
pub(super) async fn set_members(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
    Body(request): Body<SetProjectMembersRequest>,
) -> Result<Json<Project>, ApiError> {
    Ok(Json(
        app.projects
            .set_members(&access, request.members, &client)
            .await?,
    ))
}

/// `add_members`: managers, and everybody on a public project for themselves.
pub(super) async fn add_members(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
    Body(request): Body<SetProjectMembersRequest>,
) -> Result<Json<Project>, ApiError> {
    Ok(Json(
        app.projects
            .add_members(&access, request.members, &client)
            .await?,
    ))
}

/// `remove_members`: managers, and everybody for themselves.
pub(super) async fn remove_members(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
    Body(request): Body<RemoveProjectMembersRequest>,
) -> Result<Json<Project>, ApiError> {
    Ok(Json(
        app.projects
            .remove_members(&access, request.usernames, &client)
            .await?,
    ))
}

/// `update`
pub(super) async fn update(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
    Body(request): Body<UpdateProjectRequest>,
) -> Result<Json<Project>, ApiError> {
    if let Some(repo) = &request.templates_repo
        && !request.reset_templates_repo
    {
        app.templates.check(repo).await?;
    }
    Ok(Json(app.projects.update(&access, request, &client).await?))
}

/// `/api/projects/…`
pub(super) fn operations() -> Vec<Operation> {
    use Class::{
        Authenticated, Manager, ManagerOrPublic, ManagerOrSelf, MemberOrPublic, ProjectAdmin,
    };
    use Needs::{ProjectScope, Read, Whole};
    vec![
        Operation::post("/api/projects/list", Authenticated, Read, list)
            .maybe::<ListProjectsRequest>()
            .gives::<Either<Vec<Project>, ProjectsInfoList>>(),
        Operation::post(
            "/api/projects/list_only_no_fleets",
            Authenticated,
            Read,
            list_only_no_fleets,
        )
        .gives::<Vec<Project>>(),
        Operation::post("/api/projects/create", Authenticated, Whole, create)
            .takes::<CreateProjectRequest>()
            .gives::<Project>(),
        Operation::post("/api/projects/delete", Authenticated, Whole, delete)
            .takes::<DeleteProjectsRequest>()
            .gives::<()>(),
        Operation::post(
            "/api/projects/{project_name}/get",
            MemberOrPublic,
            Read,
            get,
        )
        .gives::<Project>(),
        Operation::post(
            "/api/projects/{project_name}/set_members",
            Manager,
            ProjectScope,
            set_members,
        )
        .takes::<SetProjectMembersRequest>()
        .gives::<Project>(),
        Operation::post(
            "/api/projects/{project_name}/add_members",
            ManagerOrPublic,
            ProjectScope,
            add_members,
        )
        .takes::<SetProjectMembersRequest>()
        .gives::<Project>(),
        Operation::post(
            "/api/projects/{project_name}/remove_members",
            ManagerOrSelf,
            ProjectScope,
            remove_members,
        )
        .takes::<RemoveProjectMembersRequest>()
        .gives::<Project>(),
        Operation::post(
            "/api/projects/{project_name}/update",
            ProjectAdmin,
            ProjectScope,
            update,
        )
        .takes::<UpdateProjectRequest>()
        .gives::<Project>(),
    ]
}

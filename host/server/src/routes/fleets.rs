//! `/api/fleets/list`, `/api/project/{project_name}/fleets/…` and instances

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use dstack_api::fleets::{
    ApplyFleetPlanRequest, DeleteFleetInstancesRequest, DeleteFleetsRequest, GetFleetPlanRequest,
    GetFleetRequest, ListFleetsRequest, ListProjectFleetsRequest,
};
use dstack_api::instances::{GetInstanceRequest, ListInstancesRequest};

use super::runs::shown;
use crate::app::App;
use crate::compat::Client;
use crate::error::ApiError;
use crate::extract::{Authenticated, Body, Member, OptionalBody, StrictBody};

/// `/api/fleets/list`
pub(super) async fn list(
    State(app): State<App>,
    caller: Authenticated,
    client: Client,
    OptionalBody(request): OptionalBody<ListFleetsRequest>,
) -> Result<Response, ApiError> {
    shown(app.fleets.list(&caller, request).await?, &client)
}

/// `list`
pub(super) async fn list_of_project(
    State(app): State<App>,
    Member(access): Member,
    client: Client,
    OptionalBody(_request): OptionalBody<ListProjectFleetsRequest>,
) -> Result<Response, ApiError> {
    shown(app.fleets.of_project(&access).await?, &client)
}

/// `get`
pub(super) async fn get(
    State(app): State<App>,
    Member(access): Member,
    client: Client,
    Body(request): Body<GetFleetRequest>,
) -> Result<Response, ApiError> {
    shown(app.fleets.get(&access, request).await?, &client)
}

/// `get_plan`
pub(super) async fn get_plan(
    State(app): State<App>,
    Member(access): Member,
    client: Client,
    StrictBody(request): StrictBody<GetFleetPlanRequest>,
) -> Result<Response, ApiError> {
    shown(app.fleets.plan(&access, request.spec).await?, &client)
}

/// `apply`: the row is there at once, instances follow.
pub(super) async fn apply(
    State(app): State<App>,
    Member(access): Member,
    client: Client,
    StrictBody(request): StrictBody<ApplyFleetPlanRequest>,
) -> Result<Response, ApiError> {
    shown(app.fleets.apply(&access, request).await?, &client)
}

/// `delete`: asynchronous; a fleet in use is refused.
pub(super) async fn delete(
    State(app): State<App>,
    Member(access): Member,
    Body(request): Body<DeleteFleetsRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(app.fleets.delete(&access, request.names, None).await?))
}

/// `delete_instances`
pub(super) async fn delete_instances(
    State(app): State<App>,
    Member(access): Member,
    Body(request): Body<DeleteFleetInstancesRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(
        app.fleets
            .delete(&access, vec![request.name], Some(request.instance_nums))
            .await?,
    ))
}

/// `/api/instances/list`
pub(super) async fn list_instances(
    State(app): State<App>,
    caller: Authenticated,
    client: Client,
    OptionalBody(request): OptionalBody<ListInstancesRequest>,
) -> Result<Response, ApiError> {
    shown(app.fleets.instances(&caller, request).await?, &client)
}

/// `instances/get`
pub(super) async fn get_instance(
    State(app): State<App>,
    Member(access): Member,
    client: Client,
    Body(request): Body<GetInstanceRequest>,
) -> Result<Response, ApiError> {
    shown(app.fleets.instance(&access, request.id).await?, &client)
}

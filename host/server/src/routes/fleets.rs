//! `/api/fleets/list`, `/api/project/{project_name}/fleets/…` and instances

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use dstack_api::fleets::{
    ApplyFleetPlanRequest, DeleteFleetInstancesRequest, DeleteFleetsRequest, Fleet, FleetPlan,
    GetFleetPlanRequest, GetFleetRequest, ListFleetsRequest, ListProjectFleetsRequest,
};
use dstack_api::instances::{
    GetInstanceHealthChecksRequest, GetInstanceHealthChecksResponse, GetInstanceRequest, Instance,
    ListInstancesRequest,
};

use super::runs::shown;
use super::table::Operation;
use crate::app::App;
use crate::compat::Client;
use crate::error::ApiError;
use crate::extract::{Authenticated, Body, InProject, OptionalBody, StrictBody};
use crate::roles::{Class, Needs};
use crate::services::health_checks;

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
    InProject(access): InProject,
    client: Client,
    OptionalBody(request): OptionalBody<ListProjectFleetsRequest>,
) -> Result<Response, ApiError> {
    let imported = request.include_imported;
    shown(app.fleets.of_project(&access, imported).await?, &client)
}

/// `get`
pub(super) async fn get(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
    Body(request): Body<GetFleetRequest>,
) -> Result<Response, ApiError> {
    shown(app.fleets.get(&access, request).await?, &client)
}

/// `get_plan`
pub(super) async fn get_plan(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
    StrictBody(request): StrictBody<GetFleetPlanRequest>,
) -> Result<Response, ApiError> {
    shown(app.fleets.plan(&access, request.spec).await?, &client)
}

/// `apply`: the row is there at once, instances follow.
pub(super) async fn apply(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
    StrictBody(request): StrictBody<ApplyFleetPlanRequest>,
) -> Result<Response, ApiError> {
    shown(app.fleets.apply(&access, request).await?, &client)
}

/// `delete`: asynchronous; a fleet in use is refused.
pub(super) async fn delete(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<DeleteFleetsRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(app.fleets.delete(&access, request.names, None).await?))
}

/// `delete_instances`
pub(super) async fn delete_instances(
    State(app): State<App>,
    InProject(access): InProject,
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
    InProject(access): InProject,
    client: Client,
    Body(request): Body<GetInstanceRequest>,
) -> Result<Response, ApiError> {
    shown(app.fleets.instance(&access, request.id).await?, &client)
}

/// `instances/get_instance_health_checks`
pub(super) async fn health_checks(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<GetInstanceHealthChecksRequest>,
) -> Result<Json<GetInstanceHealthChecksResponse>, ApiError> {
    Ok(Json(
        health_checks::list(&app.store, &access, request).await?,
    ))
}

/// Fleets and instances.
pub(super) fn operations() -> Vec<Operation> {
    use Class::{Authenticated, Member, MemberOrImporter};
    use Needs::{ProjectScope, Read};
    vec![
        Operation::post("/api/fleets/list", Authenticated, Read, list)
            .takes::<ListFleetsRequest>()
            .gives::<Vec<Fleet>>(),
        Operation::post(
            "/api/project/{project_name}/fleets/list",
            Member,
            Read,
            list_of_project,
        )
        .maybe::<ListProjectFleetsRequest>()
        .gives::<Vec<Fleet>>(),
        Operation::post(
            "/api/project/{project_name}/fleets/get",
            MemberOrImporter,
            Read,
            get,
        )
        .takes::<GetFleetRequest>()
        .gives::<Fleet>(),
        Operation::post(
            "/api/project/{project_name}/fleets/get_plan",
            Member,
            ProjectScope,
            get_plan,
        )
        .takes::<GetFleetPlanRequest>()
        .gives::<FleetPlan>(),
        Operation::post(
            "/api/project/{project_name}/fleets/apply",
            Member,
            ProjectScope,
            apply,
        )
        .takes::<ApplyFleetPlanRequest>()
        .gives::<Fleet>(),
        Operation::post(
            "/api/project/{project_name}/fleets/delete",
            Member,
            ProjectScope,
            delete,
        )
        .takes::<DeleteFleetsRequest>()
        .gives::<()>(),
        Operation::post(
            "/api/project/{project_name}/fleets/delete_instances",
            Member,
            ProjectScope,
            delete_instances,
        )
        .takes::<DeleteFleetInstancesRequest>()
        .gives::<()>(),
        Operation::post("/api/instances/list", Authenticated, Read, list_instances)
            .takes::<ListInstancesRequest>()
            .gives::<Vec<Instance>>(),
        Operation::post(
            "/api/project/{project_name}/instances/get",
            MemberOrImporter,
            Read,
            get_instance,
        )
        .takes::<GetInstanceRequest>()
        .gives::<Instance>(),
        Operation::post(
            "/api/project/{project_name}/instances/get_instance_health_checks",
            Member,
            Read,
            health_checks,
        )
        .takes::<GetInstanceHealthChecksRequest>()
        .gives::<GetInstanceHealthChecksResponse>(),
    ]
}

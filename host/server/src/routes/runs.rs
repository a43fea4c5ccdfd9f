//! `/api/runs/list`, `/api/project/{project_name}/runs/…` and `…/gpus/list`

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use dstack_api::explain::{ExplainRunRequest, ExplainedJob};
use dstack_api::gpus::{ListGpusRequest, ListGpusResponse};
use dstack_api::runs::{
    ApplyRunPlanRequest, DeleteRunsRequest, GetRunPlanRequest, GetRunRequest, ListRunsRequest, Run,
    RunPlan, StopRunsRequest,
};
use dstack_backend_types::BackendType;
use dstack_engine::ids::RunId;
use serde::Serialize;

use super::table::Operation;
use crate::app::{App, now};
use crate::compat::Client;
use crate::compat::old;
use crate::compat::view::{self, Show};
use crate::error::ApiError;
use crate::extract::{Authenticated, Body, InProject, StrictBody};
use crate::roles::{Class, Needs};
use crate::services::gpus;

/// An answer as this client can read it.
pub(super) fn shown<T: Show + Serialize>(
    mut answer: T,
    client: &Client,
) -> Result<Response, ApiError> {
    answer.show(client);
    if !old::is_needed(client) {
        return Ok(Json(answer).into_response());
    }
    let mut value =
        serde_json::to_value(answer).map_err(|error| ApiError::Internal(error.to_string()))?;
    old::patch(&mut value, client);
    Ok(Json(value).into_response())
}

/// `list`
pub(super) async fn list(
    State(app): State<App>,
    caller: Authenticated,
    client: Client,
    Body(request): Body<ListRunsRequest>,
) -> Result<Response, ApiError> {
    shown(app.runs.list(&caller, request).await?, &client)
}

/// `get`
pub(super) async fn get(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
    Body(request): Body<GetRunRequest>,
) -> Result<Response, ApiError> {
    shown(app.runs.get(&access, request).await?, &client)
}

/// `get_plan`: what applying would do, with offers.
pub(super) async fn get_plan(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
    StrictBody(request): StrictBody<GetRunPlanRequest>,
) -> Result<Response, ApiError> {
    shown(app.runs.plan(&access, request).await?, &client)
}

/// `apply`: makes a run, or changes the active one of that name.
pub(super) async fn apply(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
    StrictBody(request): StrictBody<ApplyRunPlanRequest>,
) -> Result<Response, ApiError> {
    let run = app.runs.apply(&access, request).await?;
    if !client.ours && client.version.is_some() {
        app.readers.expect(RunId(run.id), now());
    }
    shown(run, &client)
}

/// `stop`: asks the named runs to end. Unknown and finished names are skipped; the pipelines do the stopping.
pub(super) async fn stop(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<StopRunsRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(
        app.runs
            .stop(&access, request.runs_names, request.abort)
            .await?,
    ))
}

/// `delete`: finished runs only.
pub(super) async fn delete(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<DeleteRunsRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(app.runs.delete(&access, request.runs_names).await?))
}

/// `explain`: what each job could be placed on, and why not (ours).
pub(super) async fn explain(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<ExplainRunRequest>,
) -> Result<Json<Vec<ExplainedJob>>, ApiError> {
    Ok(Json(app.planner.explain(&access, request).await?))
}

/// `gpus/list`: offers grouped by GPU.
pub(super) async fn list_gpus(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
    StrictBody(request): StrictBody<ListGpusRequest>,
) -> Result<Json<ListGpusResponse>, ApiError> {
    let mut answer = gpus::list(&app.planner, &access, request).await?;
    if !client.ours {
        let hide = |kind: &mut BackendType| {
            if !view::is_known(kind) {
                *kind = BackendType::REMOTE;
            }
        };
        let groups = answer
            .gpus
            .iter_mut()
            .map(|group| (&mut group.backends, &mut group.backend));
        let cpus = answer
            .cpus
            .iter_mut()
            .flatten()
            .map(|group| (&mut group.backends, &mut group.backend));
        for (backends, backend) in groups.chain(cpus) {
            backends.iter_mut().flatten().chain(backend).for_each(hide);
            if let Some(all) = backends {
                let mut seen: Vec<BackendType> = Vec::new();
                all.retain(|kind| {
                    let is_new = !seen.contains(kind);
                    seen.extend(is_new.then(|| kind.clone()));
                    is_new
                });
            }
        }
    }
    Ok(Json(answer))
}

/// Runs and what they could get.
pub(super) fn operations() -> Vec<Operation> {
    use Class::{Authenticated, Member};
    use Needs::{Read, Runs};
    vec![
        Operation::post("/api/runs/list", Authenticated, Read, list)
            .takes::<ListRunsRequest>()
            .gives::<Vec<Run>>(),
        Operation::post("/api/project/{project_name}/runs/get", Member, Read, get)
            .takes::<GetRunRequest>()
            .gives::<Run>(),
        Operation::post(
            "/api/project/{project_name}/runs/get_plan",
            Member,
            Runs,
            get_plan,
        )
        .takes::<GetRunPlanRequest>()
        .gives::<RunPlan>(),
        Operation::post(
            "/api/project/{project_name}/runs/apply",
            Member,
            Runs,
            apply,
        )
        .takes::<ApplyRunPlanRequest>()
        .gives::<Run>(),
        Operation::post("/api/project/{project_name}/runs/stop", Member, Runs, stop)
            .takes::<StopRunsRequest>()
            .gives::<()>(),
        Operation::post(
            "/api/project/{project_name}/runs/delete",
            Member,
            Runs,
            delete,
        )
        .takes::<DeleteRunsRequest>()
        .gives::<()>(),
        Operation::post(
            "/api/x/project/{project_name}/runs/explain",
            Member,
            Read,
            explain,
        )
        .takes::<ExplainRunRequest>()
        .gives::<Vec<ExplainedJob>>(),
        Operation::post(
            "/api/project/{project_name}/gpus/list",
            Member,
            Read,
            list_gpus,
        )
        .takes::<ListGpusRequest>()
        .gives::<ListGpusResponse>(),
    ]
}

//! `/api/volumes/list`, `/api/project/{project_name}/volumes/…`

use axum::Json;
use axum::extract::State;
use dstack_api::volumes::{
    CreateVolumeRequest, DeleteVolumesRequest, GetVolumeRequest, ListVolumesRequest, Volume,
};
use dstack_backend_types::BackendType;

use super::table::Operation;
use crate::app::App;
use crate::compat::Client;
use crate::compat::view::is_known;
use crate::error::ApiError;
use crate::extract::{Authenticated, Body, InProject, OptionalBody};
use crate::roles::{Class, Needs};

async fn list(
    State(app): State<App>,
    caller: Authenticated,
    client: Client,
    OptionalBody(request): OptionalBody<ListVolumesRequest>,
) -> Result<Json<Vec<Volume>>, ApiError> {
    let found = app.volumes.list(&caller, request).await?;
    Ok(Json(readable(found, &client)))
}

async fn list_of_project(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
) -> Result<Json<Vec<Volume>>, ApiError> {
    let found = app.volumes.of_project(&access).await?;
    Ok(Json(readable(found, &client)))
}

async fn get(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
    Body(request): Body<GetVolumeRequest>,
) -> Result<Json<Volume>, ApiError> {
    let found = app.volumes.get(&access, request.name).await?;
    let seen = readable(vec![found], &client).pop();
    let missing = || ApiError::not_exists("Resource not found");
    seen.map(Json).ok_or_else(missing)
}

/// The row is there at once; the disk follows.
async fn create(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<CreateVolumeRequest>,
) -> Result<Json<Volume>, ApiError> {
    Ok(Json(app.volumes.create(&access, request).await?))
}

/// Answers at once; the volume is gone when `get` no longer finds it.
async fn delete(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<DeleteVolumesRequest>,
) -> Result<Json<()>, ApiError> {
    app.volumes.delete(&access, request.names).await?;
    Ok(Json(()))
}

/// The official client breaks on a list with a backend that it does not know.
fn readable(mut found: Vec<Volume>, client: &Client) -> Vec<Volume> {
    if !client.ours {
        let backend = |volume: &Volume| {
            let name = volume.configuration.get("backend")?.as_str()?;
            Some(BackendType::new(name.to_owned()))
        };
        found.retain(|volume| backend(volume).is_some_and(|name| is_known(&name)));
    }
    found
}

/// Volumes.
pub(super) fn operations() -> Vec<Operation> {
    use Class::{Authenticated, Member};
    use Needs::{Read, Runs};
    vec![
        Operation::post("/api/volumes/list", Authenticated, Read, list)
            .maybe::<ListVolumesRequest>()
            .gives::<Vec<Volume>>(),
        Operation::post(
            "/api/project/{project_name}/volumes/list",
            Member,
            Read,
            list_of_project,
        )
        .gives::<Vec<Volume>>(),
        Operation::post("/api/project/{project_name}/volumes/get", Member, Read, get)
            .takes::<GetVolumeRequest>()
            .gives::<Volume>(),
        Operation::post(
            "/api/project/{project_name}/volumes/create",
            Member,
            Runs,
            create,
        )
        .takes::<CreateVolumeRequest>()
        .gives::<Volume>(),
        Operation::post(
            "/api/project/{project_name}/volumes/delete",
            Member,
            Runs,
            delete,
        )
        .takes::<DeleteVolumesRequest>()
        .gives::<()>(),
    ]
}

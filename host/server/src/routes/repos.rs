//! `/api/project/{project_name}/repos/…` and `/api/files/…`

use axum::Json;
use axum::extract::multipart::MultipartRejection;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Multipart, Query, State};
use axum::http::HeaderMap;
use dstack_api::files::{FileArchive, GetFileArchiveByHashRequest};
use dstack_api::repos::{
    DeleteReposRequest, GetRepoRequest, RepoHead, RepoHeadWithCreds, SaveRepoCredsRequest,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::table::Operation;
use crate::app::App;
use crate::error::{ApiError, Invalid};
use crate::extract::{Authenticated, Body, InProject};
use crate::roles::{Class, Needs};

/// `init`
pub(super) async fn init(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<SaveRepoCredsRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(app.repos.init(&access, request).await?))
}

/// `get`
pub(super) async fn get(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<GetRepoRequest>,
) -> Result<Json<RepoHeadWithCreds>, ApiError> {
    Ok(Json(
        app.repos
            .get(&access, request.repo_id, request.include_creds)
            .await?,
    ))
}

/// `list`
pub(super) async fn list(
    State(app): State<App>,
    InProject(access): InProject,
) -> Result<Json<Vec<RepoHead>>, ApiError> {
    Ok(Json(app.repos.list(&access).await?))
}

/// `delete`
pub(super) async fn delete(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<DeleteReposRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(app.repos.delete(&access, request.repos_ids).await?))
}

/// A body that is no form with a file.
fn no_form(error: MultipartRejection) -> ApiError {
    ApiError::invalid(&["file"], error.body_text())
}

/// Which repository the uploaded code is for.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct UploadQuery {
    /// Id of the repository.
    repo_id: String,
}

/// `upload_code`: a difference to a repository, named by its hash.
pub(super) async fn upload_code(
    State(app): State<App>,
    InProject(access): InProject,
    query: Result<Query<UploadQuery>, QueryRejection>,
    headers: HeaderMap,
    body: Result<Multipart, MultipartRejection>,
) -> Result<Json<()>, ApiError> {
    let Query(query) = query.map_err(|error| {
        ApiError::InvalidQuery(vec![Invalid {
            kind: "value_error",
            path: Vec::new(),
            msg: error.body_text(),
        }])
    })?;
    let body = body.map_err(no_form)?;
    Ok(Json(
        app.repos
            .upload_code(&access, query.repo_id, &headers, body)
            .await?,
    ))
}

/// `get_archive_by_hash`
pub(super) async fn get_archive_by_hash(
    State(app): State<App>,
    caller: Authenticated,
    Body(request): Body<GetFileArchiveByHashRequest>,
) -> Result<Json<FileArchive>, ApiError> {
    Ok(Json(app.repos.archive(&caller, request.hash).await?))
}

/// `upload_archive`: files, named by their hash.
pub(super) async fn upload_archive(
    State(app): State<App>,
    caller: Authenticated,
    headers: HeaderMap,
    body: Result<Multipart, MultipartRejection>,
) -> Result<Json<FileArchive>, ApiError> {
    let body = body.map_err(no_form)?;
    Ok(Json(
        app.repos.upload_archive(&caller, &headers, body).await?,
    ))
}

/// Repositories, code, files.
pub(super) fn operations() -> Vec<Operation> {
    use Class::{Authenticated, Member};
    use Needs::{Own, Read, Runs};
    vec![
        Operation::post("/api/project/{project_name}/repos/init", Member, Runs, init)
            .takes::<SaveRepoCredsRequest>()
            .gives::<()>(),
        Operation::post("/api/project/{project_name}/repos/get", Member, Runs, get)
            .takes::<GetRepoRequest>()
            .gives::<RepoHeadWithCreds>(),
        Operation::post("/api/project/{project_name}/repos/list", Member, Read, list)
            .gives::<Vec<RepoHead>>(),
        Operation::post(
            "/api/project/{project_name}/repos/delete",
            Member,
            Runs,
            delete,
        )
        .takes::<DeleteReposRequest>()
        .gives::<()>(),
        Operation::post(
            "/api/project/{project_name}/repos/upload_code",
            Member,
            Runs,
            upload_code,
        )
        .takes_file()
        .asks::<UploadQuery>()
        .gives::<()>(),
        Operation::post(
            "/api/files/get_archive_by_hash",
            Authenticated,
            Own,
            get_archive_by_hash,
        )
        .takes::<GetFileArchiveByHashRequest>()
        .gives::<FileArchive>(),
        Operation::post(
            "/api/files/upload_archive",
            Authenticated,
            Own,
            upload_archive,
        )
        .takes_file()
        .gives::<FileArchive>(),
    ]
}

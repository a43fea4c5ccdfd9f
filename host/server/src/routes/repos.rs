//! `/api/project/{project_name}/repos/…` and `/api/files/…`

use axum::Json;
use axum::extract::{Multipart, Query, State};
use axum::http::HeaderMap;
use dstack_api::files::{FileArchive, GetFileArchiveByHashRequest};
use dstack_api::repos::{
    DeleteReposRequest, GetRepoRequest, RepoHead, RepoHeadWithCreds, SaveRepoCredsRequest,
};
use serde::Deserialize;

use crate::app::App;
use crate::error::ApiError;
use crate::extract::{Authenticated, Body, Member};

/// `init`
pub(super) async fn init(
    State(app): State<App>,
    Member(access): Member,
    Body(request): Body<SaveRepoCredsRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(app.repos.init(&access, request).await?))
}

/// `get`
pub(super) async fn get(
    State(app): State<App>,
    Member(access): Member,
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
    Member(access): Member,
) -> Result<Json<Vec<RepoHead>>, ApiError> {
    Ok(Json(app.repos.list(&access).await?))
}

/// `delete`
pub(super) async fn delete(
    State(app): State<App>,
    Member(access): Member,
    Body(request): Body<DeleteReposRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(app.repos.delete(&access, request.repos_ids).await?))
}

/// Which repository the uploaded code is for.
#[derive(Debug, Deserialize)]
pub(super) struct UploadQuery {
    repo_id: String,
}

/// `upload_code`: a difference to a repository, named by its hash.
pub(super) async fn upload_code(
    State(app): State<App>,
    Member(access): Member,
    Query(query): Query<UploadQuery>,
    headers: HeaderMap,
    body: Multipart,
) -> Result<Json<()>, ApiError> {
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
    body: Multipart,
) -> Result<Json<FileArchive>, ApiError> {
    Ok(Json(
        app.repos.upload_archive(&caller, &headers, body).await?,
    ))
}

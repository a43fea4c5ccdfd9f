//! What this server does not have yet: lists are empty, names unknown, and making one is refused with a clear text.

use axum::http::StatusCode;
use axum::routing::{any, post};
use axum::{Json, Router};
use dstack_api::gateways::{
    DeleteGatewaysRequest, Gateway, GetGatewayRequest, ListGatewaysRequest,
};
use dstack_api::volumes::{
    CreateVolumeRequest, DeleteVolumesRequest, GetVolumeRequest, ListVolumesRequest, Volume,
};
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::extract::{Authenticated, Body, Member, MemberOrPublic, OptionalBody, ProjectAdmin};

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/api/volumes/list", post(list_all_volumes))
        .route(
            "/api/project/{project_name}/volumes/list",
            post(list_volumes),
        )
        .route("/api/project/{project_name}/volumes/get", post(get_volume))
        .route(
            "/api/project/{project_name}/volumes/create",
            post(create_volume),
        )
        .route(
            "/api/project/{project_name}/volumes/delete",
            post(delete_volumes),
        )
        .route(
            "/api/project/{project_name}/gateways/list",
            post(list_gateways),
        )
        .route(
            "/api/project/{project_name}/gateways/get",
            post(get_gateway),
        )
        .route(
            "/api/project/{project_name}/gateways/get_plan",
            post(make_gateway),
        )
        .route(
            "/api/project/{project_name}/gateways/apply",
            post(make_gateway),
        )
        .route(
            "/api/project/{project_name}/gateways/create",
            post(make_gateway),
        )
        .route(
            "/api/project/{project_name}/gateways/delete",
            post(delete_gateways),
        )
        .route("/api/project/{project_name}/exports/list", post(exports))
        .route("/api/project/{project_name}/imports/list", post(exports))
        .route(
            "/api/project/{project_name}/templates/list",
            post(templates),
        )
        .route("/proxy/{*rest}", any(proxy))
}

async fn proxy() -> (StatusCode, Json<Value>) {
    let detail = "Services cannot be reached through this server yet; their jobs run, and listen on their machines";
    (StatusCode::NOT_IMPLEMENTED, Json(json!({"detail": detail})))
}

fn unknown() -> ApiError {
    ApiError::not_exists("Resource not found")
}

async fn list_all_volumes(
    _: Authenticated,
    _: OptionalBody<ListVolumesRequest>,
) -> Json<Vec<Volume>> {
    Json(Vec::new())
}

async fn list_volumes(_: Member) -> Json<Vec<Volume>> {
    Json(Vec::new())
}

async fn get_volume(_: Member, _: Body<GetVolumeRequest>) -> Result<Json<Volume>, ApiError> {
    Err(unknown())
}

async fn create_volume(_: Member, _: Body<CreateVolumeRequest>) -> Result<Json<Volume>, ApiError> {
    Err(ApiError::refused(
        "Volumes are not available on this server yet; instance volumes (folders) are",
    ))
}

async fn delete_volumes(_: Member, _: Body<DeleteVolumesRequest>) -> Json<()> {
    Json(())
}

async fn list_gateways(
    _: MemberOrPublic,
    _: OptionalBody<ListGatewaysRequest>,
) -> Json<Vec<Gateway>> {
    Json(Vec::new())
}

async fn get_gateway(
    _: MemberOrPublic,
    _: Body<GetGatewayRequest>,
) -> Result<Json<Gateway>, ApiError> {
    Err(unknown())
}

async fn make_gateway(_: ProjectAdmin, _: Body<Value>) -> Result<Json<Gateway>, ApiError> {
    Err(ApiError::refused(
        "Gateways are not available on this server yet",
    ))
}

async fn delete_gateways(_: ProjectAdmin, _: Body<DeleteGatewaysRequest>) -> Json<()> {
    Json(())
}

async fn exports(_: Member) -> Result<Json<Value>, ApiError> {
    Err(ApiError::refused(
        "This dstack server does not support exports.",
    ))
}

async fn templates(_: Member) -> Json<Vec<Value>> {
    Json(Vec::new())
}

//! What this server does not have yet: lists are empty, names unknown, and making one is refused with a clear text.

use axum::http::StatusCode;
use axum::routing::{any, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ApiError;
use crate::extract::Member;

pub(super) fn routes() -> Router<App> {
    Router::new()
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

async fn exports(_: Member) -> Result<Json<Value>, ApiError> {
    Err(ApiError::refused(
        "This dstack server does not support exports.",
    ))
}

async fn templates(_: Member) -> Json<Vec<Value>> {
    Json(Vec::new())
}

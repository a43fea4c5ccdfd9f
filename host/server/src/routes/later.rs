//! What this server does not have yet, with a clear text.

use axum::http::StatusCode;
use axum::routing::any;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::app::App;

/// Where services will be reached.
pub(super) fn routes() -> Router<App> {
    Router::new().route("/proxy/{*rest}", any(proxy))
}

async fn proxy() -> (StatusCode, Json<Value>) {
    let detail = "Services cannot be reached through this server yet; their jobs run, and listen on their machines";
    (StatusCode::NOT_IMPLEMENTED, Json(json!({"detail": detail})))
}

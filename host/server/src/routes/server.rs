//! The server itself: version, health, plugins, events; and what is asked of paths that are not there.

use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use dstack_api::auth::{GetNextRedirectRequest, GetNextRedirectResponse, OAuthProviderInfo};
use dstack_api::events::{Event, ListEventsRequest};
use dstack_api::server_info::{HealthcheckResponse, ServerInfo};
use dstack_backend_types::BackendType;
use serde_json::json;

use super::table::Operation;
use crate::app::App;
use crate::compat::{Client, view};
use crate::error::ApiError;
use crate::extract::{Authenticated, Body};
use crate::roles::{Class, Needs};
use crate::services::events;

/// `GET /healthcheck`
pub(super) async fn healthcheck() -> Json<HealthcheckResponse> {
    Json(HealthcheckResponse {
        status: "running".to_owned(),
    })
}

/// `POST /api/server/get_info`: the version the server acts as. Anybody may ask.
pub(super) async fn get_info(State(app): State<App>) -> Json<ServerInfo> {
    Json(ServerInfo {
        server_version: Some(app.version.to_string()),
    })
}

/// `POST /api/backends/list_types`: the backends of the plugins that are there. Anybody may ask.
pub(super) async fn list_backend_types(
    State(app): State<App>,
    client: Client,
) -> Json<Vec<BackendType>> {
    let types = app
        .plugins
        .manifests()
        .into_iter()
        .map(|manifest| BackendType::new(manifest.name.clone()));
    Json(
        types
            .filter(|kind| client.ours || view::is_known(kind))
            .collect(),
    )
}

/// `POST /api/events/list`
///
/// # Errors
/// 422 for several filters of one kind.
pub(super) async fn list_events(
    State(app): State<App>,
    caller: Authenticated,
    Body(request): Body<ListEventsRequest>,
) -> Result<Json<Vec<Event>>, ApiError> {
    Ok(Json(events::list(&app.store, &caller, request).await?))
}

/// A path that is not there: 404 for reading, 405 for everything else, which is what clients expect.
pub(super) async fn unknown(method: Method, uri: Uri) -> Response {
    if method != Method::GET && method != Method::HEAD {
        return wrong_method().await;
    }
    if uri.path() == "/" {
        let text = concat!("dstack server ", env!("CARGO_PKG_VERSION"), "\n");
        return (StatusCode::OK, text).into_response();
    }
    (StatusCode::NOT_FOUND, Json(json!({"detail": "Not Found"}))).into_response()
}

/// A path that does not take this method.
pub(super) async fn wrong_method() -> Response {
    (
        StatusCode::METHOD_NOT_ALLOWED,
        Json(json!({"detail": "Method Not Allowed"})),
    )
        .into_response()
}

/// The server itself, backends of the plugins, events.
pub(super) fn operations() -> Vec<Operation> {
    use Class::{Anyone, Authenticated};
    use Needs::Read;
    vec![
        Operation::post("/api/server/get_info", Anyone, Read, get_info).gives::<ServerInfo>(),
        Operation::post("/api/backends/list_types", Anyone, Read, list_backend_types)
            .gives::<Vec<dstack_api::schema::BackendType>>(),
        Operation::post(
            "/api/auth/list_providers",
            Anyone,
            Read,
            super::auth::list_providers,
        )
        .gives::<Vec<OAuthProviderInfo>>(),
        Operation::post(
            "/api/auth/get_next_redirect",
            Anyone,
            Read,
            super::auth::get_next_redirect,
        )
        .takes::<GetNextRedirectRequest>()
        .gives::<GetNextRedirectResponse>(),
        Operation::post("/api/events/list", Authenticated, Read, list_events)
            .takes::<ListEventsRequest>()
            .gives::<Vec<Event>>(),
    ]
}

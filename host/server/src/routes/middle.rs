//! What every request and answer carries.

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use dstack_api::server_info::HOST_VERSION_HEADER;
use tracing::Instrument;
use uuid::Uuid;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const HOST_VERSION: HeaderName = HeaderName::from_static(HOST_VERSION_HEADER);

/// Gives the request an id and a span, and the answer both headers of ours.
pub(super) async fn envelope(request: Request, next: Next) -> Response {
    let id = Uuid::new_v4().to_string();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map(|path| path.as_str().to_owned());
    let span = tracing::info_span!(
        "http.request",
        request.id = %id,
        method = %request.method(),
        // Of unknown paths only the path, never the query: it may hold secrets.
        path = route.as_deref().unwrap_or_else(|| request.uri().path()),
    );
    let mut response = async move {
        let response = next.run(request).await;
        tracing::debug!(status = response.status().as_u16(), "answered");
        response
    }
    .instrument(span)
    .await;
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::try_from(id) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(
        HOST_VERSION,
        HeaderValue::from_static(env!("CARGO_PKG_VERSION")),
    );
    response
}

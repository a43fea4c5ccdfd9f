//! The agents' files, for machines that have nothing yet: no login, nothing secret.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower::ServiceExt as _;
use tower_http::services::ServeFile;

use crate::app::App;

/// The programs that machines may ask for.
const NAMES: [&str; 3] = ["dstack-shim", "dstack-runner", "dstack-gateway"];
/// The words of addresses for processors.
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

pub(super) fn routes() -> Router<App> {
    Router::new().route("/agents/{version}/{arch}/{name}", get(file))
}

/// `GET /agents/{version}/{arch}/{name}`: the file, or the part of it that `Range` asks for. There is one version: this
/// server's; `latest` means it too.
async fn file(
    State(app): State<App>,
    Path((version, arch, name)): Path<(String, String, String)>,
    request: Request,
) -> Response {
    let missing = |why: String| (StatusCode::NOT_FOUND, why).into_response();
    if !NAMES.contains(&name.as_str()) || !ARCHITECTURES.contains(&arch.as_str()) {
        return missing(format!("there is no agent {name} for {arch}\n"));
    }
    if version != "latest" && version != app.settings.version {
        return missing(format!(
            "this server has agents of version {} only\n",
            app.settings.version
        ));
    }
    let Ok(path) = app.agents.find(&arch, &name) else {
        tracing::warn!(
            arch,
            name,
            "a machine asked for an agent that this server does not have"
        );
        return missing(format!("this server has no {name} for {arch}\n"));
    };
    match ServeFile::new(path).oneshot(request).await {
        Ok(mut reply) => {
            let kind = header::HeaderValue::from_static("application/octet-stream");
            reply.headers_mut().insert(header::CONTENT_TYPE, kind);
            reply.into_response()
        }
        Err(never) => match never {},
    }
}

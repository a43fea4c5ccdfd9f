//! The HTTP API: which path does what. Handlers get their authority by the guard and call a service.

mod agents;
mod auth;
mod backends;
mod catalog;
mod documents;
mod exports;
mod fleets;
mod gateways;
mod later;
mod logs;
mod metrics;
mod middle;
pub(crate) mod openapi;
mod own;
pub(crate) mod panics;
mod plugins;
mod projects;
mod repos;
mod rest;
mod runs;
mod secrets;
mod server;
pub(crate) mod table;
mod users;
mod volumes;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn;
use axum::routing::get;

use crate::app::App;
use crate::compat;
use crate::compat::version::Version;
use panics::Panics;
use table::{BodyKind, Operation};

/// Largest JSON body; a run with a long configuration is far below.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// The whole API over an app.
pub fn router(app: App) -> Router {
    let version = app.version.clone();
    let (mut usual, mut uploads) = (Router::new(), Router::new());
    for operation in all() {
        // Uploads have their own limit, checked while they come in.
        if operation.info.body == BodyKind::Multipart {
            uploads = operation.route(uploads, &app);
        } else {
            usual = operation.route(usual, &app);
        }
    }
    // A method that they do not take is told before anybody is asked for a token.
    let uploads = uploads
        .method_not_allowed_fallback(server::wrong_method)
        .layer(DefaultBodyLimit::disable());
    let routes = usual
        .route("/healthcheck", get(server::healthcheck))
        .route("/metrics", get(metrics::show))
        .route("/api/openapi.json", get(openapi::show))
        .merge(later::routes())
        .fallback(server::unknown)
        .method_not_allowed_fallback(server::wrong_method)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .merge(uploads);
    around(routes, version, &app.panics)
        .merge(agents::routes())
        .with_state(app)
}

/// What stands around all handlers.
fn around<S: Clone + Send + Sync + 'static>(
    routes: Router<S>,
    version: Version,
    panics: &Panics,
) -> Router<S> {
    routes
        .layer(from_fn(move |request, next| {
            compat::negotiate(version.clone(), request, next)
        }))
        .layer(panics.layer())
        .layer(from_fn(middle::envelope))
        .layer(from_fn(rest::read_to_the_end))
}

/// Every operation of the API.
fn all() -> Vec<Operation> {
    let mut all = server::operations();
    all.extend(users::operations());
    all.extend(projects::operations());
    all.extend(backends::operations());
    all.extend(secrets::operations());
    all.extend(repos::operations());
    all.extend(runs::operations());
    all.extend(fleets::operations());
    all.extend(logs::operations());
    all.extend(exports::operations());
    all.extend(own::operations());
    all.extend(plugins::operations());
    all.extend(catalog::operations());
    all.extend(volumes::operations());
    all.extend(gateways::operations());
    all
}

//! The HTTP API: which path does what. Handlers prove authority by their extractors and call a service.

mod agents;
mod catalog;
mod fleets;
mod gateways;
mod later;
mod logs;
mod metrics;
mod middle;
mod plugins;
mod projects;
mod repos;
mod rest;
mod runs;
mod secrets;
mod server;
mod users;
mod volumes;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn;
use axum::routing::{get, post};

use crate::app::App;
use crate::compat;

/// Largest JSON body; a run with a long configuration is far below.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// The whole API over an app.
pub fn router(app: App) -> Router {
    let version = app.version.clone();
    Router::new()
        .merge(server_routes())
        .merge(project_routes())
        .merge(run_routes())
        .merge(gateways::routes())
        .merge(volumes::routes())
        .merge(later::routes())
        .fallback(server::unknown)
        .method_not_allowed_fallback(server::wrong_method)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .merge(upload_routes())
        .layer(from_fn(move |request, next| {
            compat::negotiate(version.clone(), request, next)
        }))
        .layer(from_fn(middle::envelope))
        .layer(from_fn(rest::read_to_the_end))
        .merge(agents::routes())
        .with_state(app)
}

fn server_routes() -> Router<App> {
    Router::new()
        .route("/healthcheck", get(server::healthcheck))
        .route("/api/server/get_info", post(server::get_info))
        .route("/api/x/plugins/list", post(plugins::list))
        .route("/api/x/plugins/reload", post(plugins::reload))
        .route("/api/x/plugins/describe", post(plugins::describe))
        .route("/api/x/catalog/status", post(catalog::status))
        .route("/api/x/catalog/refresh", post(catalog::refresh))
        .route("/api/x/catalog/search", post(catalog::search))
        .route("/metrics", get(metrics::show))
        .route("/api/backends/list_types", post(server::list_backend_types))
        .route("/api/auth/list_providers", post(server::list_providers))
        .route("/api/users/list", post(users::list))
        .route("/api/users/get_my_user", post(users::get_my_user))
        .route("/api/users/get_user", post(users::get_user))
        .route("/api/users/create", post(users::create))
        .route("/api/users/update", post(users::update))
        .route("/api/users/refresh_token", post(users::refresh_token))
        .route("/api/users/refresh_ssh_key", post(users::refresh_ssh_key))
        .route("/api/users/delete", post(users::delete))
        .route("/api/events/list", post(server::list_events))
}

fn project_routes() -> Router<App> {
    Router::new()
        .route("/api/projects/list", post(projects::list))
        .route(
            "/api/projects/list_only_no_fleets",
            post(projects::list_only_no_fleets),
        )
        .route("/api/projects/create", post(projects::create))
        .route("/api/projects/delete", post(projects::delete))
        .route("/api/projects/{project_name}/get", post(projects::get))
        .route(
            "/api/projects/{project_name}/set_members",
            post(projects::set_members),
        )
        .route(
            "/api/projects/{project_name}/add_members",
            post(projects::add_members),
        )
        .route(
            "/api/projects/{project_name}/remove_members",
            post(projects::remove_members),
        )
        .route(
            "/api/projects/{project_name}/update",
            post(projects::update),
        )
        .route(
            "/api/project/{project_name}/secrets/list",
            post(secrets::list),
        )
        .route(
            "/api/project/{project_name}/secrets/get",
            post(secrets::get),
        )
        .route(
            "/api/project/{project_name}/secrets/create_or_update",
            post(secrets::create_or_update),
        )
        .route(
            "/api/project/{project_name}/secrets/delete",
            post(secrets::delete),
        )
        .route("/api/project/{project_name}/repos/init", post(repos::init))
        .route("/api/project/{project_name}/repos/get", post(repos::get))
        .route("/api/project/{project_name}/repos/list", post(repos::list))
        .route(
            "/api/project/{project_name}/repos/delete",
            post(repos::delete),
        )
        .route(
            "/api/files/get_archive_by_hash",
            post(repos::get_archive_by_hash),
        )
}

fn run_routes() -> Router<App> {
    Router::new()
        .route("/api/runs/list", post(runs::list))
        .route("/api/project/{project_name}/runs/get", post(runs::get))
        .route(
            "/api/project/{project_name}/runs/get_plan",
            post(runs::get_plan),
        )
        .route("/api/project/{project_name}/runs/apply", post(runs::apply))
        .route("/api/project/{project_name}/runs/stop", post(runs::stop))
        .route(
            "/api/project/{project_name}/runs/delete",
            post(runs::delete),
        )
        .route(
            "/api/project/{project_name}/gpus/list",
            post(runs::list_gpus),
        )
        .route("/api/project/{project_name}/logs/poll", post(logs::poll))
        .route("/api/fleets/list", post(fleets::list))
        .route(
            "/api/project/{project_name}/fleets/list",
            post(fleets::list_of_project),
        )
        .route("/api/project/{project_name}/fleets/get", post(fleets::get))
        .route(
            "/api/project/{project_name}/fleets/get_plan",
            post(fleets::get_plan),
        )
        .route(
            "/api/project/{project_name}/fleets/apply",
            post(fleets::apply),
        )
        .route(
            "/api/project/{project_name}/fleets/delete",
            post(fleets::delete),
        )
        .route(
            "/api/project/{project_name}/fleets/delete_instances",
            post(fleets::delete_instances),
        )
        .route("/api/instances/list", post(fleets::list_instances))
        .route(
            "/api/project/{project_name}/instances/get",
            post(fleets::get_instance),
        )
}

/// Uploads have their own limit, checked while they come in.
fn upload_routes() -> Router<App> {
    Router::new()
        .route(
            "/api/project/{project_name}/repos/upload_code",
            post(repos::upload_code),
        )
        .route("/api/files/upload_archive", post(repos::upload_archive))
        .layer(DefaultBodyLimit::disable())
}

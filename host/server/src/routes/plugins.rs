//! The plugins of the server (`/api/x/plugins/…`, ours): for global admins.

use axum::Json;
use axum::extract::State;
use dstack_api::plugins::{
    DescribePluginRequest, ListPluginsResponse, PluginDescription, PluginInfo, PluginLoad,
    ReloadPluginsResponse,
};
use dstack_plugins::PluginStatus;
use serde_json::{Value, json};

use super::table::Operation;
use crate::app::App;
use crate::error::ApiError;
use crate::extract::{Authenticated, Body};
use crate::roles::{Class, Needs};

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn info(status: PluginStatus) -> PluginInfo {
    PluginInfo {
        state: word(&json!(status.state)),
        isolation: status.isolation.map(|isolation| word(&json!(isolation))),
        name: status.name,
        version: status.version,
        sdk: status.sdk,
        path: status.path.display().to_string(),
        reason: status.error,
        capabilities: status.capabilities,
        sha256: status.hash,
        load: status.stats.map(|stats| PluginLoad {
            calls: stats.calls(),
            errors: stats.errors(),
            running: stats.running,
            waiting: stats.waiting,
            respawns: stats.respawns,
            deaths: stats.deaths,
            lost_threads: stats.lost_threads,
            is_breaker_open: stats.is_breaker_open,
        }),
    }
}

/// `POST /api/x/plugins/list`: every file in the plugin folders with its state.
///
/// # Errors
/// 403 unless the caller is a global admin.
pub(super) async fn list(
    State(app): State<App>,
    _: Authenticated,
) -> Result<Json<ListPluginsResponse>, ApiError> {
    let plugins = app.plugins.list().into_iter().map(info).collect();
    Ok(Json(ListPluginsResponse { plugins }))
}

/// `POST /api/x/plugins/reload`: looks through the folders again, and through the backends of `config.yml`.
///
/// # Errors
/// 403 unless the caller is a global admin.
pub(super) async fn reload(
    State(app): State<App>,
    _: Authenticated,
) -> Result<Json<ReloadPluginsResponse>, ApiError> {
    let done = app.plugins.reload().await;
    let sections = app.sections.reload().await?;
    Ok(Json(ReloadPluginsResponse {
        added: done.added,
        replaced: done.replaced,
        after_restart: done.after_restart,
        removed: done.removed,
        configured: sections.configured,
        problems: sections.problems,
    }))
}

/// `POST /api/x/plugins/describe`: what a backend can do, and what its section of `config.yml` takes.
///
/// # Errors
/// 403 unless the caller is a global admin; 400 if there is no such backend or it does not say.
pub(super) async fn describe(
    State(app): State<App>,
    _: Authenticated,
    Body(request): Body<DescribePluginRequest>,
) -> Result<Json<PluginDescription>, ApiError> {
    let refused = |error: &dyn std::fmt::Display| ApiError::refused(error.to_string());
    let configurator = app.plugins.configurator(&request.name).await;
    let configurator = configurator.map_err(|error| refused(&error))?;
    let schema = configurator
        .describe()
        .await
        .map_err(|error| refused(&error))?;
    let manifest = app.plugins.manifest(&request.name);
    let manifest = manifest.ok_or_else(|| refused(&format!("{} is gone", request.name)))?;
    Ok(Json(PluginDescription {
        manifest: json!(*manifest),
        schema,
    }))
}

/// The plugins of the server.
pub(super) fn operations() -> Vec<Operation> {
    use Class::GlobalAdmin;
    use Needs::Whole;
    vec![
        Operation::post("/api/x/plugins/list", GlobalAdmin, Whole, list)
            .gives::<ListPluginsResponse>(),
        Operation::post("/api/x/plugins/reload", GlobalAdmin, Whole, reload)
            .gives::<ReloadPluginsResponse>(),
        Operation::post("/api/x/plugins/describe", GlobalAdmin, Whole, describe)
            .takes::<DescribePluginRequest>()
            .gives::<PluginDescription>(),
    ]
}

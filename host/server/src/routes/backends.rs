//! `/api/project/{project_name}/backends/…`

use axum::Json;
use axum::extract::{Path, State};
use dstack_api::backends::{BackendInfoYaml, BackendYamlRequest, DeleteBackendsRequest};
use serde_json::{Map, Value};

use super::table::Operation;
use crate::app::App;
use crate::error::ApiError;
use crate::extract::{Body, InProject};
use crate::roles::{Class, Needs};
use crate::services::backends::edit::Change;

/// `create`: by a configuration with credentials.
pub(super) async fn create(
    State(app): State<App>,
    InProject(access): InProject,
    Body(config): Body<Map<String, Value>>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(
        app.backends.change(&access, Change::Create, config).await?,
    ))
}

/// `update`
pub(super) async fn update(
    State(app): State<App>,
    InProject(access): InProject,
    Body(config): Body<Map<String, Value>>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(
        app.backends.change(&access, Change::Update, config).await?,
    ))
}

/// `create_yaml`: by a section as `config.yml` has it.
pub(super) async fn create_yaml(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<BackendYamlRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(
        app.backends
            .change_yaml(&access, Change::Create, &request.config_yaml)
            .await?,
    ))
}

/// `update_yaml`
pub(super) async fn update_yaml(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<BackendYamlRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(
        app.backends
            .change_yaml(&access, Change::Update, &request.config_yaml)
            .await?,
    ))
}

/// `delete`
pub(super) async fn delete(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<DeleteBackendsRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(
        app.backends.remove(&access, request.backends_names).await?,
    ))
}

/// `{backend_name}/config_info`: with credentials.
pub(super) async fn config_info(
    State(app): State<App>,
    InProject(access): InProject,
    Path((_, name)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(app.backends.config(&access, name).await?))
}

/// `{backend_name}/get_yaml`
pub(super) async fn get_yaml(
    State(app): State<App>,
    InProject(access): InProject,
    Path((_, name)): Path<(String, String)>,
) -> Result<Json<BackendInfoYaml>, ApiError> {
    Ok(Json(app.backends.yaml(&access, name).await?))
}

/// `/api/project/{project_name}/backends/…`
pub(super) fn operations() -> Vec<Operation> {
    use Class::ProjectAdmin;
    use Needs::ProjectScope;
    vec![
        Operation::post(
            "/api/project/{project_name}/backends/create",
            ProjectAdmin,
            ProjectScope,
            create,
        )
        .takes::<Map<String, Value>>()
        .gives::<Value>(),
        Operation::post(
            "/api/project/{project_name}/backends/update",
            ProjectAdmin,
            ProjectScope,
            update,
        )
        .takes::<Map<String, Value>>()
        .gives::<Value>(),
        Operation::post(
            "/api/project/{project_name}/backends/delete",
            ProjectAdmin,
            ProjectScope,
            delete,
        )
        .takes::<DeleteBackendsRequest>()
        .gives::<()>(),
        Operation::post(
            "/api/project/{project_name}/backends/create_yaml",
            ProjectAdmin,
            ProjectScope,
            create_yaml,
        )
        .takes::<BackendYamlRequest>()
        .gives::<()>(),
        Operation::post(
            "/api/project/{project_name}/backends/update_yaml",
            ProjectAdmin,
            ProjectScope,
            update_yaml,
        )
        .takes::<BackendYamlRequest>()
        .gives::<()>(),
        Operation::post(
            "/api/project/{project_name}/backends/{backend_name}/config_info",
            ProjectAdmin,
            ProjectScope,
            config_info,
        )
        .gives::<Value>(),
        Operation::post(
            "/api/project/{project_name}/backends/{backend_name}/get_yaml",
            ProjectAdmin,
            ProjectScope,
            get_yaml,
        )
        .gives::<BackendInfoYaml>(),
    ]
}

//! `/api/project/{project_name}/secrets/…`

use axum::Json;
use axum::extract::State;
use dstack_api::secrets::{
    CreateOrUpdateSecretRequest, DeleteSecretsRequest, GetSecretRequest, Secret,
};

use super::table::Operation;
use crate::app::App;
use crate::error::ApiError;
use crate::extract::{Body, InProject};
use crate::roles::{Class, Needs};

/// `list`: names only.
pub(super) async fn list(
    State(app): State<App>,
    InProject(access): InProject,
) -> Result<Json<Vec<Secret>>, ApiError> {
    Ok(Json(app.secrets.list(&access).await?))
}

/// `get`
pub(super) async fn get(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<GetSecretRequest>,
) -> Result<Json<Secret>, ApiError> {
    Ok(Json(app.secrets.get(&access, request.name).await?))
}

/// `create_or_update`
pub(super) async fn create_or_update(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<CreateOrUpdateSecretRequest>,
) -> Result<Json<Secret>, ApiError> {
    Ok(Json(app.secrets.put(&access, request).await?))
}

/// `delete`
pub(super) async fn delete(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<DeleteSecretsRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(
        app.secrets.delete(&access, request.secrets_names).await?,
    ))
}

/// `/api/project/{project_name}/secrets/…`
pub(super) fn operations() -> Vec<Operation> {
    use Class::SecretsManager;
    use Needs::ProjectScope;
    vec![
        Operation::post(
            "/api/project/{project_name}/secrets/list",
            SecretsManager,
            ProjectScope,
            list,
        )
        .gives::<Vec<Secret>>(),
        Operation::post(
            "/api/project/{project_name}/secrets/get",
            SecretsManager,
            ProjectScope,
            get,
        )
        .takes::<GetSecretRequest>()
        .gives::<Secret>(),
        Operation::post(
            "/api/project/{project_name}/secrets/create_or_update",
            SecretsManager,
            ProjectScope,
            create_or_update,
        )
        .takes::<CreateOrUpdateSecretRequest>()
        .gives::<Secret>(),
        Operation::post(
            "/api/project/{project_name}/secrets/delete",
            SecretsManager,
            ProjectScope,
            delete,
        )
        .takes::<DeleteSecretsRequest>()
        .gives::<()>(),
    ]
}

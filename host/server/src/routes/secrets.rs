//! `/api/project/{project_name}/secrets/…`

use axum::Json;
use axum::extract::State;
use dstack_api::secrets::{
    CreateOrUpdateSecretRequest, DeleteSecretsRequest, GetSecretRequest, Secret,
};

use crate::app::App;
use crate::error::ApiError;
use crate::extract::{Body, SecretsManager};

/// `list`: names only.
pub(super) async fn list(
    State(app): State<App>,
    SecretsManager(access): SecretsManager,
) -> Result<Json<Vec<Secret>>, ApiError> {
    Ok(Json(app.secrets.list(&access).await?))
}

/// `get`
pub(super) async fn get(
    State(app): State<App>,
    SecretsManager(access): SecretsManager,
    Body(request): Body<GetSecretRequest>,
) -> Result<Json<Secret>, ApiError> {
    Ok(Json(app.secrets.get(&access, request.name).await?))
}

/// `create_or_update`
pub(super) async fn create_or_update(
    State(app): State<App>,
    SecretsManager(access): SecretsManager,
    Body(request): Body<CreateOrUpdateSecretRequest>,
) -> Result<Json<Secret>, ApiError> {
    Ok(Json(app.secrets.put(&access, request).await?))
}

/// `delete`
pub(super) async fn delete(
    State(app): State<App>,
    SecretsManager(access): SecretsManager,
    Body(request): Body<DeleteSecretsRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(
        app.secrets.delete(&access, request.secrets_names).await?,
    ))
}

//! `/api/project/{project_name}/gateways/…`

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use dstack_api::gateways::{
    ApplyGatewayPlanInput, ApplyGatewayPlanRequest, CreateGatewayRequest, DeleteGatewaysRequest,
    Gateway, GatewayPlan, GatewaySpec, GetGatewayPlanRequest, GetGatewayRequest,
    ListGatewaysRequest, SetDefaultGatewayRequest, SetWildcardDomainRequest,
};
use dstack_backend_types::BackendType;

use crate::app::App;
use crate::compat::Client;
use crate::compat::view::is_known;
use crate::error::ApiError;
use crate::extract::{Body, MemberOrPublic, OptionalBody, ProjectAdmin};

pub(super) fn routes() -> Router<App> {
    let at = |operation: &str| format!("/api/project/{{project_name}}/gateways/{operation}");
    Router::new()
        .route(&at("list"), post(list))
        .route(&at("get"), post(get))
        .route(&at("get_plan"), post(get_plan))
        .route(&at("apply"), post(apply))
        .route(&at("create"), post(create))
        .route(&at("delete"), post(delete))
        .route(&at("set_default"), post(set_default))
        .route(&at("set_wildcard_domain"), post(set_wildcard_domain))
}

async fn list(
    State(app): State<App>,
    MemberOrPublic(access): MemberOrPublic,
    client: Client,
    OptionalBody(_): OptionalBody<ListGatewaysRequest>,
) -> Result<Json<Vec<Gateway>>, ApiError> {
    let mut found = app.gateways.of_project(access.project.id).await?;
    if !client.ours {
        // The official client breaks on a list with a backend that it does not know.
        found.retain(|gateway| {
            let backend = gateway.configuration.get("backend");
            let backend = backend.and_then(serde_json::Value::as_str);
            backend.is_some_and(|name| is_known(&BackendType::new(name.to_owned())))
        });
    }
    Ok(Json(found))
}

async fn get(
    State(app): State<App>,
    MemberOrPublic(access): MemberOrPublic,
    Body(request): Body<GetGatewayRequest>,
) -> Result<Json<Gateway>, ApiError> {
    Ok(Json(
        app.gateways.get(access.project.id, request.name).await?,
    ))
}

async fn get_plan(
    State(app): State<App>,
    ProjectAdmin(access): ProjectAdmin,
    Body(request): Body<GetGatewayPlanRequest>,
) -> Result<Json<GatewayPlan>, ApiError> {
    Ok(Json(app.gateways.plan(&access, request.spec).await?))
}

/// The row is there at once; machines follow.
async fn apply(
    State(app): State<App>,
    ProjectAdmin(access): ProjectAdmin,
    Body(request): Body<ApplyGatewayPlanRequest>,
) -> Result<Json<Gateway>, ApiError> {
    Ok(Json(app.gateways.apply(&access, request).await?))
}

/// For older clients: like `apply` of a new gateway.
async fn create(
    State(app): State<App>,
    ProjectAdmin(access): ProjectAdmin,
    Body(request): Body<CreateGatewayRequest>,
) -> Result<Json<Gateway>, ApiError> {
    let spec = GatewaySpec {
        configuration: request.configuration,
        configuration_path: None,
    };
    let request = ApplyGatewayPlanRequest {
        plan: ApplyGatewayPlanInput {
            spec,
            current_resource: None,
        },
        force: false,
    };
    Ok(Json(app.gateways.apply(&access, request).await?))
}

/// Answers at once; the gateway is gone when `get` no longer finds it.
async fn delete(
    State(app): State<App>,
    ProjectAdmin(access): ProjectAdmin,
    Body(request): Body<DeleteGatewaysRequest>,
) -> Result<Json<()>, ApiError> {
    app.gateways.delete(&access, request.names).await?;
    Ok(Json(()))
}

async fn set_default(
    State(app): State<App>,
    ProjectAdmin(access): ProjectAdmin,
    Body(request): Body<SetDefaultGatewayRequest>,
) -> Result<Json<()>, ApiError> {
    app.gateways.set_default(&access, request).await?;
    Ok(Json(()))
}

async fn set_wildcard_domain(
    State(app): State<App>,
    ProjectAdmin(access): ProjectAdmin,
    Body(request): Body<SetWildcardDomainRequest>,
) -> Result<Json<Gateway>, ApiError> {
    Ok(Json(app.gateways.set_domain(&access, request).await?))
}

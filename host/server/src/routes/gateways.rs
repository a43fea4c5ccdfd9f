//! `/api/project/{project_name}/gateways/…`

use axum::Json;
use axum::extract::State;
use dstack_api::gateways::{
    ApplyGatewayPlanInput, ApplyGatewayPlanRequest, CreateGatewayRequest, DeleteGatewaysRequest,
    Gateway, GatewayPlan, GatewaySpec, GetGatewayPlanRequest, GetGatewayRequest,
    ListGatewaysRequest, SetDefaultGatewayRequest, SetWildcardDomainRequest,
};
use dstack_backend_types::BackendType;

use super::table::Operation;
use crate::app::App;
use crate::compat::Client;
use crate::compat::view::is_known;
use crate::error::ApiError;
use crate::extract::{Body, InProject, OptionalBody};
use crate::roles::{Class, Needs};
use crate::services::exports::lists;

async fn list(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
    OptionalBody(request): OptionalBody<ListGatewaysRequest>,
) -> Result<Json<Vec<Gateway>>, ApiError> {
    let mut found = app.gateways.of_project(access.project.id).await?;
    if request.include_imported {
        for (project, name) in lists::imported_gateways(&app.store, &access).await? {
            found.push(app.gateways.get(project, name).await?);
        }
    }
    found.retain(|gateway| is_readable(gateway, &client));
    Ok(Json(found))
}

/// The official client breaks on an answer with a backend that it does not know.
fn is_readable(gateway: &Gateway, client: &Client) -> bool {
    let backend = gateway.configuration.get("backend");
    let backend = backend.and_then(serde_json::Value::as_str);
    client.ours || backend.is_some_and(|name| is_known(&BackendType::new(name.to_owned())))
}

async fn get(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
    Body(request): Body<GetGatewayRequest>,
) -> Result<Json<Gateway>, ApiError> {
    lists::check_gateway_guest(&app.store, &access, request.name.clone()).await?;
    let found = app.gateways.get(access.project.id, request.name).await?;
    if !is_readable(&found, &client) {
        return Err(ApiError::not_exists("Resource not found"));
    }
    Ok(Json(found))
}

async fn get_plan(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<GetGatewayPlanRequest>,
) -> Result<Json<GatewayPlan>, ApiError> {
    Ok(Json(app.gateways.plan(&access, request.spec).await?))
}

/// The row is there at once; machines follow.
async fn apply(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<ApplyGatewayPlanRequest>,
) -> Result<Json<Gateway>, ApiError> {
    Ok(Json(app.gateways.apply(&access, request).await?))
}

/// For older clients: like `apply` of a new gateway.
async fn create(
    State(app): State<App>,
    InProject(access): InProject,
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
    InProject(access): InProject,
    Body(request): Body<DeleteGatewaysRequest>,
) -> Result<Json<()>, ApiError> {
    app.gateways.delete(&access, request.names).await?;
    Ok(Json(()))
}

async fn set_default(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<SetDefaultGatewayRequest>,
) -> Result<Json<()>, ApiError> {
    app.gateways.set_default(&access, request).await?;
    Ok(Json(()))
}

async fn set_wildcard_domain(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<SetWildcardDomainRequest>,
) -> Result<Json<Gateway>, ApiError> {
    Ok(Json(app.gateways.set_domain(&access, request).await?))
}

/// Gateways.
pub(super) fn operations() -> Vec<Operation> {
    use Class::{MemberOrPublic, MemberPublicOrImporter, ProjectAdmin};
    use Needs::{ProjectScope, Read};
    vec![
        Operation::post(
            "/api/project/{project_name}/gateways/list",
            MemberOrPublic,
            Read,
            list,
        )
        .maybe::<ListGatewaysRequest>()
        .gives::<Vec<Gateway>>(),
        Operation::post(
            "/api/project/{project_name}/gateways/get",
            MemberPublicOrImporter,
            Read,
            get,
        )
        .takes::<GetGatewayRequest>()
        .gives::<Gateway>(),
        Operation::post(
            "/api/project/{project_name}/gateways/get_plan",
            ProjectAdmin,
            ProjectScope,
            get_plan,
        )
        .takes::<GetGatewayPlanRequest>()
        .gives::<GatewayPlan>(),
        Operation::post(
            "/api/project/{project_name}/gateways/apply",
            ProjectAdmin,
            ProjectScope,
            apply,
        )
        .takes::<ApplyGatewayPlanRequest>()
        .gives::<Gateway>(),
        Operation::post(
            "/api/project/{project_name}/gateways/create",
            ProjectAdmin,
            ProjectScope,
            create,
        )
        .takes::<CreateGatewayRequest>()
        .gives::<Gateway>(),
        Operation::post(
            "/api/project/{project_name}/gateways/delete",
            ProjectAdmin,
            ProjectScope,
            delete,
        )
        .takes::<DeleteGatewaysRequest>()
        .gives::<()>(),
        Operation::post(
            "/api/project/{project_name}/gateways/set_default",
            ProjectAdmin,
            ProjectScope,
            set_default,
        )
        .takes::<SetDefaultGatewayRequest>()
        .gives::<()>(),
        Operation::post(
            "/api/project/{project_name}/gateways/set_wildcard_domain",
            ProjectAdmin,
            ProjectScope,
            set_wildcard_domain,
        )
        .takes::<SetWildcardDomainRequest>()
        .gives::<Gateway>(),
    ]
}

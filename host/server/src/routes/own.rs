//! Operations of ours, and small ones of the reference: extra tokens, public keys, the SSH proxy, templates, metrics of jobs.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use dstack_api::metrics::{JobMetrics, JobMetricsQuery};
use dstack_api::sshproxy::{GetUpstreamRequest, GetUpstreamResponse};
use dstack_api::templates::UiTemplate;
use dstack_api::tokens::{CreateTokenRequest, DeleteTokenRequest, NewToken, TokenInfo};
use dstack_api::users::{AddPublicKeyRequest, DeletePublicKeysRequest, PublicKeyInfo};

use super::table::Operation;
use crate::app::App;
use crate::error::{ApiError, Invalid};
use crate::extract::{Authenticated, Body, InProject};
use crate::roles::{Class, Needs};
use crate::services::{job_metrics, public_keys, sshproxy, tokens};

/// `/api/users/public_keys/list`
pub(super) async fn list_keys(
    State(app): State<App>,
    caller: Authenticated,
) -> Result<Json<Vec<PublicKeyInfo>>, ApiError> {
    Ok(Json(public_keys::list(&app.store, &caller).await?))
}

/// `/api/users/public_keys/add`
pub(super) async fn add_key(
    State(app): State<App>,
    caller: Authenticated,
    Body(request): Body<AddPublicKeyRequest>,
) -> Result<Json<PublicKeyInfo>, ApiError> {
    Ok(Json(public_keys::add(&app.store, &caller, request).await?))
}

/// `/api/users/public_keys/delete`
pub(super) async fn delete_keys(
    State(app): State<App>,
    caller: Authenticated,
    Body(request): Body<DeletePublicKeysRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(
        public_keys::delete(&app.store, &caller, request.ids).await?,
    ))
}

/// `/api/x/tokens/list`
pub(super) async fn list_tokens(
    State(app): State<App>,
    caller: Authenticated,
) -> Result<Json<Vec<TokenInfo>>, ApiError> {
    Ok(Json(tokens::list(&app.store, &caller).await?))
}

/// `/api/x/tokens/create`
pub(super) async fn create_token(
    State(app): State<App>,
    caller: Authenticated,
    Body(request): Body<CreateTokenRequest>,
) -> Result<Json<NewToken>, ApiError> {
    Ok(Json(tokens::create(&app.store, &caller, request).await?))
}

/// `/api/x/tokens/delete`
pub(super) async fn delete_token(
    State(app): State<App>,
    caller: Authenticated,
    Body(request): Body<DeleteTokenRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(
        tokens::delete(&app.store, &app.users, &caller, request.name).await?,
    ))
}

/// `/api/sshproxy/get_upstream`
pub(super) async fn get_upstream(
    State(app): State<App>,
    Body(request): Body<GetUpstreamRequest>,
) -> Result<Json<GetUpstreamResponse>, ApiError> {
    Ok(Json(
        sshproxy::upstream(&app.store, &app.keyring, &request.id).await?,
    ))
}

/// `templates/list`
pub(super) async fn list_templates(
    State(app): State<App>,
    InProject(access): InProject,
) -> Json<Vec<UiTemplate>> {
    let own = access.project.templates_repo.as_deref();
    let list = app.templates.list(access.project.id, own).await;
    Json(Arc::unwrap_or_clone(list))
}

/// `metrics/job/{run_name}`
pub(super) async fn job_metrics(
    State(app): State<App>,
    InProject(access): InProject,
    Path((_, run)): Path<(String, String)>,
    query: Result<Query<JobMetricsQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<JobMetrics>, ApiError> {
    let Query(query) = query.map_err(|error| {
        ApiError::InvalidQuery(vec![Invalid {
            kind: "value_error",
            path: Vec::new(),
            msg: error.body_text(),
        }])
    })?;
    Ok(Json(
        job_metrics::of_job(&app.store, &access, run, query).await?,
    ))
}

/// Small ones of the reference, and extra tokens.
pub(super) fn operations() -> Vec<Operation> {
    use Class::{Authenticated, Member, SshProxy};
    use Needs::{Read, Whole};
    vec![
        Operation::post(
            "/api/users/public_keys/list",
            Authenticated,
            Read,
            list_keys,
        )
        .gives::<Vec<PublicKeyInfo>>(),
        Operation::post("/api/users/public_keys/add", Authenticated, Whole, add_key)
            .takes::<AddPublicKeyRequest>()
            .gives::<PublicKeyInfo>(),
        Operation::post(
            "/api/users/public_keys/delete",
            Authenticated,
            Whole,
            delete_keys,
        )
        .takes::<DeletePublicKeysRequest>()
        .gives::<()>(),
        Operation::post("/api/x/tokens/list", Authenticated, Whole, list_tokens)
            .gives::<Vec<TokenInfo>>(),
        Operation::post("/api/x/tokens/create", Authenticated, Whole, create_token)
            .takes::<CreateTokenRequest>()
            .gives::<NewToken>(),
        Operation::post("/api/x/tokens/delete", Authenticated, Whole, delete_token)
            .takes::<DeleteTokenRequest>()
            .gives::<()>(),
        Operation::post("/api/sshproxy/get_upstream", SshProxy, Whole, get_upstream)
            .takes::<GetUpstreamRequest>()
            .gives::<GetUpstreamResponse>(),
        Operation::post(
            "/api/project/{project_name}/templates/list",
            Member,
            Read,
            list_templates,
        )
        .gives::<Vec<UiTemplate>>(),
        Operation::get(
            "/api/project/{project_name}/metrics/job/{run_name}",
            Member,
            Read,
            job_metrics,
        )
        .asks::<JobMetricsQuery>()
        .gives::<JobMetrics>(),
    ]
}

//! `/api/project/{project_name}/exports/…` and `…/imports/…`

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use dstack_api::exports::{
    CreateExportRequest, DeleteExportRequest, DeleteImportRequest, Export, Import,
    ListExportsResponse, ListImportsResponse, UpdateExportRequest,
};

use super::documents::Either;
use super::table::Operation;
use crate::app::App;
use crate::compat::Client;
use crate::error::ApiError;
use crate::extract::{Body, InProject};
use crate::roles::{Class, Needs};
use crate::services::exports::{self, lists};

/// From this release on lists are objects with warnings.
const WITH_WARNINGS: [u64; 3] = [0, 22, 0];

fn check(app: &App) -> Result<(), ApiError> {
    if app.settings.exports {
        return Ok(());
    }
    Err(ApiError::refused(exports::OFF))
}

/// `exports/create`
pub(super) async fn create(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<CreateExportRequest>,
) -> Result<Json<Export>, ApiError> {
    check(&app)?;
    Ok(Json(exports::create(&app.store, &access, request).await?))
}

/// `exports/update`
pub(super) async fn update(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<UpdateExportRequest>,
) -> Result<Json<Export>, ApiError> {
    check(&app)?;
    Ok(Json(exports::update(&app.store, &access, request).await?))
}

/// `exports/delete`: also where exports are switched off, so that old ones can be ended.
pub(super) async fn delete(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<DeleteExportRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(
        exports::delete(&app.store, &access, request.name).await?,
    ))
}

/// `exports/list`
pub(super) async fn list(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
) -> Result<Response, ApiError> {
    let exports = lists::exports(&app.store, &access).await?;
    if exports.is_empty() {
        check(&app)?;
    }
    if client.older_than(WITH_WARNINGS) {
        return Ok(Json(exports).into_response());
    }
    let warnings = Vec::new();
    Ok(Json(ListExportsResponse { exports, warnings }).into_response())
}

/// `imports/list`
pub(super) async fn list_imports(
    State(app): State<App>,
    InProject(access): InProject,
    client: Client,
) -> Result<Response, ApiError> {
    let imports = lists::imports(&app.store, &access).await?;
    if imports.is_empty() {
        check(&app)?;
    }
    if client.older_than(WITH_WARNINGS) {
        return Ok(Json(imports).into_response());
    }
    let warnings = Vec::new();
    Ok(Json(ListImportsResponse { imports, warnings }).into_response())
}

/// `imports/delete`
pub(super) async fn delete_import(
    State(app): State<App>,
    InProject(access): InProject,
    Body(request): Body<DeleteImportRequest>,
) -> Result<Json<()>, ApiError> {
    Ok(Json(
        exports::stop_import(&app.store, &access, request).await?,
    ))
}

/// Exports and imports.
pub(super) fn operations() -> Vec<Operation> {
    use Class::{Member, ProjectAdmin};
    use Needs::{ProjectScope, Read};
    vec![
        Operation::post(
            "/api/project/{project_name}/exports/create",
            ProjectAdmin,
            ProjectScope,
            create,
        )
        .takes::<CreateExportRequest>()
        .gives::<Export>(),
        Operation::post(
            "/api/project/{project_name}/exports/update",
            ProjectAdmin,
            ProjectScope,
            update,
        )
        .takes::<UpdateExportRequest>()
        .gives::<Export>(),
        Operation::post(
            "/api/project/{project_name}/exports/delete",
            ProjectAdmin,
            ProjectScope,
            delete,
        )
        .takes::<DeleteExportRequest>()
        .gives::<()>(),
        Operation::post(
            "/api/project/{project_name}/exports/list",
            Member,
            Read,
            list,
        )
        .gives::<Either<ListExportsResponse, Vec<Export>>>(),
        Operation::post(
            "/api/project/{project_name}/imports/delete",
            ProjectAdmin,
            ProjectScope,
            delete_import,
        )
        .takes::<DeleteImportRequest>()
        .gives::<()>(),
        Operation::post(
            "/api/project/{project_name}/imports/list",
            Member,
            Read,
            list_imports,
        )
        .gives::<Either<ListImportsResponse, Vec<Import>>>(),
    ]
}

//! Exports and imports as the API shows them.

use dstack_api::exports::{Export, ExportImport, ExportedResource, Import, ImportExport};
use dstack_engine::ids::{GatewayId, ProjectId};
use dstack_store::exports::{self, ExportRow};
use dstack_store::projects::{self, ProjectsFilter};
use dstack_store::{DbError, Page, Store, Tx, gateways};
use uuid::Uuid;

use crate::error::ApiError;
use crate::extract::Access;

/// The id of a project's gateway; `None` if it has none of the name.
pub(super) fn gateway_id(
    tx: &mut dyn Tx,
    project: ProjectId,
    name: &str,
) -> Result<Option<Uuid>, DbError> {
    Ok(gateways::by_name(tx, project, name)?.map(|row| row.id.0))
}

/// The gateways of an export that are not deleted.
fn lent_gateways(tx: &mut dyn Tx, export: Uuid) -> Result<Vec<ExportedResource>, DbError> {
    let mut found = Vec::new();
    for id in exports::gateways(tx, export)? {
        if let Some(row) = gateways::get(tx, GatewayId(id))?.filter(|row| row.deleted_at.is_none())
        {
            found.push(ExportedResource {
                id,
                name: row.name.to_string(),
            });
        }
    }
    Ok(found)
}

/// The gateways that a project borrows: who lends them, and their names.
pub(crate) async fn imported_gateways(
    store: &Store,
    access: &Access,
) -> Result<Vec<(ProjectId, String)>, ApiError> {
    let project = access.project.id;
    store
        .read_as(move |tx| {
            let mut found = Vec::new();
            for id in exports::imported_gateways(tx, project)? {
                if let Some(row) =
                    gateways::get(tx, GatewayId(id))?.filter(|row| row.deleted_at.is_none())
                {
                    found.push((row.project_id, row.name.to_string()));
                }
            }
            Ok(found)
        })
        .await
}

/// Refuses a user to whom neither the project is open nor the gateway lent.
pub(crate) async fn check_gateway_guest(
    store: &Store,
    access: &Access,
    name: String,
) -> Result<(), ApiError> {
    if access.is_member() || access.project.is_public {
        return Ok(());
    }
    let (project, user) = (access.project.id, access.user.id);
    store
        .read_as(move |tx| {
            let Some(id) = gateway_id(tx, project, &name)? else {
                return Err(ApiError::access_denied());
            };
            for importer in exports::gateway_importers(tx, id)? {
                if projects::role(tx, importer, user)?.is_some() {
                    return Ok(());
                }
            }
            Err(ApiError::access_denied())
        })
        .await
}

/// All living projects.
pub(super) fn all_projects(tx: &mut dyn Tx) -> Result<Vec<ProjectId>, DbError> {
    let filter = ProjectsFilter {
        page: Page {
            limit: u32::MAX,
            ascending: true,
            ..Page::default()
        },
        ..ProjectsFilter::default()
    };
    let rows = projects::list(tx, &filter)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

fn fleets(tx: &mut dyn Tx, export: Uuid) -> Result<Vec<ExportedResource>, DbError> {
    let rows = exports::fleets(tx, export)?;
    let show =
        |(id, name): (dstack_engine::ids::FleetId, String)| ExportedResource { id: id.0, name };
    Ok(rows.into_iter().map(show).collect())
}

/// An export for the project that lends.
pub(super) fn export(tx: &mut dyn Tx, row: &ExportRow) -> Result<Export, ApiError> {
    let importers = exports::importers(tx, row.id)?;
    Ok(Export {
        id: row.id,
        name: row.name.clone(),
        is_global: row.is_global,
        imports: importers
            .into_iter()
            .map(|one| ExportImport {
                project_name: one.project_name,
            })
            .collect(),
        exported_fleets: fleets(tx, row.id)?,
        exported_gateways: lent_gateways(tx, row.id)?,
    })
}

/// What a project lends, oldest first.
pub(crate) async fn exports(store: &Store, access: &Access) -> Result<Vec<Export>, ApiError> {
    let project = access.project.id;
    store
        .read_as(move |tx| {
            let rows = exports::of_project(tx, project)?;
            rows.iter().map(|row| export(tx, row)).collect()
        })
        .await
}

/// What a project borrows, oldest first.
pub(crate) async fn imports(store: &Store, access: &Access) -> Result<Vec<Import>, ApiError> {
    let project = access.project.id;
    store
        .read_as(move |tx| {
            let mut found = Vec::new();
            for (id, row) in exports::imported(tx, project)? {
                let owner = projects::get(tx, row.project_id)?;
                found.push(Import {
                    id,
                    export: ImportExport {
                        id: row.id,
                        exported_fleets: fleets(tx, row.id)?,
                        exported_gateways: lent_gateways(tx, row.id)?,
                        name: row.name,
                        project_name: owner.map(|owner| owner.name).unwrap_or_default(),
                    },
                });
            }
            Ok(found)
        })
        .await
}

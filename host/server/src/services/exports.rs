//! Exports: a project lends its fleets of own hosts and its gateways to other projects.

pub(crate) mod lists;

use std::collections::BTreeSet;

use dstack_api::exports::{CreateExportRequest, DeleteImportRequest, Export, UpdateExportRequest};
use dstack_api::projects::ProjectRole;
use dstack_engine::ids::{FleetId, ProjectId, UserId};
use dstack_engine::spec;
use dstack_store::exports::{self, ExportRow};
use dstack_store::projects::{self, ProjectRow};
use dstack_store::{DbError, Store, Tx, fleets};
use jiff::Timestamp;
use uuid::Uuid;

use super::{events, names};
use crate::app::now;
use crate::error::ApiError;
use crate::extract::Access;

/// What a server says on which exports are switched off.
pub(crate) const OFF: &str = "This dstack server does not support exports. Export support is available in dstack Sky and dstack Factory.";

/// Who changes an export, and of which project.
struct Change {
    project: ProjectRow,
    user: UserId,
    is_admin: bool,
    now: Timestamp,
}

impl Change {
    fn by(access: &Access) -> Self {
        Self {
            project: (*access.project).clone(),
            user: access.user.id,
            is_admin: access.is_admin,
            now: now(),
        }
    }

    fn export(&self, tx: &mut dyn Tx, name: &str) -> Result<ExportRow, ApiError> {
        exports::by_name(tx, self.project.id, name)?
            .ok_or_else(|| ApiError::not_exists(format!("Export '{name}' not found")))
    }

    /// The fleets of these names; only those of own hosts can be lent.
    fn fleets(&self, tx: &mut dyn Tx, wanted: &[String]) -> Result<Vec<FleetId>, ApiError> {
        let (mut found, mut unknown, mut cloud) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for name in wanted {
            match fleets::by_name(tx, self.project.id, name)? {
                None => {
                    unknown.insert(name.clone());
                }
                Some(fleet) if !spec::is_ssh(&fleet.spec) => {
                    cloud.insert(name.clone());
                }
                Some(fleet) => found.push(fleet.id),
            }
        }
        if !unknown.is_empty() {
            return Err(ApiError::not_exists(format!(
                "Fleets {} not found in project '{}'",
                listed(&unknown),
                self.project.name
            )));
        }
        if !cloud.is_empty() {
            return Err(ApiError::refused(format!(
                "Fleets {} are cloud fleets. Can only export SSH fleets",
                listed(&cloud)
            )));
        }
        Ok(found)
    }

    fn gateways(&self, tx: &mut dyn Tx, wanted: &[String]) -> Result<Vec<Uuid>, ApiError> {
        let (mut found, mut unknown) = (Vec::new(), BTreeSet::new());
        for name in wanted {
            match lists::gateway_id(tx, self.project.id, name)? {
                Some(id) => found.push(id),
                None => {
                    unknown.insert(name.clone());
                }
            }
        }
        if unknown.is_empty() {
            return Ok(found);
        }
        Err(ApiError::not_exists(format!(
            "Gateways {} not found in project '{}'",
            listed(&unknown),
            self.project.name
        )))
    }

    /// The projects of these names; a caller may only name those that they administer.
    fn importers(&self, tx: &mut dyn Tx, wanted: &[String]) -> Result<Vec<ProjectId>, ApiError> {
        let (mut found, mut refused) = (Vec::new(), BTreeSet::new());
        for name in wanted {
            let name = name.to_lowercase();
            let row = projects::by_name_any_case(tx, &name)?.filter(|row| !row.deleted);
            let allowed = match &row {
                Some(row) if !self.is_admin => {
                    projects::role(tx, row.id, self.user)? == Some(ProjectRole::Admin)
                }
                Some(_) | None => true,
            };
            match row.filter(|_| allowed) {
                Some(row) if row.id == self.project.id => {
                    return Err(ApiError::refused(format!(
                        "Project '{}' cannot import from itself",
                        self.project.name
                    )));
                }
                Some(row) => found.push(row.id),
                None => {
                    refused.insert(name);
                }
            }
        }
        if refused.is_empty() {
            return Ok(found);
        }
        Err(ApiError::not_exists(format!(
            "Projects {} not found or you are not allowed to add them as importers. Only admins of a project can add it",
            listed(&refused)
        )))
    }

    fn need_global_admin(&self) -> Result<(), ApiError> {
        if self.is_admin {
            return Ok(());
        }
        Err(ApiError::Denied(
            "Access denied: only global admins can change global exports".to_owned(),
        ))
    }

    fn record(&self, tx: &mut dyn Tx, message: String) -> Result<(), DbError> {
        let target = vec![events::project(&self.project)];
        events::record(tx, self.now, Some(self.user), message, target)
    }
}

fn listed(names: &BTreeSet<String>) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    format!("{{{}}}", names.join(", "))
}

/// Makes an export.
pub(crate) async fn create(
    store: &Store,
    access: &Access,
    request: CreateExportRequest,
) -> Result<Export, ApiError> {
    let change = Change::by(access);
    names::check_resource(&request.name)?;
    if request.is_global {
        change.need_global_admin()?;
        if !request.importer_projects.is_empty() {
            return Err(ApiError::refused(
                "Do not specify any importer projects when creating a global export. All projects import it",
            ));
        }
    }
    store
        .write_as(move |tx| {
            if exports::by_name(tx, change.project.id, &request.name)?.is_some() {
                return Err(ApiError::exists(format!(
                    "Export '{}' already exists in project '{}'",
                    request.name, change.project.name
                )));
            }
            let row = ExportRow {
                id: Uuid::new_v4(),
                project_id: change.project.id,
                name: request.name,
                is_global: request.is_global,
                created_at: change.now,
            };
            exports::insert(tx, &row)?;
            for fleet in change.fleets(tx, &request.exported_fleets)? {
                exports::set_fleet(tx, row.id, fleet, true)?;
            }
            for gateway in change.gateways(tx, &request.exported_gateways)? {
                exports::set_gateway(tx, row.id, gateway, true)?;
            }
            for importer in change.importers(tx, &request.importer_projects)? {
                exports::add_import(tx, row.id, importer, change.now)?;
            }
            if row.is_global {
                give_to_all(tx, &row, change.now)?;
            }
            change.record(tx, format!("Export {} created", row.name))?;
            lists::export(tx, &row)
        })
        .await
}

/// Every project but the lender imports it.
fn give_to_all(tx: &mut dyn Tx, export: &ExportRow, now: Timestamp) -> Result<(), DbError> {
    for project in lists::all_projects(tx)? {
        if project != export.project_id {
            exports::add_import(tx, export.id, project, now)?;
        }
    }
    Ok(())
}

/// A new project imports what is global. Runs in the transaction that makes the project, so none is missed.
pub(crate) fn give_global(
    tx: &mut dyn Tx,
    project: ProjectId,
    now: Timestamp,
) -> Result<(), DbError> {
    for export in exports::global(tx)? {
        exports::add_import(tx, export.id, project, now)?;
    }
    Ok(())
}

fn check_update(request: &UpdateExportRequest) -> Result<(), ApiError> {
    let pairs = [
        (
            &request.add_importer_projects,
            &request.remove_importer_projects,
        ),
        (
            &request.add_exported_fleets,
            &request.remove_exported_fleets,
        ),
        (
            &request.add_exported_gateways,
            &request.remove_exported_gateways,
        ),
    ];
    let has_lists = pairs
        .iter()
        .any(|(add, remove)| !add.is_empty() || !remove.is_empty());
    let is_global_change = request.set_global || request.unset_global;
    if !has_lists && !is_global_change {
        return Err(ApiError::refused("No changes specified"));
    }
    if request.set_global && request.unset_global {
        return Err(ApiError::refused(
            "Cannot set and unset global at the same time",
        ));
    }
    let changes_importers =
        !request.add_importer_projects.is_empty() || !request.remove_importer_projects.is_empty();
    if is_global_change && changes_importers {
        return Err(ApiError::refused(
            "Cannot change importer projects and global at the same time",
        ));
    }
    for (add, remove) in pairs {
        if let Some(name) = add.iter().find(|name| remove.contains(name)) {
            return Err(ApiError::refused(format!(
                "Cannot add and remove '{name}' at the same time"
            )));
        }
    }
    Ok(())
}

/// Changes an export.
pub(crate) async fn update(
    store: &Store,
    access: &Access,
    request: UpdateExportRequest,
) -> Result<Export, ApiError> {
    check_update(&request)?;
    let change = Change::by(access);
    store
        .write_as(move |tx| {
            let mut row = change.export(tx, &request.name)?;
            if request.set_global || request.unset_global {
                change.need_global_admin()?;
                row.is_global = request.set_global;
                exports::set_global(tx, row.id, row.is_global)?;
                if row.is_global {
                    give_to_all(tx, &row, change.now)?;
                }
            }
            change_importers(tx, &change, &row, &request)?;
            change_resources(tx, &change, &row, &request)?;
            change.record(tx, format!("Export {} updated", row.name))?;
            lists::export(tx, &row)
        })
        .await
}

fn change_importers(
    tx: &mut dyn Tx,
    change: &Change,
    row: &ExportRow,
    request: &UpdateExportRequest,
) -> Result<(), ApiError> {
    if row.is_global && !request.remove_importer_projects.is_empty() {
        return Err(ApiError::refused(format!(
            "Export '{}' is a global export, cannot remove importer projects",
            row.name
        )));
    }
    let before = exports::importers(tx, row.id)?;
    for project in change.importers(tx, &request.add_importer_projects)? {
        if let Some(already) = before.iter().find(|one| one.project_id == project) {
            return Err(ApiError::refused(format!(
                "Project '{}' is already importing export '{}'",
                already.project_name, row.name
            )));
        }
        exports::add_import(tx, row.id, project, change.now)?;
    }
    for name in &request.remove_importer_projects {
        let found = before
            .iter()
            .find(|one| one.project_name.eq_ignore_ascii_case(name));
        let found = found.ok_or_else(|| {
            ApiError::not_exists(format!(
                "Project '{name}' is not importing export '{}'",
                row.name
            ))
        })?;
        exports::remove_import(tx, row.id, found.project_id)?;
    }
    Ok(())
}

fn change_resources(
    tx: &mut dyn Tx,
    change: &Change,
    row: &ExportRow,
    request: &UpdateExportRequest,
) -> Result<(), ApiError> {
    for fleet in change.fleets(tx, &request.add_exported_fleets)? {
        exports::set_fleet(tx, row.id, fleet, true)?;
    }
    let lent = exports::fleets(tx, row.id)?;
    for name in &request.remove_exported_fleets {
        let found = lent.iter().find(|(_, other)| other == name);
        let (id, _) = found.ok_or_else(|| {
            ApiError::not_exists(format!("Fleet '{name}' is not in export '{}'", row.name))
        })?;
        exports::set_fleet(tx, row.id, *id, false)?;
    }
    for gateway in change.gateways(tx, &request.add_exported_gateways)? {
        exports::set_gateway(tx, row.id, gateway, true)?;
    }
    for gateway in change.gateways(tx, &request.remove_exported_gateways)? {
        exports::set_gateway(tx, row.id, gateway, false)?;
    }
    Ok(())
}

/// Ends an export; jobs of others on its machines end with their next step.
pub(crate) async fn delete(store: &Store, access: &Access, name: String) -> Result<(), ApiError> {
    let change = Change::by(access);
    store
        .write_as(move |tx| {
            let row = change.export(tx, &name)?;
            exports::delete(tx, row.id)?;
            change.record(tx, format!("Export {name} deleted"))?;
            Ok(())
        })
        .await
}

/// Ends an import of the caller's project.
pub(crate) async fn stop_import(
    store: &Store,
    access: &Access,
    request: DeleteImportRequest,
) -> Result<(), ApiError> {
    let change = Change::by(access);
    store
        .write_as(move |tx| {
            let DeleteImportRequest {
                export_name,
                export_project_name,
            } = request;
            let owner = projects::by_name(tx, &export_project_name)?;
            let export = match owner {
                Some(owner) => exports::by_name(tx, owner.id, &export_name)?,
                None => None,
            };
            if let Some(export) = export.as_ref().filter(|export| export.is_global) {
                return Err(ApiError::refused(format!(
                    "Export '{}' is a global export, cannot stop importing",
                    export.name
                )));
            }
            let ended = match &export {
                Some(export) => exports::remove_import(tx, export.id, change.project.id)?,
                None => false,
            };
            if !ended {
                return Err(ApiError::not_exists(format!(
                    "Import '{export_project_name}/{export_name}' not found in project '{}'",
                    change.project.name
                )));
            }
            change.record(
                tx,
                format!("Import {export_project_name}/{export_name} deleted"),
            )?;
            Ok(())
        })
        .await
}

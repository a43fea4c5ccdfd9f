//! What projects let other projects use, and which projects do.

use dstack_engine::ids::{FleetId, ProjectId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::{Row, Tx};
use crate::{params, sql};

/// An export of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportRow {
    /// Its id.
    pub id: Uuid,
    /// The project that lends.
    pub project_id: ProjectId,
    /// Its name, unique in the project.
    pub name: String,
    /// Whether every project imports it, also those made later.
    pub is_global: bool,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A project that imports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImporterRow {
    /// Id of the import.
    pub id: Uuid,
    /// The project that borrows.
    pub project_id: ProjectId,
    /// Its name.
    pub project_name: String,
}

macro_rules! columns {
    () => {
        "SELECT e.id, e.project_id, e.name, e.is_global, e.created_at FROM exports e "
    };
}
const GET: Sql = sql!(columns!(), "WHERE e.id = ?1");
const BY_NAME: Sql = sql!(columns!(), "WHERE e.project_id = ?1 AND e.name = ?2");
const OF_PROJECT: Sql = sql!(
    columns!(),
    "WHERE e.project_id = ?1 ORDER BY e.created_at, e.id"
);
const GLOBAL: Sql = sql!(columns!(), "WHERE e.is_global = 1 ORDER BY e.id");
const IMPORTED: Sql = sql!(
    "SELECT i.id, e.id, e.project_id, e.name, e.is_global, e.created_at FROM imports i \
     JOIN exports e ON e.id = i.export_id JOIN projects p ON p.id = e.project_id \
     WHERE i.project_id = ?1 AND p.deleted = 0 ORDER BY i.created_at, i.id"
);
const IMPORTERS: Sql = sql!(
    "SELECT i.id, p.id, p.name FROM imports i JOIN projects p ON p.id = i.project_id \
     WHERE i.export_id = ?1 AND p.deleted = 0 ORDER BY i.created_at, i.id"
);
const FLEETS: Sql = sql!(
    "SELECT f.id, f.name FROM exported_fleets x JOIN fleets f ON f.id = x.fleet_id \
     WHERE x.export_id = ?1 AND f.deleted = 0 ORDER BY f.name"
);
const GATEWAYS: Sql =
    sql!("SELECT gateway_id FROM exported_gateways WHERE export_id = ?1 ORDER BY gateway_id");
const INSERT: Sql = sql!(
    "INSERT INTO exports (id, project_id, name, is_global, created_at) VALUES (?1, ?2, ?3, ?4, ?5)"
);
const SET_GLOBAL: Sql = sql!("UPDATE exports SET is_global = ?2 WHERE id = ?1");
const DELETE: Sql = sql!("DELETE FROM exports WHERE id = ?1");
const ADD_FLEET: Sql = sql!(
    "INSERT INTO exported_fleets (export_id, fleet_id) VALUES (?1, ?2) ON CONFLICT (export_id, fleet_id) DO NOTHING"
);
const REMOVE_FLEET: Sql =
    sql!("DELETE FROM exported_fleets WHERE export_id = ?1 AND fleet_id = ?2");
const ADD_GATEWAY: Sql = sql!(
    "INSERT INTO exported_gateways (export_id, gateway_id) VALUES (?1, ?2) \
     ON CONFLICT (export_id, gateway_id) DO NOTHING"
);
const REMOVE_GATEWAY: Sql =
    sql!("DELETE FROM exported_gateways WHERE export_id = ?1 AND gateway_id = ?2");
const ADD_IMPORT: Sql = sql!(
    "INSERT INTO imports (id, project_id, export_id, created_at) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (project_id, export_id) DO NOTHING"
);
const REMOVE_IMPORT: Sql = sql!("DELETE FROM imports WHERE export_id = ?1 AND project_id = ?2");
const IMPORTED_FLEETS: Sql = sql!(
    "SELECT DISTINCT f.id FROM imports i JOIN exports e ON e.id = i.export_id \
     JOIN projects p ON p.id = e.project_id JOIN exported_fleets x ON x.export_id = i.export_id \
     JOIN fleets f ON f.id = x.fleet_id WHERE i.project_id = ?1 AND p.deleted = 0 AND f.deleted = 0 ORDER BY f.id"
);
const IMPORTED_GATEWAYS: Sql = sql!(
    "SELECT DISTINCT x.gateway_id FROM imports i JOIN exports e ON e.id = i.export_id \
     JOIN projects p ON p.id = e.project_id JOIN exported_gateways x ON x.export_id = i.export_id \
     WHERE i.project_id = ?1 AND p.deleted = 0 ORDER BY x.gateway_id"
);
pub(crate) const FLEET_IMPORTERS: Sql = sql!(
    "SELECT DISTINCT i.project_id FROM exported_fleets x JOIN imports i ON i.export_id = x.export_id \
     WHERE x.fleet_id = ?1"
);
const GATEWAY_IMPORTERS: Sql = sql!(
    "SELECT DISTINCT i.project_id FROM exported_gateways x JOIN imports i ON i.export_id = x.export_id \
     WHERE x.gateway_id = ?1"
);
pub(crate) const LENDS_TO_USER: Sql = sql!(
    "SELECT 1 FROM exports e JOIN imports i ON i.export_id = e.id \
     JOIN members m ON m.project_id = i.project_id WHERE e.project_id = ?1 AND m.user_id = ?2 LIMIT 1"
);
pub(crate) const MAY_USE: Sql = sql!(
    "SELECT 1 FROM exported_fleets x JOIN imports i ON i.export_id = x.export_id \
     WHERE x.fleet_id = ?1 AND i.project_id = ?2 LIMIT 1"
);

fn from_row(row: &mut Row<'_>) -> Result<ExportRow, DbError> {
    Ok(ExportRow {
        id: row.take()?,
        project_id: row.take()?,
        name: row.take()?,
        is_global: row.take()?,
        created_at: row.take()?,
    })
}

/// The export of this id.
pub fn get(tx: &mut dyn Tx, id: Uuid) -> Result<Option<ExportRow>, DbError> {
    tx.first(GET, params![id], |mut row| from_row(&mut row))
}

/// A project's export of this name.
pub fn by_name(
    tx: &mut dyn Tx,
    project: ProjectId,
    name: &str,
) -> Result<Option<ExportRow>, DbError> {
    tx.first(BY_NAME, params![project, name], |mut row| {
        from_row(&mut row)
    })
}

/// A project's exports, oldest first.
pub fn of_project(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<ExportRow>, DbError> {
    tx.all(OF_PROJECT, params![project], |mut row| from_row(&mut row))
}

/// The exports that every project imports.
pub fn global(tx: &mut dyn Tx) -> Result<Vec<ExportRow>, DbError> {
    tx.all(GLOBAL, params![], |mut row| from_row(&mut row))
}

/// What a project imports: id of the import, and the export.
pub fn imported(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<(Uuid, ExportRow)>, DbError> {
    tx.all(IMPORTED, params![project], |mut row| {
        Ok((row.take()?, from_row(&mut row)?))
    })
}

/// The projects that import this.
pub fn importers(tx: &mut dyn Tx, export: Uuid) -> Result<Vec<ImporterRow>, DbError> {
    tx.all(IMPORTERS, params![export], |mut row| {
        Ok(ImporterRow {
            id: row.take()?,
            project_id: row.take()?,
            project_name: row.take()?,
        })
    })
}

/// The fleets of an export that are not deleted.
pub fn fleets(tx: &mut dyn Tx, export: Uuid) -> Result<Vec<(FleetId, String)>, DbError> {
    tx.all(FLEETS, params![export], |mut row| {
        Ok((row.take()?, row.take()?))
    })
}

/// The gateways of an export, also deleted ones.
pub fn gateways(tx: &mut dyn Tx, export: Uuid) -> Result<Vec<Uuid>, DbError> {
    tx.all(GATEWAYS, params![export], |mut row| row.take())
}

/// Stores a new export; a name that is taken is [`DbError::Conflict`].
pub fn insert(tx: &mut dyn Tx, export: &ExportRow) -> Result<(), DbError> {
    tx.exec(
        INSERT,
        params![
            export.id,
            export.project_id,
            &export.name,
            export.is_global,
            export.created_at
        ],
    )?;
    Ok(())
}

/// Whether every project imports it.
pub fn set_global(tx: &mut dyn Tx, export: Uuid, is_global: bool) -> Result<(), DbError> {
    tx.exec(SET_GLOBAL, params![export, is_global])?;
    Ok(())
}

/// Removes an export with everything that hangs on it.
pub fn delete(tx: &mut dyn Tx, export: Uuid) -> Result<(), DbError> {
    tx.exec(DELETE, params![export])?;
    Ok(())
}

/// Adds a fleet, or takes it away.
pub fn set_fleet(
    tx: &mut dyn Tx,
    export: Uuid,
    fleet: FleetId,
    is_in: bool,
) -> Result<(), DbError> {
    let sql = if is_in { ADD_FLEET } else { REMOVE_FLEET };
    tx.exec(sql, params![export, fleet])?;
    Ok(())
}

/// Adds a gateway, or takes it away.
pub fn set_gateway(
    tx: &mut dyn Tx,
    export: Uuid,
    gateway: Uuid,
    is_in: bool,
) -> Result<(), DbError> {
    let sql = if is_in { ADD_GATEWAY } else { REMOVE_GATEWAY };
    tx.exec(sql, params![export, gateway])?;
    Ok(())
}

/// Lets a project import; one that does already stays as it is.
pub fn add_import(
    tx: &mut dyn Tx,
    export: Uuid,
    project: ProjectId,
    now: Timestamp,
) -> Result<(), DbError> {
    tx.exec(ADD_IMPORT, params![Uuid::new_v4(), project, export, now])?;
    Ok(())
}

/// Ends an import; true if there was one.
pub fn remove_import(tx: &mut dyn Tx, export: Uuid, project: ProjectId) -> Result<bool, DbError> {
    Ok(tx.exec(REMOVE_IMPORT, params![export, project])? > 0)
}

/// The living fleets that a project borrows.
pub fn imported_fleets(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<FleetId>, DbError> {
    tx.all(IMPORTED_FLEETS, params![project], |mut row| row.take())
}

/// The gateways that a project borrows, also deleted ones.
pub fn imported_gateways(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<Uuid>, DbError> {
    tx.all(IMPORTED_GATEWAYS, params![project], |mut row| row.take())
}

/// The projects that borrow a fleet.
pub fn fleet_importers(tx: &mut dyn Tx, fleet: FleetId) -> Result<Vec<ProjectId>, DbError> {
    tx.all(FLEET_IMPORTERS, params![fleet], |mut row| row.take())
}

/// The projects that borrow a gateway.
pub fn gateway_importers(tx: &mut dyn Tx, gateway: Uuid) -> Result<Vec<ProjectId>, DbError> {
    tx.all(GATEWAY_IMPORTERS, params![gateway], |mut row| row.take())
}

/// Whether a user is a member of a project that borrows anything from this one.
pub fn lends_to_user(
    tx: &mut dyn Tx,
    project: ProjectId,
    user: dstack_engine::ids::UserId,
) -> Result<bool, DbError> {
    Ok(tx
        .first(LENDS_TO_USER, params![project, user], |_| Ok(()))?
        .is_some())
}

/// Whether a project borrows this fleet.
pub fn may_use(tx: &mut dyn Tx, fleet: FleetId, project: ProjectId) -> Result<bool, DbError> {
    Ok(tx
        .first(MAY_USE, params![fleet, project], |_| Ok(()))?
        .is_some())
}

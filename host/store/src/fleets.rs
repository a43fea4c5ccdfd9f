//! Fleets: the hot row, and its specification beside it.

use std::sync::Arc;

use dstack_engine::changes::FleetPatch;
use dstack_engine::ids::{FleetId, ProjectId};
use dstack_engine::model::FleetRow;
use jiff::Timestamp;

use crate::error::DbError;
use crate::page::Page;
use crate::patch::Patch;
use crate::sql::Sql;
use crate::tx::{Query, Row, Tx, json, json_opt};
use crate::{params, sql};

macro_rules! columns {
    () => {
        "SELECT f.id, f.project_id, f.name, f.status, f.status_message, f.created_at, f.last_processed_at, \
         f.consolidation_attempt, f.consolidated_at, f.deleted, d.spec FROM fleets f \
         JOIN fleet_data d ON d.id = f.id WHERE "
    };
}
pub(crate) use columns;

pub(crate) const GET: Sql = sql!(columns!(), "f.id = ?1");
const BY_NAME: Sql = sql!(
    columns!(),
    "f.project_id = ?1 AND f.name = ?2 AND f.deleted = 0"
);
pub(crate) const OF_PROJECT: Sql = sql!(
    columns!(),
    "f.project_id = ?1 AND f.deleted = 0 ORDER BY f.created_at DESC, f.id ASC"
);
const INSERT: Sql = sql!(
    "INSERT INTO fleets (id, project_id, name, status, status_message, created_at, consolidation_attempt, \
     consolidated_at, deleted, last_processed_at, look_again_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
);
const INSERT_DATA: Sql = sql!("INSERT INTO fleet_data (id, spec) VALUES (?1, ?2)");
const NAMES: Sql =
    sql!("SELECT name FROM fleets WHERE project_id = ?1 AND deleted = 0 ORDER BY name");

pub(crate) fn from_row(mut row: Row<'_>) -> Result<FleetRow, DbError> {
    Ok(FleetRow {
        id: row.take()?,
        project_id: row.take()?,
        name: row.take()?,
        status: row.take()?,
        status_message: row.take()?,
        created_at: row.take()?,
        last_processed_at: row.take()?,
        consolidation_attempt: row.take()?,
        consolidated_at: row.take()?,
        deleted: row.take()?,
        spec: Arc::new(row.json()?),
    })
}

/// The fleet of this id, also a deleted one.
pub fn get(tx: &mut dyn Tx, id: FleetId) -> Result<Option<FleetRow>, DbError> {
    tx.first(GET, params![id], from_row)
}

/// The not deleted fleet of this name.
pub fn by_name(
    tx: &mut dyn Tx,
    project: ProjectId,
    name: &str,
) -> Result<Option<FleetRow>, DbError> {
    tx.first(BY_NAME, params![project, name], from_row)
}

/// The not deleted fleets of a project, newest first.
pub fn of_project(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<FleetRow>, DbError> {
    tx.all(OF_PROJECT, params![project], from_row)
}

/// The names of the not deleted fleets of a project.
pub fn names(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<String>, DbError> {
    tx.all(NAMES, params![project], |mut row| row.take())
}

/// A fleet's name alone.
pub(crate) fn name(tx: &mut dyn Tx, id: FleetId) -> Result<Option<String>, DbError> {
    const NAME: Sql = sql!("SELECT name FROM fleets WHERE id = ?1");
    tx.first(NAME, params![id], |mut row| row.take())
}

/// Stores a new fleet; it is due at `due`.
pub fn insert(tx: &mut dyn Tx, fleet: &FleetRow, due: Timestamp) -> Result<(), DbError> {
    tx.exec(
        INSERT,
        params![
            fleet.id,
            fleet.project_id,
            &fleet.name,
            fleet.status,
            fleet.status_message.as_deref(),
            fleet.created_at,
            fleet.consolidation_attempt,
            fleet.consolidated_at,
            fleet.deleted,
            fleet.last_processed_at,
            due,
        ],
    )?;
    tx.exec(
        INSERT_DATA,
        params![
            fleet.id,
            json("the specification of a fleet", &*fleet.spec)?
        ],
    )?;
    Ok(())
}

/// Writes the changed columns; an unknown id changes nothing.
pub(crate) fn patch(tx: &mut dyn Tx, patch: &FleetPatch, now: Timestamp) -> Result<(), DbError> {
    let mut hot = Patch::of("fleets");
    hot.set("last_processed_at", Some(now));
    hot.set("status", patch.status);
    hot.set(
        "status_message",
        patch.status_message.as_ref().map(Option::as_deref),
    );
    hot.set("consolidation_attempt", patch.consolidation_attempt);
    hot.set("consolidated_at", patch.consolidated_at);
    hot.set("deleted", patch.deleted);
    hot.run(tx, patch.id)?;
    let mut data = Patch::of("fleet_data");
    data.set(
        "spec",
        json_opt("the specification of a fleet", patch.spec.as_deref())?,
    );
    data.run(tx, patch.id)?;
    Ok(())
}

/// Which fleets to list.
#[derive(Debug, Clone, Default)]
pub struct FleetsFilter {
    /// Only these projects; `None` is all.
    pub projects: Option<Vec<ProjectId>>,
    /// Beside them these fleets of others; meaningless when all projects are listed.
    pub imported: Vec<FleetId>,
    /// Only not deleted ones.
    pub only_active: bool,
    /// Which part of the list.
    pub page: Page,
}

/// One page of fleets by creation time.
pub fn list(tx: &mut dyn Tx, filter: &FleetsFilter) -> Result<Vec<FleetRow>, DbError> {
    let Some(projects) = &filter.projects else {
        return tx.all_of(&list_query(filter, None), from_row);
    };
    let mut out = Vec::new();
    for project in projects {
        out.extend(tx.all_of(&list_query(filter, Some(*project)), from_row)?);
    }
    let mut sources = projects.len();
    if !filter.imported.is_empty() {
        let mut query = Query::new(columns!());
        let ids = filter.imported.iter().copied();
        query.text("f.id IN ").bind_list(ids);
        finish(filter, &mut query);
        out.extend(tx.all_of(&query, from_row)?);
        sources += 1;
    }
    if sources > 1 {
        filter.page.merge(&mut out, |it| (it.created_at, it.id.0));
    }
    Ok(out)
}

pub(crate) fn list_query(filter: &FleetsFilter, project: Option<ProjectId>) -> Query<'_> {
    let mut query = Query::new(columns!());
    query.text("1 = 1");
    if let Some(project) = project {
        query.text(" AND f.project_id = ").bind(project);
    }
    finish(filter, &mut query);
    query
}

fn finish(filter: &FleetsFilter, query: &mut Query<'_>) {
    if filter.only_active {
        query.text(" AND f.deleted = 0");
    }
    filter.page.append(query, "f.created_at", "f.id");
}

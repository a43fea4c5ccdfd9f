//! Backends that a project has configured.

use dstack_backend_types::BackendType;
use dstack_engine::ids::ProjectId;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::DbError;
use crate::sealed::Sealed;
use crate::sql::Sql;
use crate::tx::{Row, Tx, json};
use crate::{params, sql};

/// A configured backend.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendRow {
    /// Its id.
    pub id: Uuid,
    /// The project.
    pub project_id: ProjectId,
    /// Its type; one of each in a project.
    pub kind: BackendType,
    /// What its plugin made of the configuration, without credentials.
    pub record: serde_json::Value,
    /// The whole record with credentials, sealed.
    pub secret: Sealed,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

macro_rules! columns {
    () => {
        "SELECT id, project_id, type, record, secret, created_at, updated_at FROM backends "
    };
}
const OF_PROJECT: Sql = sql!(columns!(), "WHERE project_id = ?1 ORDER BY type");
const GET: Sql = sql!(columns!(), "WHERE project_id = ?1 AND type = ?2");
const ALL: Sql = sql!(columns!(), "ORDER BY project_id, type");
const PUT: Sql = sql!(
    "INSERT INTO backends (id, project_id, type, record, secret, created_at, updated_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
     ON CONFLICT (project_id, type) DO UPDATE SET record = excluded.record, secret = excluded.secret, \
     updated_at = excluded.updated_at"
);
const DELETE: Sql = sql!("DELETE FROM backends WHERE project_id = ?1 AND type = ?2");

fn from_row(mut row: Row<'_>) -> Result<BackendRow, DbError> {
    Ok(BackendRow {
        id: row.take()?,
        project_id: row.take()?,
        kind: row.take()?,
        record: row.json()?,
        secret: row.take()?,
        created_at: row.take()?,
        updated_at: row.take()?,
    })
}

/// The backends of a project, by type.
pub fn of_project(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<BackendRow>, DbError> {
    tx.all(OF_PROJECT, params![project], from_row)
}

/// All backends of all projects, to open them at start.
pub fn all(tx: &mut dyn Tx) -> Result<Vec<BackendRow>, DbError> {
    tx.all(ALL, params![], from_row)
}

/// A project's backend of one type.
pub fn get(
    tx: &mut dyn Tx,
    project: ProjectId,
    kind: &BackendType,
) -> Result<Option<BackendRow>, DbError> {
    tx.first(GET, params![project, kind], from_row)
}

/// Adds a backend, or replaces the records of the one of its type (which keeps its id).
pub fn put(tx: &mut dyn Tx, backend: &BackendRow) -> Result<(), DbError> {
    tx.exec(
        PUT,
        params![
            backend.id,
            backend.project_id,
            &backend.kind,
            json("the record of a backend", &backend.record)?,
            &backend.secret,
            backend.created_at,
            backend.updated_at,
        ],
    )?;
    Ok(())
}

/// Removes a project's backend; true if it was there.
pub fn delete(tx: &mut dyn Tx, project: ProjectId, kind: &BackendType) -> Result<bool, DbError> {
    Ok(tx.exec(DELETE, params![project, kind])? > 0)
}

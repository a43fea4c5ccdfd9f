//! Secrets of projects.

use dstack_engine::ids::ProjectId;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::DbError;
use crate::sealed::Sealed;
use crate::sql::Sql;
use crate::tx::{Row, Tx};
use crate::{params, sql};

/// A secret; the value is sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRow {
    /// Its id.
    pub id: Uuid,
    /// The project.
    pub project_id: ProjectId,
    /// Its name, unique in the project.
    pub name: String,
    /// Its value, sealed.
    pub value: Sealed,
}

const OF_PROJECT: Sql =
    sql!("SELECT id, project_id, name, value FROM secrets WHERE project_id = ?1 ORDER BY name");
const GET: Sql =
    sql!("SELECT id, project_id, name, value FROM secrets WHERE project_id = ?1 AND name = ?2");
const PUT: Sql = sql!(
    "INSERT INTO secrets (id, project_id, name, value, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5) \
     ON CONFLICT (project_id, name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at \
     RETURNING id"
);
const DELETE: Sql = sql!("DELETE FROM secrets WHERE project_id = ?1 AND name = ?2");

fn from_row(mut row: Row<'_>) -> Result<SecretRow, DbError> {
    Ok(SecretRow {
        id: row.take()?,
        project_id: row.take()?,
        name: row.take()?,
        value: row.take()?,
    })
}

/// The secrets of a project, by name.
pub fn of_project(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<SecretRow>, DbError> {
    tx.all(OF_PROJECT, params![project], from_row)
}

/// A secret by name.
pub fn get(tx: &mut dyn Tx, project: ProjectId, name: &str) -> Result<Option<SecretRow>, DbError> {
    tx.first(GET, params![project, name], from_row)
}

/// Adds a secret or replaces its value; answers its id, which for a known name is the old id.
pub fn put(tx: &mut dyn Tx, secret: &SecretRow, now: Timestamp) -> Result<Uuid, DbError> {
    let params = params![
        secret.id,
        secret.project_id,
        &secret.name,
        &secret.value,
        now
    ];
    Ok(tx
        .first(PUT, params, |mut row| row.take())?
        .unwrap_or(secret.id))
}

/// Removes a secret; true if it was there.
pub fn delete(tx: &mut dyn Tx, project: ProjectId, name: &str) -> Result<bool, DbError> {
    Ok(tx.exec(DELETE, params![project, name])? > 0)
}

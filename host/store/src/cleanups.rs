//! The cleanup queue: what may exist at a provider although no row owns it.

use dstack_backend_types::BackendType;
use dstack_engine::changes::{CleanupRow, MachineRef};
use dstack_engine::ids::ProjectId;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::{Row, Tx};
use crate::{params, sql};

/// An entry of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedCleanup {
    /// Its id.
    pub id: Uuid,
    /// What to remove; `not_before` is when it is due.
    pub row: CleanupRow,
    /// How often it was tried.
    pub attempts: u32,
}

macro_rules! columns {
    () => {
        "SELECT id, project_id, backend, region, provider_ref, machine_id, machine_data, look_again_at, attempts \
         FROM cleanups "
    };
}
const ADD: Sql = sql!(
    "INSERT INTO cleanups (id, project_id, backend, region, provider_ref, machine_id, machine_data, created_at, \
     look_again_at, attempts) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0)"
);
pub(crate) const DUE: Sql = sql!(
    columns!(),
    "WHERE look_again_at <= ?1 ORDER BY look_again_at LIMIT ?2"
);
const ALL: Sql = sql!(columns!(), "ORDER BY look_again_at, id");
const LATER: Sql =
    sql!("UPDATE cleanups SET look_again_at = ?2, attempts = attempts + 1 WHERE id = ?1");
const DONE: Sql = sql!("DELETE FROM cleanups WHERE id = ?1");
const QUEUED: Sql = sql!("SELECT 1 FROM cleanups WHERE provider_ref = ?1 LIMIT 1");

fn from_row(mut row: Row<'_>) -> Result<QueuedCleanup, DbError> {
    let id = row.take()?;
    let (project_id, backend): (ProjectId, BackendType) = (row.take()?, row.take()?);
    let (region, provider_ref) = (row.take()?, row.take()?);
    let (machine_id, backend_data): (Option<String>, Option<String>) = (row.take()?, row.take()?);
    let machine = machine_id.map(|instance_id| MachineRef {
        instance_id,
        backend_data,
    });
    let not_before = row.take()?;
    let row_of_queue = CleanupRow {
        project_id,
        backend,
        region,
        provider_ref,
        machine,
        not_before,
    };
    Ok(QueuedCleanup {
        id,
        row: row_of_queue,
        attempts: row.take()?,
    })
}

/// Puts something into the queue.
pub fn add(tx: &mut dyn Tx, row: &CleanupRow, now: Timestamp) -> Result<(), DbError> {
    tx.exec(
        ADD,
        params![
            Uuid::new_v4(),
            row.project_id,
            &row.backend,
            &row.region,
            &row.provider_ref,
            row.machine.as_ref().map(|it| it.instance_id.as_str()),
            row.machine
                .as_ref()
                .and_then(|it| it.backend_data.as_deref()),
            now,
            row.not_before,
        ],
    )?;
    Ok(())
}

/// What is due, oldest first.
pub fn due(tx: &mut dyn Tx, now: Timestamp, limit: u32) -> Result<Vec<QueuedCleanup>, DbError> {
    tx.all(DUE, params![now, limit], from_row)
}

/// The whole queue.
pub fn all(tx: &mut dyn Tx) -> Result<Vec<QueuedCleanup>, DbError> {
    tx.all(ALL, params![], from_row)
}

/// Whether this reference waits in the queue.
pub fn is_queued(tx: &mut dyn Tx, provider_ref: &str) -> Result<bool, DbError> {
    Ok(tx
        .first(QUEUED, params![provider_ref], |mut row| row.take::<i64>())?
        .is_some())
}

/// Puts an entry off after a try that did not finish it.
pub fn later(tx: &mut dyn Tx, id: Uuid, at: Timestamp) -> Result<(), DbError> {
    tx.exec(LATER, params![id, at])?;
    Ok(())
}

/// Takes an entry out: nothing is left at the provider.
pub fn done(tx: &mut dyn Tx, id: Uuid) -> Result<(), DbError> {
    tx.exec(DONE, params![id])?;
    Ok(())
}

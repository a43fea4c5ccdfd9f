//! What machines said about their health.

use dstack_api::instances::{HealthCheck, HealthEvent, HealthStatus};
use dstack_engine::ids::InstanceId;
use jiff::Timestamp;

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::{Query, Tx, json};
use crate::{params, sql};

const INSERT: Sql = sql!(
    "INSERT INTO instance_health (instance_id, collected_at, status, events) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (instance_id, collected_at) DO NOTHING"
);
const DELETE: Sql = sql!("DELETE FROM instance_health WHERE collected_at < ?1");

/// Keeps a report.
pub fn insert(
    tx: &mut dyn Tx,
    instance: InstanceId,
    at: Timestamp,
    status: HealthStatus,
    events: &[HealthEvent],
) -> Result<(), DbError> {
    let events = json("the findings of a health report", events)?;
    tx.exec(INSERT, params![instance, at, status, events])?;
    Ok(())
}

/// An instance's reports between two times, newest first.
pub fn list(
    tx: &mut dyn Tx,
    instance: InstanceId,
    after: Option<Timestamp>,
    before: Option<Timestamp>,
    limit: Option<u32>,
) -> Result<Vec<HealthCheck>, DbError> {
    let mut query =
        Query::new("SELECT collected_at, status, events FROM instance_health WHERE instance_id = ");
    query.bind(instance);
    if let Some(after) = after {
        query.text(" AND collected_at > ").bind(after);
    }
    if let Some(before) = before {
        query.text(" AND collected_at < ").bind(before);
    }
    query
        .text(" ORDER BY collected_at DESC LIMIT ")
        .bind(limit.unwrap_or(i32::MAX.unsigned_abs()));
    tx.all_of(&query, |mut row| {
        Ok(HealthCheck {
            collected_at: row.take()?,
            status: row.take()?,
            events: row.json()?,
        })
    })
}

/// Drops older reports; answers how many.
pub fn delete_before(tx: &mut dyn Tx, before: Timestamp) -> Result<u64, DbError> {
    tx.exec(DELETE, params![before])
}

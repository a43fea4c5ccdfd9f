//! What machines told of running jobs, point by point.

use dstack_engine::ids::JobId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::{Query, Row, Tx, json};
use crate::{params, sql};

/// What a job used at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Point {
    /// CPU time so far, in microseconds.
    pub cpu_usage_micro: u64,
    /// Memory in use, in bytes.
    pub memory_usage_bytes: u64,
    /// Memory in use without what could be given back, in bytes.
    pub memory_working_set_bytes: u64,
    /// Memory in use of each GPU, in bytes.
    pub gpus_memory_usage_bytes: Vec<u64>,
    /// How busy each GPU is, in percent.
    pub gpus_util_percent: Vec<u64>,
}

const INSERT: Sql = sql!(
    "INSERT INTO job_metrics (job_id, collected_at, point) VALUES (?1, ?2, ?3) \
     ON CONFLICT (job_id, collected_at) DO NOTHING"
);
const LAST: Sql = sql!(
    "SELECT collected_at, point FROM job_metrics WHERE job_id = ?1 ORDER BY collected_at DESC LIMIT 1"
);
const DELETE_FINISHED: Sql = sql!(
    "DELETE FROM job_metrics WHERE collected_at < ?1 AND job_id IN (SELECT m.job_id FROM job_metrics m \
     WHERE m.collected_at < ?1 AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = m.job_id AND j.status = 'running') \
     ORDER BY m.collected_at LIMIT ?2)"
);
const DELETE_RUNNING: Sql = sql!(
    "DELETE FROM job_metrics WHERE collected_at < ?1 AND job_id IN (SELECT m.job_id FROM job_metrics m \
     JOIN jobs j ON j.id = m.job_id WHERE m.collected_at < ?1 AND j.status = 'running' \
     ORDER BY m.collected_at LIMIT ?2)"
);
const PUT_EXPORTER: Sql = sql!(
    "INSERT INTO job_exporters (job_id, collected_at, text) VALUES (?1, ?2, ?3) \
     ON CONFLICT (job_id) DO UPDATE SET collected_at = excluded.collected_at, text = excluded.text"
);
const EXPORTER: Sql =
    sql!("SELECT text FROM job_exporters WHERE job_id = ?1 AND collected_at >= ?2");
const DELETE_EXPORTERS: Sql = sql!("DELETE FROM job_exporters WHERE collected_at < ?1");

fn from_row(mut row: Row<'_>) -> Result<(Timestamp, Point), DbError> {
    Ok((row.take()?, row.json()?))
}

/// Adds a point.
pub fn insert(tx: &mut dyn Tx, job: JobId, at: Timestamp, point: &Point) -> Result<(), DbError> {
    tx.exec(
        INSERT,
        params![job, at, json("a point of a job's metrics", point)?],
    )?;
    Ok(())
}

/// The newest point of a job.
pub fn last(tx: &mut dyn Tx, job: JobId) -> Result<Option<(Timestamp, Point)>, DbError> {
    tx.first(LAST, params![job], from_row)
}

/// The points of a job between two times, newest first.
pub fn list(
    tx: &mut dyn Tx,
    job: JobId,
    after: Option<Timestamp>,
    before: Option<Timestamp>,
    limit: u32,
) -> Result<Vec<(Timestamp, Point)>, DbError> {
    let mut query = Query::new("SELECT collected_at, point FROM job_metrics WHERE job_id = ");
    query.bind(job);
    if let Some(after) = after {
        query.text(" AND collected_at > ").bind(after);
    }
    if let Some(before) = before {
        query.text(" AND collected_at < ").bind(before);
    }
    query.text(" ORDER BY collected_at DESC LIMIT ").bind(limit);
    tx.all_of(&query, from_row)
}

/// Drops old points: those of running jobs before one time, all others before another. At most those of `limit` jobs in
/// one go; answers how many points.
pub fn delete_before(
    tx: &mut dyn Tx,
    running: Timestamp,
    finished: Timestamp,
    limit: u32,
) -> Result<u64, DbError> {
    let dropped = tx.exec(DELETE_RUNNING, params![running, limit])?;
    Ok(dropped + tx.exec(DELETE_FINISHED, params![finished, limit])?)
}

/// Keeps what a job's GPU exporter said last.
pub fn put_exporter(tx: &mut dyn Tx, job: JobId, at: Timestamp, text: &str) -> Result<(), DbError> {
    tx.exec(PUT_EXPORTER, params![job, at, text])?;
    Ok(())
}

/// What a job's GPU exporter said since a time.
pub fn exporter(tx: &mut dyn Tx, job: JobId, since: Timestamp) -> Result<Option<String>, DbError> {
    tx.first(EXPORTER, params![job, since], |mut row| row.take())
}

/// Drops texts of exporters that are older.
pub fn delete_exporters(tx: &mut dyn Tx, before: Timestamp) -> Result<u64, DbError> {
    tx.exec(DELETE_EXPORTERS, params![before])
}

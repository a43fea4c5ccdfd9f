//! Readiness probes of service replicas: who is asked when, and how it went.

use std::collections::BTreeMap;

use dstack_engine::changes::NewProbe;
use dstack_engine::ids::JobId;
use jiff::Timestamp;

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::{Query, Tx};
use crate::{params, sql};

const INSERT: Sql = sql!(
    "INSERT INTO job_probes (job_id, num, success_streak, due_at) VALUES (?1, ?2, 0, ?3) \
     ON CONFLICT (job_id, num) DO NOTHING"
);
const END: Sql = sql!("UPDATE job_probes SET due_at = NULL WHERE job_id = ?1");
const DUE: Sql = sql!(
    "SELECT job_id, num, success_streak FROM job_probes WHERE due_at IS NOT NULL AND due_at <= ?1 \
     ORDER BY due_at, job_id, num LIMIT ?2 {skip_locked}"
);
const TAKE: Sql =
    sql!("UPDATE job_probes SET due_at = ?3 WHERE job_id = ?1 AND num = ?2 AND due_at IS NOT NULL");
const NEXT: Sql =
    sql!("SELECT due_at FROM job_probes WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1");
const RECORD: Sql = sql!(
    "UPDATE job_probes SET success_streak = ?3, due_at = ?4 WHERE job_id = ?1 AND num = ?2 AND due_at IS NOT NULL"
);
const STREAKS: Sql = sql!("SELECT success_streak FROM job_probes WHERE job_id = ?1 ORDER BY num");
const DELETE: Sql = sql!("DELETE FROM job_probes WHERE job_id = ?1");

/// The statements of this file, for the test of query plans.
#[cfg(test)]
pub(crate) const SQL: &[(&str, Sql)] = &[
    ("end probes", END),
    ("due probes", DUE),
    ("take probe", TAKE),
    ("next probe", NEXT),
    ("record probe", RECORD),
    ("streaks", STREAKS),
    ("delete probes", DELETE),
];

/// A probe that is to be asked now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueProbe {
    /// The job.
    pub job_id: JobId,
    /// Its position in the job's specification.
    pub num: u32,
    /// Successes in a row so far.
    pub success_streak: u32,
}

pub(crate) fn insert(tx: &mut dyn Tx, probe: NewProbe, now: Timestamp) -> Result<(), DbError> {
    tx.exec(INSERT, params![probe.job_id, probe.num, now])?;
    Ok(())
}

pub(crate) fn end(tx: &mut dyn Tx, job: JobId) -> Result<(), DbError> {
    tx.exec(END, params![job])?;
    Ok(())
}

pub(crate) fn delete(tx: &mut dyn Tx, job: JobId) -> Result<(), DbError> {
    tx.exec(DELETE, params![job])?;
    Ok(())
}

/// The probes that are due, at most `limit`, the longest due first. The caller [`take`]s them in the same transaction.
pub fn due(tx: &mut dyn Tx, now: Timestamp, limit: u32) -> Result<Vec<DueProbe>, DbError> {
    tx.all(DUE, params![now, limit], |mut row| {
        Ok(DueProbe {
            job_id: row.take()?,
            num: row.take()?,
            success_streak: row.take()?,
        })
    })
}

/// Keeps others from asking a probe until this time: who asks it has an answer by then, or has died.
pub fn take(tx: &mut dyn Tx, probe: DueProbe, until: Timestamp) -> Result<(), DbError> {
    tx.exec(TAKE, params![probe.job_id, probe.num, until])?;
    Ok(())
}

/// When the next probe is due.
pub fn next_due(tx: &mut dyn Tx) -> Result<Option<Timestamp>, DbError> {
    tx.first(NEXT, params![], |mut row| row.take())
}

/// Notes how a probe went; `next` is when it is asked again, `None` never. Nothing happens if the job ended meanwhile.
pub fn record(
    tx: &mut dyn Tx,
    job: JobId,
    num: u32,
    success_streak: u32,
    next: Option<Timestamp>,
) -> Result<(), DbError> {
    tx.exec(RECORD, params![job, num, success_streak, next])?;
    Ok(())
}

/// Successes in a row of each probe of a job, by number.
pub fn streaks(tx: &mut dyn Tx, job: JobId) -> Result<Vec<u32>, DbError> {
    tx.all(STREAKS, params![job], |mut row| row.take())
}

/// The same for several jobs; those without probes are missing.
pub fn streaks_of(tx: &mut dyn Tx, jobs: &[JobId]) -> Result<BTreeMap<JobId, Vec<u32>>, DbError> {
    let mut out: BTreeMap<JobId, Vec<u32>> = BTreeMap::new();
    if jobs.is_empty() {
        return Ok(out);
    }
    let mut query = Query::new("SELECT job_id, success_streak FROM job_probes WHERE job_id IN ");
    query.bind_list(jobs.iter().copied());
    query.text(" ORDER BY job_id, num");
    let rows: Vec<(JobId, u32)> = tx.all_of(&query, |mut row| Ok((row.take()?, row.take()?)))?;
    for (job, streak) in rows {
        out.entry(job).or_default().push(streak);
    }
    Ok(out)
}

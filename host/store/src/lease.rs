//! Leases: the proof that one step, and no other, may write a row.
//!
//! A claim takes rows that are due and leased by nobody (or by a holder whose time is over) and moves their due time
//! to the end of the lease. A hint that comes meanwhile moves it to *before* that end, which is how the release knows
//! that the row must be looked at again at once. A holder that dies simply lets the due time come.

use std::time::{Duration, Instant};

use dstack_engine::changes::{Hint, Pipeline};
use dstack_engine::ids::{
    FleetId, GatewayId, GatewayReplicaId, InstanceId, JobId, RunId, VolumeId,
};
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::Tx;
use crate::{params, sql};

/// The right to write one row, for a limited time. Made by claiming only, and used up by applying or releasing.
#[derive(Debug)]
pub struct Lease<T> {
    id: T,
    key: LeaseKey,
    taken: Instant,
    duration: Duration,
}

/// What identifies a lease for heartbeats; it cannot be applied with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseKey {
    /// The pipeline that holds it.
    pub pipeline: Pipeline,
    /// The row.
    pub row: Uuid,
    /// The claim.
    token: Uuid,
}

impl<T: Copy> Lease<T> {
    /// The row.
    pub fn id(&self) -> T {
        self.id
    }

    /// For heartbeats.
    pub fn key(&self) -> LeaseKey {
        self.key
    }

    /// What is left of it by this process's steady clock, counted from before it was claimed or last extended.
    /// Before a call with effects, the holder checks that this is longer than the call's deadline.
    pub fn remaining(&self) -> Duration {
        self.duration.saturating_sub(self.taken.elapsed())
    }

    /// Notes a successful [`extend`] that was sent at `sent`.
    pub fn extended(&mut self, sent: Instant, duration: Duration) {
        self.taken = sent;
        self.duration = duration;
    }
}

/// The due time of a row that waits for a hint.
pub const NEVER: Timestamp = Timestamp::constant(253_402_000_000, 0);

macro_rules! claim {
    ($table:literal, $rows:literal, $order:literal) => {
        PipelineSql {
            claim: sql!(
                "UPDATE ", $table, " SET lock_token = ?1, lock_expires_at = ?2, look_again_at = ?2, lock_owner = ?3 \
                 WHERE id IN (SELECT x.id FROM ", $table, " x WHERE ", $rows, " AND x.look_again_at <= ?4 \
                 AND (x.lock_expires_at IS NULL OR x.lock_expires_at <= ?4) ORDER BY ", $order,
                " LIMIT ?5 {skip_locked}) RETURNING id"
            ),
            next: sql!(
                "SELECT x.look_again_at FROM ", $table, " x WHERE ", $rows,
                " AND (x.lock_expires_at IS NULL OR x.lock_expires_at <= ?1) ORDER BY x.look_again_at LIMIT 1"
            ),
            waiting: sql!(
                "SELECT count(*), min(x.look_again_at) FROM ", $table, " x WHERE ", $rows, " AND x.look_again_at <= ?1 \
                 AND (x.lock_expires_at IS NULL OR x.lock_expires_at <= ?1)"
            ),
            held: sql!("SELECT 1 FROM ", $table, " WHERE id = ?1 AND lock_token = ?2"),
            extend: sql!(
                "UPDATE ", $table, " SET look_again_at = CASE WHEN look_again_at = lock_expires_at THEN ?3 \
                 ELSE look_again_at END, lock_expires_at = ?3 WHERE id = ?1 AND lock_token = ?2"
            ),
            release: sql!(
                "UPDATE ", $table, " SET look_again_at = CASE WHEN look_again_at < lock_expires_at \
                 AND look_again_at < ?3 THEN look_again_at ELSE ?3 END, lock_token = NULL, lock_expires_at = NULL, \
                 lock_owner = NULL WHERE id = ?1 AND lock_token = ?2"
            ),
            hint: sql!(
                "UPDATE ", $table, " SET look_again_at = CASE WHEN lock_expires_at <= ?2 THEN lock_expires_at - 1 \
                 ELSE ?2 END WHERE id = ?1 AND look_again_at > CASE WHEN lock_expires_at <= ?2 \
                 THEN lock_expires_at - 1 ELSE ?2 END"
            ),
            touch: sql!("UPDATE ", $table, " SET last_processed_at = ?2 WHERE id = ?1"),
        }
    };
}

macro_rules! release_of {
    ($table:literal) => {
        sql!(
            "UPDATE ",
            $table,
            " SET look_again_at = ?1, lock_token = NULL, lock_expires_at = NULL, lock_owner = NULL \
             WHERE lock_token IS NOT NULL"
        )
    };
}

/// The statements of one pipeline.
pub(crate) struct PipelineSql {
    pub(crate) claim: Sql,
    pub(crate) next: Sql,
    pub(crate) waiting: Sql,
    pub(crate) held: Sql,
    pub(crate) extend: Sql,
    pub(crate) release: Sql,
    pub(crate) hint: Sql,
    pub(crate) touch: Sql,
}

const RUNS: PipelineSql = claim!("runs", "x.active = 1", "x.look_again_at");
const JOBS_SUBMITTED: PipelineSql = claim!(
    "jobs",
    "x.status = 'submitted'",
    "(SELECT r.priority FROM runs r WHERE r.id = x.run_id) DESC, x.last_processed_at"
);
const JOBS_RUNNING: PipelineSql = claim!(
    "jobs",
    "x.status IN ('provisioning', 'pulling', 'running')",
    "x.look_again_at"
);
const JOBS_TERMINATING: PipelineSql = claim!("jobs", "x.status = 'terminating'", "x.look_again_at");
const INSTANCES: PipelineSql = claim!("instances", "x.active = 1", "x.look_again_at");
const FLEETS: PipelineSql = claim!("fleets", "x.deleted = 0", "x.look_again_at");
const GATEWAYS: PipelineSql = claim!("gateways", "x.deleted_at IS NULL", "x.look_again_at");
const GATEWAY_REPLICAS: PipelineSql = claim!(
    "gateway_replicas",
    "x.status <> 'terminated'",
    "x.look_again_at"
);
const VOLUMES: PipelineSql = claim!("volumes", "x.deleted_at IS NULL", "x.look_again_at");

pub(crate) const fn statements(pipeline: Pipeline) -> &'static PipelineSql {
    match pipeline {
        Pipeline::Runs => &RUNS,
        Pipeline::JobsSubmitted => &JOBS_SUBMITTED,
        Pipeline::JobsRunning => &JOBS_RUNNING,
        Pipeline::JobsTerminating => &JOBS_TERMINATING,
        Pipeline::Instances => &INSTANCES,
        Pipeline::Fleets => &FLEETS,
        Pipeline::Volumes => &VOLUMES,
        Pipeline::Gateways => &GATEWAYS,
        Pipeline::GatewayReplicas => &GATEWAY_REPLICAS,
    }
}

/// How a claim is made.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    /// The time of the claim.
    pub now: Timestamp,
    /// When the claim was sent, by the steady clock.
    pub sent: Instant,
    /// How long the leases hold without a heartbeat.
    pub duration: Duration,
    /// At most this many rows: what the caller can start at once.
    pub limit: u32,
}

fn claim<T: From<Uuid>>(
    tx: &mut dyn Tx,
    pipeline: Pipeline,
    how: Claim,
) -> Result<Vec<Lease<T>>, DbError> {
    let token = Uuid::new_v4();
    let params = params![
        token,
        after(how.now, how.duration),
        pipeline.name(),
        how.now,
        how.limit
    ];
    let rows = tx.all(statements(pipeline).claim, params, |mut row| {
        row.take::<Uuid>()
    })?;
    let lease = |row: Uuid| Lease {
        id: T::from(row),
        key: LeaseKey {
            pipeline,
            row,
            token,
        },
        taken: how.sent,
        duration: how.duration,
    };
    Ok(rows.into_iter().map(lease).collect())
}

/// Leases unfinished runs that are due, the longest due first.
pub fn claim_runs(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<RunId>>, DbError> {
    claim(tx, Pipeline::Runs, how)
}

/// Leases submitted jobs that are due, by priority of their run, then oldest first.
pub fn claim_jobs_submitted(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<JobId>>, DbError> {
    claim(tx, Pipeline::JobsSubmitted, how)
}

/// Leases provisioning, pulling and running jobs that are due.
pub fn claim_jobs_running(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<JobId>>, DbError> {
    claim(tx, Pipeline::JobsRunning, how)
}

/// Leases terminating jobs that are due.
pub fn claim_jobs_terminating(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<JobId>>, DbError> {
    claim(tx, Pipeline::JobsTerminating, how)
}

/// Leases instances that are due and not terminated.
pub fn claim_instances(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<InstanceId>>, DbError> {
    claim(tx, Pipeline::Instances, how)
}

/// Leases not deleted fleets that are due.
pub fn claim_fleets(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<FleetId>>, DbError> {
    claim(tx, Pipeline::Fleets, how)
}

/// Leases not deleted gateways that are due.
pub fn claim_gateways(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<GatewayId>>, DbError> {
    claim(tx, Pipeline::Gateways, how)
}

/// Leases machines of gateways that are due and not terminated.
pub fn claim_gateway_replicas(
    tx: &mut dyn Tx,
    how: Claim,
) -> Result<Vec<Lease<GatewayReplicaId>>, DbError> {
    claim(tx, Pipeline::GatewayReplicas, how)
}

/// Leases not deleted volumes that are due.
pub fn claim_volumes(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<VolumeId>>, DbError> {
    claim(tx, Pipeline::Volumes, how)
}

/// When the next row that nobody holds is due; [`NEVER`] for rows that wait for a hint, `None` without rows.
pub fn next_due(
    tx: &mut dyn Tx,
    pipeline: Pipeline,
    now: Timestamp,
) -> Result<Option<Timestamp>, DbError> {
    tx.first(statements(pipeline).next, params![now], |mut row| {
        row.take()
    })
}

/// How many rows are due that nobody holds, and since when the first of them.
pub fn waiting(
    tx: &mut dyn Tx,
    pipeline: Pipeline,
    now: Timestamp,
) -> Result<(u64, Option<Timestamp>), DbError> {
    let found = tx.first(statements(pipeline).waiting, params![now], |mut row| {
        Ok((row.take()?, row.take()?))
    })?;
    Ok(found.unwrap_or_default())
}

/// Extends leases; answers those that are still held. What is missing from the answer is lost: its holder stops.
pub fn extend(
    tx: &mut dyn Tx,
    keys: &[LeaseKey],
    now: Timestamp,
    duration: Duration,
) -> Result<Vec<LeaseKey>, DbError> {
    let mut held = Vec::with_capacity(keys.len());
    for key in keys {
        let params = params![key.row, key.token, after(now, duration)];
        if tx.exec(statements(key.pipeline).extend, params)? > 0 {
            held.push(*key);
        }
    }
    Ok(held)
}

/// Gives a lease back without having done anything; the row is due at `due`, or earlier if a hint came.
pub fn release<T: Copy>(tx: &mut dyn Tx, lease: Lease<T>, due: Timestamp) -> Result<(), DbError> {
    free(tx, lease.key, due)?;
    Ok(())
}

/// Gives back every lease; its row is due at once.
///
/// Only for a database that one process has to itself.
pub(crate) fn release_all(tx: &mut dyn Tx) -> Result<(), DbError> {
    const RUNS: Sql = release_of!("runs");
    const JOBS: Sql = release_of!("jobs");
    const INSTANCES: Sql = release_of!("instances");
    const FLEETS: Sql = release_of!("fleets");
    const GATEWAYS: Sql = release_of!("gateways");
    const REPLICAS: Sql = release_of!("gateway_replicas");
    const VOLUMES: Sql = release_of!("volumes");
    for table in [RUNS, JOBS, INSTANCES, FLEETS, VOLUMES, GATEWAYS, REPLICAS] {
        tx.exec(table, params![Timestamp::UNIX_EPOCH])?;
    }
    Ok(())
}

pub(crate) fn is_held(tx: &mut dyn Tx, key: LeaseKey) -> Result<bool, DbError> {
    let held = tx.first(
        statements(key.pipeline).held,
        params![key.row, key.token],
        |mut row| row.take::<i64>(),
    )?;
    Ok(held.is_some())
}

pub(crate) fn free(tx: &mut dyn Tx, key: LeaseKey, due: Timestamp) -> Result<u64, DbError> {
    tx.exec(
        statements(key.pipeline).release,
        params![key.row, key.token, due],
    )
}

pub(crate) fn touch(tx: &mut dyn Tx, key: LeaseKey, now: Timestamp) -> Result<(), DbError> {
    tx.exec(statements(key.pipeline).touch, params![key.row, now])?;
    Ok(())
}

/// Makes a row due at once. The caller wakes the pipeline after the commit.
pub fn hint(tx: &mut dyn Tx, hint: Hint, now: Timestamp) -> Result<(), DbError> {
    tx.exec(statements(hint.pipeline).hint, params![hint.id, now])?;
    Ok(())
}

/// `now + delay`, or the end of time.
pub(crate) fn after(now: Timestamp, delay: Duration) -> Timestamp {
    now.checked_add(delay).map_or(NEVER, |at| at.min(NEVER))
}

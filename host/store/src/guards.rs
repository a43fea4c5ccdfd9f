//! Guards: what must still be true in the transaction that writes.

use dstack_api::fleets::FleetStatus;
use dstack_api::instances::InstanceStatus;
use dstack_api::jobs::JobStatus;
use dstack_api::runs::RunStatus;
use dstack_engine::changes::Guard;
use dstack_engine::ids::{FleetId, InstanceId};

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::{Tx, Value};
use crate::{params, sql, volumes};

const RUN_STATUS: Sql = sql!("SELECT status FROM runs WHERE id = ?1");
const JOB_STATUS: Sql = sql!("SELECT status FROM jobs WHERE id = ?1");
const INSTANCE_STATUS: Sql = sql!("SELECT status FROM instances WHERE id = ?1 AND deleted = 0");
pub(crate) const HAS_ROOM: Sql = sql!(
    "SELECT 1 FROM instances WHERE id = ?1 AND deleted = 0 AND unreachable = 0 AND status IN ('idle', 'busy') \
     AND (?2 = 0 OR coalesce(total_blocks, 0) - busy_blocks >= ?2)"
);
pub(crate) const UNUSED: Sql = sql!("SELECT 1 FROM instances WHERE id = ?1 AND busy_blocks = 0");
const FLEET_STATUS: Sql = sql!("SELECT status FROM fleets WHERE id = ?1 AND deleted = 0");
pub(crate) const LIVING: Sql = sql!(
    "SELECT count(*) FROM instances WHERE fleet_id = ?1 AND deleted = 0 \
     AND status NOT IN ('terminating', 'terminated')"
);
pub(crate) const USED: Sql = sql!(
    "SELECT 1 FROM instances WHERE fleet_id = ?1 AND deleted = 0 AND status NOT IN ('terminating', 'terminated') \
     AND (busy_blocks > 0 OR (owner_job IS NOT NULL AND status = 'pending')) LIMIT 1"
);
pub(crate) const WANTED: Sql =
    sql!("SELECT 1 FROM runs WHERE fleet_id = ?1 AND active = 1 LIMIT 1");
pub(crate) const NEWER: Sql = sql!(
    "SELECT 1 FROM jobs j JOIN jobs n ON n.run_id = j.run_id AND n.replica_num = j.replica_num \
     AND n.job_num = j.job_num AND n.submission_num > j.submission_num WHERE j.id = ?1 LIMIT 1"
);

/// Whether a guard holds now.
pub(crate) fn holds(tx: &mut dyn Tx, guard: &Guard) -> Result<bool, DbError> {
    Ok(match guard {
        Guard::RunIs(id, statuses) => {
            let now: Option<RunStatus> =
                tx.first(RUN_STATUS, params![*id], |mut row| row.take())?;
            now.is_some_and(|it| statuses.contains(&it))
        }
        Guard::JobIs(id, statuses) => {
            let now: Option<JobStatus> =
                tx.first(JOB_STATUS, params![*id], |mut row| row.take())?;
            now.is_some_and(|it| statuses.contains(&it))
        }
        Guard::InstanceIs(id, statuses) => {
            let now: Option<InstanceStatus> =
                tx.first(INSTANCE_STATUS, params![*id], |mut row| row.take())?;
            now.is_some_and(|it| statuses.contains(&it))
        }
        Guard::InstanceHasRoom(id, blocks) => has_room(tx, *id, *blocks)?,
        Guard::InstanceUnused(id) => exists(tx, UNUSED, *id)?,
        Guard::FleetHasRoom(id, below) => fleet_has_room(tx, *id, *below)?,
        Guard::FleetHasMoreThan(id, least) => living(tx, *id)? > *least,
        Guard::FleetUnused(id) => !exists(tx, USED, *id)? && !exists(tx, WANTED, *id)?,
        Guard::VolumeFree(id, alone) => tx
            .first(volumes::IS_FREE, params![*id, *alone], |_| Ok(()))?
            .is_some(),
        Guard::VolumeUnused(id) => !volumes::is_used(tx, *id)?,
        Guard::LatestSubmission(id) => exists(tx, JOB_STATUS, *id)? && !exists(tx, NEWER, *id)?,
    })
}

fn exists(tx: &mut dyn Tx, sql: Sql, id: impl Into<Value<'static>>) -> Result<bool, DbError> {
    Ok(tx.first(sql, &[id.into()], |_| Ok(()))?.is_some())
}

fn has_room(tx: &mut dyn Tx, id: InstanceId, blocks: u32) -> Result<bool, DbError> {
    Ok(tx
        .first(HAS_ROOM, params![id, blocks], |mut row| row.take::<i64>())?
        .is_some())
}

pub(crate) fn living(tx: &mut dyn Tx, id: FleetId) -> Result<u32, DbError> {
    Ok(tx
        .first(LIVING, params![id], |mut row| row.take())?
        .unwrap_or(0))
}

fn fleet_has_room(tx: &mut dyn Tx, id: FleetId, below: Option<u32>) -> Result<bool, DbError> {
    let status: Option<FleetStatus> = tx.first(FLEET_STATUS, params![id], |mut row| row.take())?;
    if !matches!(status, Some(FleetStatus::Active | FleetStatus::Submitted)) {
        return Ok(false);
    }
    match below {
        Some(below) => Ok(living(tx, id)? < below),
        None => Ok(true),
    }
}

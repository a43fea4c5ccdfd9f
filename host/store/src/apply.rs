//! Writing what a decision wants: the SQL interpreter of the engine's `Changes`.
//!
//! The other interpreter is the engine's in-memory world; a test feeds both the same changes and compares the rows.

use dstack_engine::changes::{Changes, Guard, Hint, NewInstance, Pipeline};
use dstack_engine::model::InstanceRow;
use jiff::{SignedDuration, Timestamp};

use crate::error::DbError;
use crate::lease::{self, Lease, LeaseKey};
use crate::tx::Tx;
use crate::{cleanups, events, fleets, gateways, guards, instances, jobs, probes, runs, volumes};

/// What became of some changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// Why nothing was written; `None` when all was.
    pub refused: Option<Refusal>,
    /// Pipelines and rows to wake after the commit.
    pub hints: Vec<Hint>,
}

/// Why changes were not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Somebody else holds the row by now.
    LeaseLost,
    /// What the decision relied on no longer holds. The row is due at once.
    Guard(Guard),
}

impl Applied {
    /// Whether the changes were written.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.refused.is_none()
    }
}

/// Writes changes and gives the lease back.
pub fn apply<T: Copy>(
    tx: &mut dyn Tx,
    lease: Lease<T>,
    changes: &Changes,
    now: Timestamp,
) -> Result<Applied, DbError> {
    let key = lease.key();
    if let Some(refusal) = refusal(tx, Some(key), changes)? {
        return refuse(tx, key, refusal, changes, now);
    }
    write(tx, changes, now)?;
    lease::touch(tx, key, now)?;
    let due = changes
        .look_again
        .map_or(lease::NEVER, |delay| lease::after(now, delay));
    lease::free(tx, key, due)?;
    hint_all(tx, changes, now)
}

/// Writes changes in the middle of a step and keeps the lease, unless they are refused.
pub fn apply_keeping<T: Copy>(
    tx: &mut dyn Tx,
    lease: Lease<T>,
    changes: &Changes,
    now: Timestamp,
) -> Result<(Applied, Option<Lease<T>>), DbError> {
    let key = lease.key();
    if let Some(refusal) = refusal(tx, Some(key), changes)? {
        return Ok((refuse(tx, key, refusal, changes, now)?, None));
    }
    write(tx, changes, now)?;
    Ok((hint_all(tx, changes, now)?, Some(lease)))
}

/// Writes changes that no pipeline decided: what a request asks for. Guards hold here too.
pub fn apply_request(
    tx: &mut dyn Tx,
    changes: &Changes,
    now: Timestamp,
) -> Result<Applied, DbError> {
    if let Some(refusal) = refusal(tx, None, changes)? {
        return Ok(Applied {
            refused: Some(refusal),
            hints: Vec::new(),
        });
    }
    write(tx, changes, now)?;
    hint_all(tx, changes, now)
}

fn refusal(
    tx: &mut dyn Tx,
    key: Option<LeaseKey>,
    changes: &Changes,
) -> Result<Option<Refusal>, DbError> {
    if let Some(key) = key
        && !lease::is_held(tx, key)?
    {
        return Ok(Some(Refusal::LeaseLost));
    }
    for guard in &changes.guards {
        if !guards::holds(tx, guard)? {
            return Ok(Some(Refusal::Guard(guard.clone())));
        }
    }
    Ok(None)
}

/// Nothing is written but what keeps the world tidy: the row is due again, what was made goes to cleanup.
fn refuse(
    tx: &mut dyn Tx,
    key: LeaseKey,
    refusal: Refusal,
    changes: &Changes,
    now: Timestamp,
) -> Result<Applied, DbError> {
    for made in &changes.made {
        cleanups::add(tx, made, now)?;
    }
    let mut hints = Vec::new();
    if lease::free(tx, key, now)? > 0 {
        hints.push(Hint {
            pipeline: key.pipeline,
            id: key.row,
        });
    }
    Ok(Applied {
        refused: Some(refusal),
        hints,
    })
}

fn write(tx: &mut dyn Tx, changes: &Changes, now: Timestamp) -> Result<(), DbError> {
    for fleet in &changes.new_fleets {
        fleets::insert(tx, fleet, now)?;
    }
    for volume in &changes.new_volumes {
        volumes::insert(tx, volume, now)?;
    }
    for gateway in &changes.new_gateways {
        gateways::insert(tx, gateway, now)?;
    }
    for replica in &changes.new_gateway_replicas {
        gateways::insert_replica(tx, replica, now)?;
    }
    for new in &changes.new_instances {
        insert_instance(tx, new, now)?;
    }
    for run in &changes.new_runs {
        runs::insert(tx, run, now)?;
    }
    for job in &changes.new_jobs {
        jobs::insert(tx, job, now)?;
    }
    for patch in &changes.fleets {
        fleets::patch(tx, patch, now)?;
    }
    for patch in &changes.instances {
        instances::patch(tx, patch, now)?;
    }
    for patch in &changes.runs {
        runs::patch(tx, patch, now)?;
    }
    for patch in &changes.jobs {
        jobs::patch(tx, patch, now)?;
    }
    for patch in &changes.volumes {
        volumes::patch(tx, patch, now)?;
    }
    for patch in &changes.gateways {
        gateways::patch(tx, patch, now)?;
    }
    for patch in &changes.gateway_replicas {
        gateways::patch_replica(tx, patch, now)?;
    }
    for row in &changes.attachments {
        volumes::attach(tx, row)?;
    }
    for (volume, job) in &changes.detached {
        volumes::detach(tx, *volume, *job)?;
    }
    for id in &changes.delete_jobs {
        jobs::delete(tx, *id)?;
    }
    for probe in &changes.new_probes {
        probes::insert(tx, *probe, now)?;
    }
    for job in &changes.end_probes {
        probes::end(tx, *job)?;
    }
    // Lists go by time: what happened in one step keeps its order.
    let mut at = now;
    for event in &changes.events {
        events::insert_row(tx, event, at)?;
        at = at
            .saturating_add(SignedDuration::from_micros(1))
            .unwrap_or(at);
    }
    for row in &changes.cleanup {
        cleanups::add(tx, row, now)?;
    }
    Ok(())
}

fn insert_instance(tx: &mut dyn Tx, new: &NewInstance, now: Timestamp) -> Result<(), DbError> {
    if !new.number_it {
        return instances::insert(tx, &new.row, now);
    }
    let fleet = new.row.fleet_id;
    let instance_num = instances::free_number(tx, fleet)?;
    let name = fleets::name(tx, fleet)?.ok_or_else(|| DbError::Missing {
        what: format!("fleet {fleet}"),
    })?;
    let row = InstanceRow {
        instance_num,
        name: format!("{name}-{instance_num}").into(),
        ..new.row.clone()
    };
    instances::insert(tx, &row, now)
}

/// Hints as asked for, and one for each new row, which is due from the start.
fn hint_all(tx: &mut dyn Tx, changes: &Changes, now: Timestamp) -> Result<Applied, DbError> {
    let mut hints = changes.hints.clone();
    for fleet in &changes.freed {
        let woken = runs::wake_waiting(tx, *fleet, now)?;
        hints.extend(woken.into_iter().map(|run| Hint {
            pipeline: Pipeline::Runs,
            id: run.0,
        }));
    }
    for hint in &hints {
        lease::hint(tx, *hint, now)?;
    }
    let new = (changes
        .new_fleets
        .iter()
        .map(|it| (Pipeline::Fleets, it.id.0)))
    .chain(
        changes
            .new_instances
            .iter()
            .map(|it| (Pipeline::Instances, it.row.id.0)),
    )
    .chain(
        changes
            .new_volumes
            .iter()
            .map(|it| (Pipeline::Volumes, it.id.0)),
    )
    .chain(
        changes
            .new_gateways
            .iter()
            .map(|it| (Pipeline::Gateways, it.id.0)),
    )
    .chain(
        changes
            .new_gateway_replicas
            .iter()
            .map(|it| (Pipeline::GatewayReplicas, it.id.0)),
    )
    .chain(changes.new_runs.iter().map(|it| (Pipeline::Runs, it.id.0)))
    .chain(
        changes
            .new_jobs
            .iter()
            .map(|it| (Pipeline::JobsSubmitted, it.id.0)),
    );
    for (pipeline, id) in new {
        let hint = Hint { pipeline, id };
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    Ok(Applied {
        refused: None,
        hints,
    })
}

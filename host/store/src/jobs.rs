//! Jobs (one row for each submission): the hot row, and its large JSON beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use dstack_api::jobs::{JobSpec, JobStatus, JobTerminationReason};
use dstack_engine::changes::{JobPatch, Pipeline};
use dstack_engine::ids::{InstanceId, JobId, RunId};
use dstack_engine::model::JobRow;
use jiff::Timestamp;

use crate::error::DbError;
use crate::patch::Patch;
use crate::sql::Sql;
use crate::tx::{Query, Row, Tx, json, json_opt};
use crate::{lease, params, probes, sql};

macro_rules! columns {
    () => {
        "SELECT j.id, j.run_id, j.project_id, j.instance_id, j.replica_num, j.job_num, j.submission_num, j.name, \
         j.deployment_num, j.status, j.termination_reason, j.termination_reason_message, j.exit_status, \
         j.submitted_at, j.last_processed_at, j.started_at, j.finished_at, j.stop, j.remove_at, j.blocks, \
         j.runner_timestamp, j.disconnected_at, j.inactivity_secs, j.released, j.registered, d.spec, \
         d.ssh_key, d.provisioning_data, d.runtime_data FROM jobs j JOIN job_data d ON d.id = j.id "
    };
}
pub(crate) use columns;

pub(crate) const GET: Sql = sql!(columns!(), "WHERE j.id = ?1");
pub(crate) const OF_RUN: Sql = sql!(
    columns!(),
    "WHERE j.run_id = ?1 ORDER BY j.replica_num, j.job_num, j.submission_num"
);
pub(crate) const OF_INSTANCE: Sql = sql!(
    columns!(),
    "WHERE j.instance_id = ?1 ORDER BY j.submitted_at, j.id"
);
const INSERT: Sql = sql!(
    "INSERT INTO jobs (id, run_id, project_id, instance_id, replica_num, job_num, submission_num, name, \
     deployment_num, status, termination_reason, termination_reason_message, exit_status, submitted_at, started_at, \
     finished_at, stop, remove_at, blocks, runner_timestamp, disconnected_at, inactivity_secs, released, registered, \
     price, last_processed_at, look_again_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, \
     ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27)"
);
pub(crate) const RUNNING: Sql = sql!("SELECT id FROM jobs WHERE status IN ('running') ORDER BY id");
const INSERT_DATA: Sql = sql!(
    "INSERT INTO job_data (id, spec, ssh_key, provisioning_data, runtime_data) VALUES (?1, ?2, ?3, ?4, ?5)"
);
const DELETE: Sql = sql!("DELETE FROM jobs WHERE id = ?1");
const DELETE_DATA: Sql = sql!("DELETE FROM job_data WHERE id = ?1");

pub(crate) fn from_row(mut row: Row<'_>) -> Result<JobRow, DbError> {
    Ok(JobRow {
        id: row.take()?,
        run_id: row.take()?,
        project_id: row.take()?,
        instance_id: row.take()?,
        replica_num: row.take()?,
        job_num: row.take()?,
        submission_num: row.take()?,
        name: row.take()?,
        deployment_num: row.take()?,
        status: row.take()?,
        termination_reason: row.take()?,
        termination_reason_message: row.take()?,
        exit_status: row.take()?,
        submitted_at: row.take()?,
        last_processed_at: row.take()?,
        started_at: row.take()?,
        finished_at: row.take()?,
        stop: row.take()?,
        remove_at: row.take()?,
        blocks: row.take()?,
        runner_timestamp: row.take()?,
        disconnected_at: row.take()?,
        inactivity_secs: row.take()?,
        released: row.take()?,
        registered: row.take()?,
        spec: {
            let mut spec: JobSpec = row.json()?;
            spec.ssh_key = row.json_opt()?;
            Arc::new(spec)
        },
        provisioning_data: row.json_opt()?.map(Arc::new),
        runtime_data: row.json_opt()?.map(Arc::new),
    })
}

/// The job submission of this id.
pub fn get(tx: &mut dyn Tx, id: JobId) -> Result<Option<JobRow>, DbError> {
    tx.first(GET, params![id], from_row)
}

/// All submissions of a run, by replica, job and submission.
pub fn of_run(tx: &mut dyn Tx, run: RunId) -> Result<Vec<JobRow>, DbError> {
    tx.all(OF_RUN, params![run], from_row)
}

/// Submissions that are or were on an instance, oldest first.
pub fn of_instance(tx: &mut dyn Tx, instance: InstanceId) -> Result<Vec<JobRow>, DbError> {
    tx.all(OF_INSTANCE, params![instance], from_row)
}

/// Stores a new submission; it is due at `due`.
pub fn insert(tx: &mut dyn Tx, job: &JobRow, due: Timestamp) -> Result<(), DbError> {
    tx.exec(
        INSERT,
        params![
            job.id,
            job.run_id,
            job.project_id,
            job.instance_id,
            job.replica_num,
            job.job_num,
            job.submission_num,
            &job.name,
            job.deployment_num,
            job.status,
            job.termination_reason,
            job.termination_reason_message.as_deref(),
            job.exit_status,
            job.submitted_at,
            job.started_at,
            job.finished_at,
            job.stop,
            job.remove_at,
            job.blocks,
            job.runner_timestamp,
            job.disconnected_at,
            job.inactivity_secs,
            job.released,
            job.registered,
            job.provisioning_data.as_ref().map(|it| it.price),
            job.last_processed_at,
            due,
        ],
    )?;
    let ssh_key = json_opt("the key of a job", job.spec.ssh_key.as_ref())?;
    let spec = if ssh_key.is_some() {
        json(
            "the specification of a job",
            &JobSpec {
                ssh_key: None,
                ..(*job.spec).clone()
            },
        )?
    } else {
        json("the specification of a job", &*job.spec)?
    };
    let machine = json_opt("the machine of a job", job.provisioning_data.as_deref())?;
    let runtime = json_opt("the runtime data of a job", job.runtime_data.as_deref())?;
    tx.exec(
        INSERT_DATA,
        params![job.id, spec, ssh_key, machine, runtime],
    )?;
    Ok(())
}

/// Writes the changed columns; an unknown id changes nothing.
pub(crate) fn patch(tx: &mut dyn Tx, patch: &JobPatch, now: Timestamp) -> Result<(), DbError> {
    let mut hot = Patch::of("jobs");
    hot.set("last_processed_at", Some(now));
    if let Some(status) = patch.status {
        hand_over(tx, patch.id, status)?;
    }
    hot.set("status", patch.status);
    hot.set("termination_reason", patch.termination_reason);
    hot.set(
        "termination_reason_message",
        patch
            .termination_reason_message
            .as_ref()
            .map(Option::as_deref),
    );
    hot.set("exit_status", patch.exit_status);
    hot.set("instance_id", patch.instance_id);
    hot.set("deployment_num", patch.deployment_num);
    hot.set("started_at", patch.started_at);
    hot.set("finished_at", patch.finished_at);
    hot.set("stop", patch.stop);
    hot.set("remove_at", patch.remove_at);
    hot.set("blocks", patch.blocks);
    hot.set("runner_timestamp", patch.runner_timestamp);
    hot.set("disconnected_at", patch.disconnected_at);
    hot.set("inactivity_secs", patch.inactivity_secs);
    hot.set("released", patch.released);
    hot.set("registered", patch.registered);
    hot.set(
        "price",
        patch
            .provisioning_data
            .as_ref()
            .map(|it| it.as_ref().map(|it| it.price)),
    );
    hot.run(tx, patch.id)?;
    let mut data = Patch::of("job_data");
    if let Some(machine) = &patch.provisioning_data {
        data.set(
            "provisioning_data",
            Some(json_opt("the machine of a job", machine.as_deref())?),
        );
    }
    if let Some(runtime) = &patch.runtime_data {
        data.set(
            "runtime_data",
            Some(json_opt("the runtime data of a job", runtime.as_deref())?),
        );
    }
    data.run(tx, patch.id)?;
    Ok(())
}

/// A job that goes to another pipeline leaves the old one at once: whoever holds it there may write no more, and in
/// the new one it waits for a hint.
fn hand_over(tx: &mut dyn Tx, id: JobId, status: JobStatus) -> Result<(), DbError> {
    const STATUS: Sql = sql!("SELECT status FROM jobs WHERE id = ?1");
    const FREE: Sql = sql!(
        "UPDATE jobs SET lock_token = NULL, lock_expires_at = NULL, lock_owner = NULL, look_again_at = ?2 \
         WHERE id = ?1"
    );
    let was: Option<JobStatus> = tx.first(STATUS, params![id], |mut row| row.take())?;
    if was.is_some_and(|was| Pipeline::of_job(was) != Pipeline::of_job(status)) {
        tx.exec(FREE, params![id, lease::NEVER])?;
    }
    Ok(())
}

/// Removes a submission for good.
pub(crate) fn delete(tx: &mut dyn Tx, id: JobId) -> Result<(), DbError> {
    tx.exec(DELETE, params![id])?;
    tx.exec(DELETE_DATA, params![id])?;
    probes::delete(tx, id)
}

/// A submission as the API shows it; the JSON texts are as stored, to be spliced into the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRecord {
    /// The submission.
    pub id: JobId,
    /// Its run.
    pub run_id: RunId,
    /// Where it runs.
    pub instance_id: Option<InstanceId>,
    /// Replica within the run.
    pub replica_num: u32,
    /// Node within the replica.
    pub job_num: u32,
    /// Which try this is.
    pub submission_num: u32,
    /// The deployment it was made for.
    pub deployment_num: u32,
    /// Where it stands.
    pub status: JobStatus,
    /// Why it ends or ended.
    pub termination_reason: Option<JobTerminationReason>,
    /// Details of the reason.
    pub termination_reason_message: Option<String>,
    /// Exit status of the commands.
    pub exit_status: Option<i64>,
    /// When it was made.
    pub submitted_at: Timestamp,
    /// When a pipeline last wrote it.
    pub last_processed_at: Timestamp,
    /// When it reached a final status.
    pub finished_at: Option<Timestamp>,
    /// Seconds without a connection.
    pub inactivity_secs: Option<i64>,
    /// Dollars an hour of its machine; `None` before there is one.
    pub price_usd_per_hour: Option<f64>,
    /// Successes in a row of its readiness probes, by number; empty before it runs.
    pub probe_streaks: Vec<u32>,
    /// `JobSpec` as JSON; only on the newest submission of each job, where the API shows it.
    pub spec: Option<String>,
    /// `JobProvisioningData` as JSON.
    pub provisioning_data: Option<String>,
    /// `JobRuntimeData` as JSON.
    pub runtime_data: Option<String>,
}

fn record(mut row: Row<'_>) -> Result<JobRecord, DbError> {
    Ok(JobRecord {
        id: row.take()?,
        run_id: row.take()?,
        instance_id: row.take()?,
        replica_num: row.take()?,
        job_num: row.take()?,
        submission_num: row.take()?,
        deployment_num: row.take()?,
        status: row.take()?,
        termination_reason: row.take()?,
        termination_reason_message: row.take()?,
        exit_status: row.take()?,
        submitted_at: row.take()?,
        last_processed_at: row.take()?,
        finished_at: row.take()?,
        inactivity_secs: row.take()?,
        price_usd_per_hour: row.take()?,
        probe_streaks: Vec::new(),
        spec: None,
        provisioning_data: None,
        runtime_data: None,
    })
}

/// The submissions of some runs, by run, replica, job and submission: all hot rows (costs need them), and the JSON
/// only of the newest `with_data` submissions of each job (the spec only of the newest one).
pub fn records(
    tx: &mut dyn Tx,
    runs: &[RunId],
    with_data: u32,
) -> Result<BTreeMap<RunId, Vec<JobRecord>>, DbError> {
    let mut query = Query::new(
        "SELECT id, run_id, instance_id, replica_num, job_num, submission_num, deployment_num, status, \
         termination_reason, termination_reason_message, exit_status, submitted_at, last_processed_at, finished_at, \
         inactivity_secs, price FROM jobs WHERE run_id IN ",
    );
    query.bind_list(runs.iter().copied());
    query.text(" ORDER BY run_id, replica_num, job_num, submission_num");
    let mut rows = tx.all_of(&query, record)?;
    fill(tx, &mut rows, with_data)?;
    let running: Vec<JobId> = rows
        .iter()
        .filter(|row| matches!(row.status, JobStatus::Running | JobStatus::Terminating))
        .map(|row| row.id)
        .collect();
    let mut streaks = probes::streaks_of(tx, &running)?;
    for row in &mut rows {
        row.probe_streaks = streaks.remove(&row.id).unwrap_or_default();
    }
    let mut out: BTreeMap<RunId, Vec<JobRecord>> = BTreeMap::new();
    for row in rows {
        out.entry(row.run_id).or_default().push(row);
    }
    Ok(out)
}

/// Reads the JSON of the newest submissions. `rows` are ordered, so the newest of a job stand last.
fn fill(tx: &mut dyn Tx, rows: &mut [JobRecord], with_data: u32) -> Result<(), DbError> {
    const DATA: Sql =
        sql!("SELECT spec, provisioning_data, runtime_data FROM job_data WHERE id = ?1");
    const DATA_WITHOUT_SPEC: Sql =
        sql!("SELECT NULL, provisioning_data, runtime_data FROM job_data WHERE id = ?1");
    let mut newer: Option<(RunId, u32, u32)> = None;
    let mut seen = 0;
    for row in rows.iter_mut().rev() {
        let job = (row.run_id, row.replica_num, row.job_num);
        seen = if newer == Some(job) { seen + 1 } else { 1 };
        newer = Some(job);
        if seen > with_data.max(1) {
            continue;
        }
        let data = tx.first(
            if seen == 1 { DATA } else { DATA_WITHOUT_SPEC },
            params![row.id],
            |mut data| Ok((data.take()?, data.take()?, data.take()?)),
        )?;
        if let Some((spec, machine, runtime)) = data {
            row.spec = spec;
            row.provisioning_data = machine;
            row.runtime_data = runtime;
        }
    }
    Ok(())
}

/// The running submissions.
pub fn running(tx: &mut dyn Tx) -> Result<Vec<JobId>, DbError> {
    tx.all(RUNNING, params![], |mut row| row.take())
}

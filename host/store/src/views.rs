//! Loading what decisions read: one function for each pipeline, all through indexed ids.
//!
//! What the database does not know comes in as [`Known`]; offers are left out, the shell asks for them and fills them
//! in. `None` means that the row is gone.

use std::sync::Arc;

use dstack_api::fleets::FleetStatus;
use dstack_engine::admit::JobDefaults;
use dstack_engine::ids::{
    FleetId, GatewayId, GatewayReplicaId, InstanceId, JobId, ProjectId, RunId, VolumeId,
};
use dstack_engine::job_running::GpuSample;
use dstack_engine::model::{FleetRow, InstanceRow, JobRow};
use dstack_engine::spec;
use dstack_engine::view::{BackendAbilities, FleetFacts, Limits, provisioning_timeout};
use dstack_engine::volumes::mounts;
use dstack_engine::{
    fleets as fleet_step, gateways as gateway_step, instances as instance_step, job_running,
    job_submitted, job_terminating, runs as run_step, volumes as volume_step,
};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::Tx;
use crate::{
    exports, fleets, gateways, guards, instances, job_metrics, jobs, params, probes, projects,
    runs, sql, traffic, volumes,
};

/// What decisions read that the database does not know. Cheap to clone into a transaction.
#[derive(Clone)]
pub struct Known {
    /// Limits.
    pub limits: Arc<Limits>,
    /// What is filled into specifications.
    pub defaults: Arc<JobDefaults>,
    /// The backends of a project.
    pub backends: Arc<dyn Fn(ProjectId) -> Arc<Vec<BackendAbilities>> + Send + Sync>,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            limits: Arc::default(),
            defaults: Arc::default(),
            backends: Arc::new(|_| Arc::default()),
        }
    }
}

const SIBLINGS: Sql = sql!(
    jobs::columns!(),
    "WHERE j.run_id = ?1 AND j.replica_num = ?2 AND j.job_num <> ?3 AND NOT EXISTS (SELECT 1 FROM jobs n \
     WHERE n.run_id = j.run_id AND n.replica_num = j.replica_num AND n.job_num = j.job_num \
     AND n.submission_num > j.submission_num) ORDER BY j.job_num"
);
const UNFINISHED_ON: Sql = sql!(
    jobs::columns!(),
    "WHERE j.instance_id = ?1 AND j.status IN ('submitted', 'provisioning', 'pulling', 'running', 'terminating') \
     ORDER BY j.id"
);
const POOL: Sql = sql!(
    instances::columns!(),
    "i.fleet_id = ?1 AND i.deleted = 0 AND i.status IN ('idle', 'busy') AND i.unreachable = 0 \
     AND i.health <> 'failure' AND i.total_blocks > i.busy_blocks ORDER BY coalesce(i.price, 0), i.instance_num, i.id LIMIT 200"
);
const TAKEN: Sql = sql!(
    "SELECT count(*) FROM instances WHERE fleet_id = ?1 AND deleted = 0 AND ((status = 'busy' AND busy_blocks > 0) \
     OR (status IN ('pending', 'provisioning') AND owner_job IS NOT NULL))"
);
const MASTER: Sql = sql!(
    instances::columns!(),
    "i.fleet_id = ?1 AND i.deleted = 0 AND i.status NOT IN ('terminating', 'terminated') \
     AND d.provisioning_data IS NOT NULL AND i.id <> ?2 ORDER BY i.created_at, i.instance_num, i.id LIMIT 1"
);
const LOWER: Sql = sql!(
    "SELECT 1 FROM instances WHERE fleet_id = ?1 AND deleted = 0 AND status NOT IN ('terminating', 'terminated') \
     AND instance_num < ?2 LIMIT 1"
);
const ACTIVE_RUNS: Sql = sql!("SELECT count(*) FROM runs WHERE fleet_id = ?1 AND active = 1");
const ACTIVE_FLEETS: Sql = sql!(
    fleets::columns!(),
    "f.project_id = ?1 AND f.deleted = 0 AND f.status IN ('active', 'submitted') ORDER BY f.id"
);
const IMPORTED_FLEETS: Sql = sql!(
    fleets::columns!(),
    "f.id IN (SELECT x.fleet_id FROM imports m JOIN exported_fleets x ON x.export_id = m.export_id \
     WHERE m.project_id = ?1) AND f.deleted = 0 AND f.status IN ('active', 'submitted') ORDER BY f.id"
);

/// Samples of a window that are looked at: a day of one every 10 s.
const SAMPLES: u32 = 8640;

/// The statements of this file, for the test of query plans.
#[cfg(test)]
pub(crate) const SQL: &[(&str, Sql)] = &[
    ("siblings", SIBLINGS),
    ("unfinished jobs of an instance", UNFINISHED_ON),
    ("pool", POOL),
    ("taken", TAKEN),
    ("master", MASTER),
    ("lower", LOWER),
    ("active runs", ACTIVE_RUNS),
    ("active fleets", ACTIVE_FLEETS),
    ("imported fleets", IMPORTED_FLEETS),
];

/// What a step of a run reads.
pub fn run(
    tx: &mut dyn Tx,
    id: RunId,
    now: Timestamp,
    known: &Known,
) -> Result<Option<run_step::View>, DbError> {
    let Some(run) = runs::get(tx, id)? else {
        return Ok(None);
    };
    let jobs = jobs::of_run(tx, id)?;
    Ok(Some(run_step::View {
        now,
        traffic: if spec::is_service(&run.spec) {
            traffic::of_run(tx, id, now)?
        } else {
            None
        },
        run,
        jobs,
        defaults: known.defaults.clone(),
    }))
}

/// What a step of a submitted job reads.
pub fn job_submitted(
    tx: &mut dyn Tx,
    id: JobId,
    now: Timestamp,
    known: &Known,
) -> Result<Option<job_submitted::View>, DbError> {
    let Some(job) = jobs::get(tx, id)? else {
        return Ok(None);
    };
    let Some(run) = runs::get(tx, job.run_id)? else {
        return Ok(None);
    };
    let Some(project) = projects::get(tx, job.project_id)? else {
        return Ok(None);
    };
    let fleets = match run.fleet_id {
        Some(fleet) => match fleets::get(tx, fleet)? {
            Some(fleet) if is_usable(tx, &fleet, run.project_id)? => vec![fleet],
            Some(_) | None => Vec::new(),
        },
        None => usable_fleets(tx, job.project_id)?,
    };
    let project_name: Arc<str> = project.name.into();
    let fleets = all_facts(tx, (job.project_id, &project_name), fleets)?;
    Ok(Some(job_submitted::View {
        now,
        project_name,
        siblings: siblings(tx, &job)?,
        instance: instance_of(tx, &job)?,
        volumes: volumes::named(tx, job.project_id, mounts::names(&job.spec), Some(id))?,
        job,
        backends: (known.backends)(run.project_id),
        run,
        fleets,
        offers: None,
        limits: known.limits.clone(),
    }))
}

/// What a step of a provisioning, pulling or running job reads.
pub fn job_running(
    tx: &mut dyn Tx,
    id: JobId,
    now: Timestamp,
    known: &Known,
) -> Result<Option<job_running::View>, DbError> {
    let Some(job) = jobs::get(tx, id)? else {
        return Ok(None);
    };
    let Some(run) = runs::get(tx, job.run_id)? else {
        return Ok(None);
    };
    let instance = instance_of(tx, &job)?;
    let access_revoked = match &instance {
        Some(it) if it.project_id != job.project_id => {
            !exports::may_use(tx, it.fleet_id, job.project_id)?
        }
        Some(_) | None => false,
    };
    let offer = instance.as_ref().and_then(|it| it.offer.as_deref());
    Ok(Some(job_running::View {
        now,
        siblings: siblings(tx, &job)?,
        probes: if job.spec.probes.is_empty() {
            Vec::new()
        } else {
            probes::streaks(tx, id)?
        },
        gpu_load: gpu_load(tx, &job, now)?,
        provisioning_timeout: provisioning_timeout(&(known.backends)(job.project_id), offer),
        instance,
        volumes: volumes::held(tx, id)?,
        job,
        run,
        access_revoked,
        limits: known.limits.clone(),
    }))
}

/// How busy the GPUs of a job were in the window of its utilization policy, newest first.
fn gpu_load(tx: &mut dyn Tx, job: &JobRow, now: Timestamp) -> Result<Vec<GpuSample>, DbError> {
    let Some(policy) = &job.spec.utilization_policy else {
        return Ok(Vec::new());
    };
    // A window before the first of all times is one without a begin.
    let begin = now.checked_sub(SignedDuration::from_secs(policy.time_window));
    let points = job_metrics::list(tx, job.id, begin.ok(), None, SAMPLES)?;
    let samples = points.into_iter().map(|(at, point)| GpuSample {
        at,
        percent: point.gpus_util_percent,
    });
    Ok(samples.collect())
}

/// What a step of a terminating job reads.
pub fn job_terminating(
    tx: &mut dyn Tx,
    id: JobId,
    now: Timestamp,
    known: &Known,
) -> Result<Option<job_terminating::View>, DbError> {
    let Some(job) = jobs::get(tx, id)? else {
        return Ok(None);
    };
    let Some(run) = runs::get(tx, job.run_id)? else {
        return Ok(None);
    };
    let instance = instance_of(tx, &job)?;
    Ok(Some(job_terminating::View {
        now,
        volumes: volumes::held(tx, id)?,
        job,
        run,
        instance,
        limits: known.limits.clone(),
    }))
}

/// What a step of an instance reads.
pub fn instance(
    tx: &mut dyn Tx,
    id: InstanceId,
    now: Timestamp,
    known: &Known,
) -> Result<Option<instance_step::View>, DbError> {
    let Some(instance) = instances::get(tx, id)? else {
        return Ok(None);
    };
    let Some(fleet) = fleets::get(tx, instance.fleet_id)? else {
        return Ok(None);
    };
    let is_cluster = spec::is_cluster(&fleet.spec);
    let master = if is_cluster {
        master(tx, fleet.id, Some(id))?
    } else {
        None
    };
    let first_of_cluster = is_cluster && !has_lower(tx, &instance)?;
    let backends = (known.backends)(fleet.project_id);
    Ok(Some(instance_step::View {
        now,
        living: guards::living(tx, fleet.id)?,
        jobs: tx.all(UNFINISHED_ON, params![id], jobs::from_row)?,
        master,
        first_of_cluster,
        provisioning_timeout: provisioning_timeout(&backends, instance.offer.as_deref()),
        backends,
        instance,
        fleet: Arc::new(fleet),
        offers: None,
        limits: known.limits.clone(),
    }))
}

/// What a step of a fleet reads.
pub fn fleet(
    tx: &mut dyn Tx,
    id: FleetId,
    now: Timestamp,
) -> Result<Option<fleet_step::View>, DbError> {
    let Some(fleet) = fleets::get(tx, id)? else {
        return Ok(None);
    };
    let active_runs = tx
        .first(ACTIVE_RUNS, params![id], |mut row| row.take())?
        .unwrap_or(0);
    Ok(Some(fleet_step::View {
        now,
        instances: instances::of_fleet(tx, id)?,
        active_runs,
        project_deleted: project_is_deleted(tx, fleet.project_id)?,
        fleet: Arc::new(fleet),
    }))
}

/// What a step of a gateway reads.
pub fn gateway(
    tx: &mut dyn Tx,
    id: GatewayId,
    now: Timestamp,
    known: &Known,
) -> Result<Option<gateway_step::View>, DbError> {
    let Some(gateway) = gateways::get(tx, id)? else {
        return Ok(None);
    };
    Ok(Some(gateway_step::View {
        now,
        gateway: Arc::new(gateway),
        replicas: gateways::replicas(tx, id)?,
        limits: known.limits.clone(),
    }))
}

/// What a step of a gateway's machine reads.
pub fn gateway_replica(
    tx: &mut dyn Tx,
    id: GatewayReplicaId,
    now: Timestamp,
    known: &Known,
) -> Result<Option<gateway_step::replicas::View>, DbError> {
    let Some(replica) = gateways::replica(tx, id)? else {
        return Ok(None);
    };
    let Some(gateway) = gateways::get(tx, replica.gateway_id)? else {
        return Ok(None);
    };
    Ok(Some(gateway_step::replicas::View {
        now,
        gateway: Arc::new(gateway),
        replica,
        limits: known.limits.clone(),
    }))
}

/// What a step of a volume reads.
pub fn volume(
    tx: &mut dyn Tx,
    id: VolumeId,
    now: Timestamp,
    known: &Known,
) -> Result<Option<volume_step::View>, DbError> {
    let Some(volume) = volumes::get(tx, id)? else {
        return Ok(None);
    };
    Ok(Some(volume_step::View {
        now,
        volume: Arc::new(volume),
        in_use: volumes::is_used(tx, id)?,
        limits: known.limits.clone(),
    }))
}

/// The active fleets of a project with what a placement wants to know; for plans of runs.
pub fn fleet_facts(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<FleetFacts>, DbError> {
    let Some(row) = projects::get(tx, project)? else {
        return Ok(Vec::new());
    };
    let project_name: Arc<str> = row.name.into();
    let fleets = usable_fleets(tx, project)?;
    all_facts(tx, (project, &project_name), fleets)
}

/// The active fleets of a project, then those that it imports.
fn usable_fleets(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<FleetRow>, DbError> {
    let mut found = tx.all(ACTIVE_FLEETS, params![project], fleets::from_row)?;
    found.extend(tx.all(IMPORTED_FLEETS, params![project], fleets::from_row)?);
    Ok(found)
}

fn is_usable(tx: &mut dyn Tx, fleet: &FleetRow, project: ProjectId) -> Result<bool, DbError> {
    let is_up =
        !fleet.deleted && matches!(fleet.status, FleetStatus::Active | FleetStatus::Submitted);
    Ok(is_up && (fleet.project_id == project || exports::may_use(tx, fleet.id, project)?))
}

/// What a placement wants to know of fleets; each under the name of the project that owns it.
fn all_facts(
    tx: &mut dyn Tx,
    (project, name): (ProjectId, &Arc<str>),
    fleets: Vec<FleetRow>,
) -> Result<Vec<FleetFacts>, DbError> {
    let mut found = Vec::with_capacity(fleets.len());
    for fleet in fleets {
        let owner = if fleet.project_id == project {
            name.clone()
        } else {
            match projects::get(tx, fleet.project_id)? {
                Some(owner) if !owner.deleted => owner.name.into(),
                Some(_) | None => continue,
            }
        };
        found.push(facts(tx, &owner, fleet)?);
    }
    Ok(found)
}

fn facts(tx: &mut dyn Tx, project_name: &Arc<str>, fleet: FleetRow) -> Result<FleetFacts, DbError> {
    let id = fleet.id;
    Ok(FleetFacts {
        project_name: project_name.clone(),
        pool: tx.all(POOL, params![id], instances::from_row)?,
        living: guards::living(tx, id)?,
        taken: tx
            .first(TAKEN, params![id], |mut row| row.take())?
            .unwrap_or(0),
        master: if spec::is_cluster(&fleet.spec) {
            master(tx, id, None)?
        } else {
            None
        },
        fleet: Arc::new(fleet),
    })
}

fn siblings(tx: &mut dyn Tx, job: &JobRow) -> Result<Vec<JobRow>, DbError> {
    if job.spec.jobs_per_replica <= 1 {
        return Ok(Vec::new());
    }
    tx.all(
        SIBLINGS,
        params![job.run_id, job.replica_num, job.job_num],
        jobs::from_row,
    )
}

fn instance_of(tx: &mut dyn Tx, job: &JobRow) -> Result<Option<InstanceRow>, DbError> {
    job.instance_id
        .map_or(Ok(None), |id| instances::get(tx, id))
}

fn master(
    tx: &mut dyn Tx,
    fleet: FleetId,
    not: Option<InstanceId>,
) -> Result<Option<InstanceRow>, DbError> {
    let not = not.unwrap_or(InstanceId(Uuid::nil()));
    tx.first(MASTER, params![fleet, not], instances::from_row)
}

fn has_lower(tx: &mut dyn Tx, instance: &InstanceRow) -> Result<bool, DbError> {
    let params = params![instance.fleet_id, instance.instance_num];
    Ok(tx
        .first(LOWER, params, |mut row| row.take::<i64>())?
        .is_some())
}

fn project_is_deleted(tx: &mut dyn Tx, id: ProjectId) -> Result<bool, DbError> {
    Ok(projects::get(tx, id)?.is_none_or(|it| it.deleted))
}

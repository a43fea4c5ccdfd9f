//! From a specification to the first rows: runs and their jobs.
//!
//! What a job runs is worked out by [`plan`](dstack_api::plan); here it becomes rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use dstack_api::config::PythonVersion;
use dstack_api::jobs::{JobSpec, JobStatus};
use dstack_api::plan::{
    DefaultImages, DefaultRegistry, ImagesFacts, JobSettings, PlanError, StandardBootstrap,
    merged_profile, replica_bounds, replica_jobs,
};
use dstack_api::runs::{RunSpec, RunStatus, ServiceSpec};
use jiff::Timestamp;

use crate::changes::{Actor, Changes, Pipeline};
use crate::events::loud;
use crate::ids::{Ids, JobId, ProjectId, RunId, UserId};
use crate::model::{JobRow, RunRow, Stop};
use crate::{schedule, spec};

/// What the server fills in where the user said nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDefaults {
    /// Images used when none is named.
    pub images: DefaultImages,
    /// The registry for images that name none.
    pub registry: Option<DefaultRegistry>,
    /// The Python used when none is named.
    pub python: PythonVersion,
    /// The commands around those of the person.
    pub bootstrap: StandardBootstrap,
}

impl Default for JobDefaults {
    fn default() -> Self {
        Self {
            images: DefaultImages::default(),
            registry: None,
            python: PythonVersion::Py312,
            bootstrap: StandardBootstrap::default(),
        }
    }
}

/// Why no rows can be made from a specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmitError {
    /// It cannot become jobs.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The schedule never fires.
    #[error("the schedule has no next time")]
    NeverFires,
}

/// A new run.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its project.
    pub project_id: ProjectId,
    /// Who submits it.
    pub user_id: UserId,
    /// Its name, checked and free.
    pub name: Arc<str>,
    /// The effective specification, name included.
    pub spec: Arc<RunSpec>,
    /// Address and model of a service.
    pub service: Option<Arc<ServiceSpec>>,
    /// What is known about its images.
    pub images: Option<Arc<ImagesFacts>>,
}

/// The rows of a new run: with a schedule the run waits, else its jobs are there at once.
///
/// # Errors
/// [`AdmitError`] when the specification cannot become jobs.
pub fn run(
    new: &NewRun,
    defaults: &JobDefaults,
    now: Timestamp,
    ids: &mut Ids,
) -> Result<(RunId, Changes), AdmitError> {
    let crons = spec::schedule(&new.spec);
    let next = match &crons {
        Some(crons) => Some(schedule::next(crons, now).ok_or(AdmitError::NeverFires)?),
        None => None,
    };
    let row = RunRow {
        id: RunId(ids.uuid()),
        project_id: new.project_id,
        user_id: new.user_id,
        fleet_id: None,
        name: Arc::clone(&new.name),
        spec: Arc::clone(&new.spec),
        status: if next.is_some() {
            RunStatus::Pending
        } else {
            RunStatus::Submitted
        },
        termination_reason: None,
        submitted_at: now,
        last_processed_at: now,
        next_triggered_at: next,
        resubmission_attempt: 0,
        deployment_num: 0,
        priority: i64::from(new.spec.configuration.base().priority.unwrap_or(0)),
        desired_replicas: BTreeMap::new(),
        capacity_at: None,
        service: new.service.clone(),
        images: new.images.clone(),
        deleted: false,
    };
    // Made in any case, so that a specification that cannot become jobs is refused now, not when it fires.
    let jobs = jobs(&row, defaults, now, ids)?;
    let mut changes = Changes::default();
    changes.event(
        format!("Run submitted. Status: {}", loud(&row.status)),
        &[&row],
    );
    // The rest is the server's doing.
    for event in &mut changes.events {
        event.actor = Actor::User(new.user_id);
    }
    if let Some(service) = &new.service {
        let is_here = service.url.starts_with('/');
        let to = if is_here {
            "run without a gateway"
        } else {
            "gateway"
        };
        changes.event(format!("Service assigned to {to}"), &[&row]);
    }
    if next.is_none() {
        if jobs.is_empty() {
            // A service that starts at zero.
            changes.hint(Pipeline::Runs, row.id);
        }
        for job in jobs {
            changes.event("Job created on run submission. Status: SUBMITTED", &[&job]);
            changes.hint(Pipeline::JobsSubmitted, job.id);
            changes.new_jobs.push(job);
        }
    }
    let id = row.id;
    changes.hint(Pipeline::Runs, id);
    changes.new_runs.push(row);
    Ok((id, changes))
}

/// The first jobs of a run: one for each node of a task, the least number of replicas of a service.
///
/// # Errors
/// [`AdmitError`] when the specification cannot become jobs.
pub fn jobs(
    run: &RunRow,
    defaults: &JobDefaults,
    now: Timestamp,
    ids: &mut Ids,
) -> Result<Vec<JobRow>, AdmitError> {
    let mut out = Vec::new();
    let mut replica_num = 0;
    for (group, (least, _)) in replica_bounds(&run.spec.configuration)
        .into_iter()
        .enumerate()
    {
        for _ in 0..least {
            for spec in replica(run, defaults, replica_num, group)? {
                out.push(first(run, spec, JobId(ids.uuid()), now));
            }
            replica_num += 1;
        }
    }
    Ok(out)
}

/// The jobs of one replica, node by node, from the run as it is now. `group` is the position of its group.
///
/// # Errors
/// [`AdmitError`] when the specification cannot become jobs.
pub fn replica(
    run: &RunRow,
    defaults: &JobDefaults,
    replica_num: u32,
    group: usize,
) -> Result<Vec<JobSpec>, AdmitError> {
    let profile = merged_profile(&run.spec.configuration, run.spec.profile.as_ref());
    let unknown = ImagesFacts::new();
    let settings = JobSettings {
        images: &defaults.images,
        registry: defaults.registry.as_ref(),
        python: defaults.python,
        bootstrap: &defaults.bootstrap,
        facts: run.images.as_deref().unwrap_or(&unknown),
    };
    Ok(replica_jobs(
        &run.spec,
        &profile,
        replica_num,
        group,
        &settings,
    )?)
}

/// The first submission of a job.
pub fn first(run: &RunRow, spec: JobSpec, id: JobId, now: Timestamp) -> JobRow {
    JobRow {
        id,
        run_id: run.id,
        project_id: run.project_id,
        instance_id: None,
        replica_num: spec.replica_num,
        job_num: spec.job_num,
        submission_num: 0,
        name: spec.job_name.as_str().into(),
        released: spec.job_num == 0,
        spec: Arc::new(spec),
        deployment_num: run.deployment_num,
        status: JobStatus::Submitted,
        termination_reason: None,
        termination_reason_message: None,
        exit_status: None,
        submitted_at: now,
        last_processed_at: now,
        started_at: None,
        finished_at: None,
        stop: Stop::Hard,
        remove_at: None,
        provisioning_data: None,
        runtime_data: None,
        blocks: 0,
        runner_timestamp: 0,
        disconnected_at: None,
        inactivity_secs: None,
        registered: false,
    }
}

/// The next submission of a job.
pub fn again(job: &JobRow, id: JobId, deployment_num: u32, now: Timestamp) -> JobRow {
    JobRow {
        id,
        instance_id: None,
        submission_num: job.submission_num + 1,
        deployment_num,
        status: JobStatus::Submitted,
        termination_reason: None,
        termination_reason_message: None,
        exit_status: None,
        submitted_at: now,
        last_processed_at: now,
        started_at: None,
        finished_at: None,
        stop: Stop::Hard,
        remove_at: None,
        provisioning_data: None,
        runtime_data: None,
        blocks: 0,
        runner_timestamp: 0,
        disconnected_at: None,
        inactivity_secs: None,
        released: job.job_num == 0,
        registered: false,
        ..job.clone()
    }
}

//! From a specification to the first rows: runs and their jobs.

mod commands;

use std::collections::BTreeMap;
use std::sync::Arc;

use dstack_api::config::{EnvValue, GroupReplicas, ProfileParams, RunConfiguration};
use dstack_api::jobs::{AppSpec, JobSpec, JobStatus, Retry, UnixUser};
use dstack_api::runs::{RunSpec, RunStatus, ServiceSpec};
use dstack_backend_types::Requirements;
use dstack_backend_types::resources::ResourcesSpec;
use jiff::Timestamp;

use crate::changes::{Actor, Changes, Pipeline};
use crate::ids::{Ids, JobId, ProjectId, RunId, UserId};
use crate::model::{JobRow, RunRow, Stop};
use crate::{schedule, spec};

pub use commands::split;

/// What the server fills in where the user said nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDefaults {
    /// Image without development tools of CUDA.
    pub image: String,
    /// Image with them (`nvcc: true`).
    pub image_devel: String,
    /// Image with a Docker daemon inside (`docker: true`).
    pub image_docker: String,
    /// Python version of the default image's environment.
    pub python: String,
    /// Address of this server for runs with `dstack: true`.
    pub server_url: Option<String>,
}

impl Default for JobDefaults {
    fn default() -> Self {
        Self {
            image: "dstackai/base:0.16-base-ubuntu24.04".into(),
            image_devel: "dstackai/base:0.16-devel-ubuntu24.04".into(),
            image_docker: "dstackai/dind".into(),
            python: "3.12".into(),
            server_url: None,
        }
    }
}

/// What an image says about itself; looked up in its registry when the configuration leaves it open.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct ImageFacts {
    /// Its entry point followed by its command.
    pub command: Vec<String>,
    /// Its user.
    pub user: Option<String>,
}

/// Why no jobs can be made from a specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmitError {
    /// A variable has no value.
    #[error("environment variable {0} has no value")]
    Unset(String),
    /// The user is written wrongly.
    #[error("{0}")]
    User(String),
    /// The entry point has an open quote.
    #[error("entrypoint {0:?} has an open quote")]
    Entrypoint(String),
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
}

/// The rows of a new run: with a schedule the run waits, else its jobs are there at once.
///
/// # Errors
/// [`AdmitError`] when the specification cannot become jobs.
pub fn run(
    new: &NewRun,
    defaults: &JobDefaults,
    image: Option<&ImageFacts>,
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
        service: new.service.clone(),
        deleted: false,
    };
    // Made in any case, so that a specification that cannot become jobs is refused now, not when it fires.
    let jobs = jobs(&row, defaults, image, now, ids)?;
    let mut changes = Changes::default();
    changes.event(format!("run submitted ({})", row.status), &[&row]);
    if next.is_none() {
        if jobs.is_empty() {
            // A service that starts at zero.
            changes.hint(Pipeline::Runs, row.id);
        }
        for job in jobs {
            changes.event("job created", &[&job, &row]);
            changes.hint(Pipeline::JobsSubmitted, job.id);
            changes.new_jobs.push(job);
        }
    }
    for event in &mut changes.events {
        event.actor = Actor::User(new.user_id);
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
    image: Option<&ImageFacts>,
    now: Timestamp,
    ids: &mut Ids,
) -> Result<Vec<JobRow>, AdmitError> {
    let mut out = Vec::new();
    let mut replica_num = 0;
    for group in groups(&run.spec.configuration) {
        for _ in 0..group.replicas {
            for spec in replica(&run.spec, &run.name, &group, replica_num, defaults, image)? {
                out.push(row(run, spec, JobId(ids.uuid()), now));
            }
            replica_num += 1;
        }
    }
    Ok(out)
}

fn row(run: &RunRow, spec: JobSpec, id: JobId, now: Timestamp) -> JobRow {
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

/// Replicas that are made alike. A task or a dev environment is one replica of one group.
struct Group<'a> {
    name: String,
    replicas: u32,
    nodes: Vec<Node<'a>>,
    service: Option<&'a dstack_api::config::ReplicaGroup>,
}

/// A run of equal nodes within a replica.
struct Node<'a> {
    name: String,
    count: u32,
    commands: &'a [String],
    resources: &'a ResourcesSpec,
    ports: Vec<(u16, Option<u16>)>,
}

fn groups(configuration: &RunConfiguration) -> Vec<Group<'_>> {
    let base = configuration.base();
    let ports = |list: &[dstack_api::config::PortMapping]| {
        list.iter()
            .map(|port| (port.container_port, port.local_port))
            .collect()
    };
    let single = |commands, ports| Node {
        name: "0".into(),
        count: 1,
        commands,
        resources: &base.resources,
        ports,
    };
    let one = |nodes| {
        vec![Group {
            name: "0".into(),
            replicas: 1,
            nodes,
            service: None,
        }]
    };
    match configuration {
        RunConfiguration::Task(task) => match &task.groups {
            None => {
                let count = task.nodes.unwrap_or(1);
                one(vec![Node {
                    count,
                    ..single(&task.commands, ports(&task.ports))
                }])
            }
            Some(groups) => one(groups
                .iter()
                .enumerate()
                .map(|(at, group)| Node {
                    name: group.name.clone().unwrap_or_else(|| at.to_string()),
                    count: group.nodes,
                    commands: &group.commands,
                    resources: &group.resources,
                    ports: ports(&group.ports),
                })
                .collect()),
        },
        RunConfiguration::DevEnvironment(dev) => one(vec![single(&dev.init, ports(&dev.ports))]),
        RunConfiguration::Service(service) => match service.groups() {
            None => vec![Group {
                name: "0".into(),
                replicas: service
                    .replication
                    .replicas
                    .map_or(1, |range| range.min.unwrap_or(0)),
                nodes: vec![single(&service.commands, Vec::new())],
                service: None,
            }],
            Some(groups) => groups
                .iter()
                .enumerate()
                .map(|(at, group)| Group {
                    name: group.name.clone().unwrap_or_else(|| at.to_string()),
                    replicas: least(&group.replicas),
                    nodes: vec![Node {
                        resources: &group.resources,
                        ..single(&group.commands, Vec::new())
                    }],
                    service: Some(group),
                })
                .collect(),
        },
    }
}

fn least(replicas: &GroupReplicas) -> u32 {
    replicas.replicas.min.unwrap_or(0)
}

/// The specifications of one replica's jobs.
fn replica(
    spec: &RunSpec,
    run_name: &str,
    group: &Group<'_>,
    replica_num: u32,
    defaults: &JobDefaults,
    image: Option<&ImageFacts>,
) -> Result<Vec<JobSpec>, AdmitError> {
    let profile = spec::run_profile(spec);
    let total: u32 = group.nodes.iter().map(|node| node.count).sum();
    let base = job_base(spec, &profile, group, replica_num, total, defaults, image)?;
    let mut out = Vec::new();
    for (index, node) in group.nodes.iter().enumerate() {
        let mut job = base.clone();
        job.commands = commands::of_job(
            &spec.configuration,
            node.commands,
            group.service,
            defaults,
            image,
        )?;
        job.requirements.resources = node.resources.clone();
        job.node_group_index = u32::try_from(index).unwrap_or(0);
        job.node_group_name.clone_from(&node.name);
        job.app_specs = Some(apps(&node.ports));
        for place in 0..node.count {
            job.job_num = u32::try_from(out.len()).unwrap_or(0);
            job.job_name = format!("{run_name}-{}-{replica_num}", job.job_num);
            job.node_group_job_index = place;
            out.push(job.clone());
        }
    }
    Ok(out)
}

fn apps(ports: &[(u16, Option<u16>)]) -> Vec<AppSpec> {
    ports
        .iter()
        .enumerate()
        .map(|(at, (port, local))| AppSpec {
            port: *port,
            map_to_port: *local,
            app_name: format!("app_{at}"),
            url_path: None,
            url_query_params: None,
        })
        .collect()
}

/// What all jobs of a replica have in common.
fn job_base(
    spec: &RunSpec,
    profile: &ProfileParams,
    group: &Group<'_>,
    replica_num: u32,
    total: u32,
    defaults: &JobDefaults,
    image: Option<&ImageFacts>,
) -> Result<JobSpec, AdmitError> {
    let configuration = &spec.configuration;
    let base = configuration.base();
    let service = match configuration {
        RunConfiguration::Service(service) => Some(service),
        RunConfiguration::Task(_) | RunConfiguration::DevEnvironment(_) => None,
    };
    let mut profile = profile.clone();
    if let Some(own) = group.service {
        profile.spot_policy = own.spot_policy.or(profile.spot_policy);
        profile.reservation = own.reservation.clone().or(profile.reservation);
    }
    let docker = commands::docker(base, group.service);
    Ok(JobSpec {
        replica_num,
        job_num: 0,
        job_name: String::new(),
        jobs_per_replica: total,
        replica_group: group.name.clone(),
        app_specs: None,
        user: user(
            base.user
                .as_deref()
                .or_else(|| image.and_then(|facts| facts.user.as_deref())),
        )?,
        commands: Vec::new(),
        env: env(configuration, defaults)?,
        home_dir: Some(base.home_dir.clone()),
        image_name: commands::image(base, group.service, defaults),
        privileged: base.is_privileged()
            || docker
            || group.service.is_some_and(|g| g.privileged == Some(true)),
        single_branch: base.single_branch.or(Some(!matches!(
            configuration,
            RunConfiguration::DevEnvironment(_)
        ))),
        max_duration: profile.max_duration.and_then(|limit| limit.seconds()),
        stop_duration: match profile.stop_duration {
            None => Some(dstack_api::config::DEFAULT_STOP_SECONDS),
            Some(limit) => limit.seconds(),
        },
        utilization_policy: profile.utilization_policy.clone(),
        registry_auth: base.registry_auth.clone(),
        requirements: Requirements {
            resources: base.resources.clone(),
            max_price: profile.max_price,
            spot: profile.requires_spot(),
            reservation: profile.reservation.clone(),
            multinode: Some(total > 1),
            backend_options: crate::combine::options_of(&profile),
        },
        retry: profile.effective_retry().map(|retry| Retry {
            on_events: retry
                .on_events
                .iter()
                .filter_map(|event| event.as_str().parse().ok())
                .collect(),
            duration: retry.duration,
        }),
        volumes: Some(base.volumes.clone()),
        ssh_key: None,
        working_dir: base
            .working_dir
            .clone()
            .or_else(|| spec.working_dir.clone()),
        repo_data: spec.repo_data.clone(),
        repo_code_hash: spec.repo_code_hash.clone(),
        repo_dir: base
            .repos
            .first()
            .map(|repo| repo.path.clone())
            .or_else(|| spec.repo_dir.clone())
            .unwrap_or_else(|| "/workflow".into()),
        repo_exists_action: base
            .repos
            .first()
            .and_then(|repo| repo.if_exists.as_str().parse().ok()),
        file_archives: spec.file_archives.clone(),
        service_port: service.map(|service| service.port.container_port),
        probes: service
            .map(|service| commands::probes(service))
            .unwrap_or_default(),
        node_group_index: 0,
        node_group_name: "0".into(),
        node_group_job_index: 0,
    })
}

fn user(text: Option<&str>) -> Result<Option<UnixUser>, AdmitError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    UnixUser::parse(text)
        .map(Some)
        .map_err(|bad| AdmitError::User(bad.to_string()))
}

fn env(
    configuration: &RunConfiguration,
    defaults: &JobDefaults,
) -> Result<BTreeMap<String, String>, AdmitError> {
    let base = configuration.base();
    let mut env = BTreeMap::new();
    for (name, value) in &base.env.0 {
        match value {
            EnvValue::Text(text) => env.insert(name.clone(), text.clone()),
            EnvValue::FromCaller => return Err(AdmitError::Unset(name.clone())),
        };
    }
    if let (true, Some(url)) = (base.dstack, &defaults.server_url) {
        env.entry("DSTACK_SERVER_URL".to_owned())
            .or_insert_with(|| url.clone());
    }
    Ok(env)
}

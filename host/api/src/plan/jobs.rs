//! From a run to the jobs of a replica.

use std::collections::BTreeMap;

use dstack_backend_types::resources::ResourcesSpec;
use dstack_backend_types::{CpuArchitecture, Requirements};
use serde_json::Value;

use super::PlanError;
use super::bootstrap::Bootstrap;
use super::image::{DefaultImages, DefaultRegistry};
use super::interpolate::{Namespace, Namespaces, interpolate_all};
use super::shape::jobs_per_replica;
use crate::config::{
    BackendOptions, DEFAULT_STOP_SECONDS, Limit, MountPoint, Names, NodeGroup, PortMapping,
    Profile, PythonVersion, ReplicaGroup, RunConfiguration, ServiceConfiguration, ServiceModel,
    SpotPolicy,
};
use crate::jobs::{AppSpec, JobSpec, ProbeSpec, UnixUser};
use crate::runs::RunSpec;

/// Ports that the agents use; a job's own ones among them are not forwarded.
const AGENT_PORTS: std::ops::RangeInclusive<u16> = 10_000..=10_999;
/// Where a job with `dstack: true` finds the server.
const SERVER_IN_JOB: &str = "http+unix://%2Frun%2Fdstack%2Fserver.sock";
/// Where the repository goes if nobody says otherwise, and what relative working folders of older clients start at.
pub(super) const WORKFLOW: &str = "/workflow";
/// The run's name inside job names while it has none.
const DRY_RUN: &str = "dry-run";

/// What is known about images, by the names of [`super::image_names`].
pub type ImagesFacts = BTreeMap<String, ImageFacts>;

/// What is known about an image.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct ImageFacts {
    /// The architectures it is made for; empty if unknown.
    pub architectures: Vec<CpuArchitecture>,
    /// Its user.
    pub user: Option<String>,
    /// Its entrypoint.
    pub entrypoint: Vec<String>,
    /// Its command.
    pub command: Vec<String>,
}

/// What the server adds to a run.
pub struct JobSettings<'a> {
    /// The images used when none is named.
    pub images: &'a DefaultImages,
    /// The registry for images that name none.
    pub registry: Option<&'a DefaultRegistry>,
    /// The Python used when none is named.
    pub python: PythonVersion,
    /// The commands around a person's own ones.
    pub bootstrap: &'a dyn Bootstrap,
    /// What is known about images, by the names of [`super::image_names`].
    pub facts: &'a ImagesFacts,
}

impl std::fmt::Debug for JobSettings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobSettings")
            .field("images", self.images)
            .finish_non_exhaustive()
    }
}

/// The options of backends as they stand in requirements.
pub(super) fn options_json(options: &[BackendOptions]) -> Vec<Value> {
    options
        .iter()
        .filter_map(|options| serde_json::to_value(options).ok())
        .collect()
}

/// One group of replicas, or the whole service or run if it has none.
#[derive(Clone, Copy)]
pub(super) struct Plan<'a> {
    pub(super) spec: &'a RunSpec,
    profile: &'a Profile,
    pub(super) replica_group: Option<&'a ReplicaGroup>,
    pub(super) node_group: Option<&'a NodeGroup>,
}

/// The jobs of one replica, node by node.
///
/// `spec` is in effective form (see [`super::effective_run`]), `profile` is the merged one, and `group` is the position
/// of the replica group.
///
/// # Errors
/// What cannot be worked out: no command at all, an unset variable, a bad entrypoint, a reference in a volume's name.
pub fn replica_jobs(
    spec: &RunSpec,
    profile: &Profile,
    replica_num: u32,
    group: usize,
    settings: &JobSettings<'_>,
) -> Result<Vec<JobSpec>, PlanError> {
    jobs(spec, profile, (replica_num, group), u32::MAX, settings)
}

/// As [`replica_jobs`], but only the first job of each node group, however many there are.
pub(super) fn first_jobs(
    spec: &RunSpec,
    profile: &Profile,
    group: usize,
    settings: &JobSettings<'_>,
) -> Result<Vec<JobSpec>, PlanError> {
    jobs(spec, profile, (0, group), 1, settings)
}

/// Jobs of a replica, `most` of each node group.
fn jobs(
    spec: &RunSpec,
    profile: &Profile,
    (replica_num, group): (u32, usize),
    most: u32,
    settings: &JobSettings<'_>,
) -> Result<Vec<JobSpec>, PlanError> {
    let replica_group = match &spec.configuration {
        RunConfiguration::Service(service) => service.groups().and_then(|groups| groups.get(group)),
        RunConfiguration::Task(_) | RunConfiguration::DevEnvironment(_) => None,
    };
    let whole = Plan {
        spec,
        profile,
        replica_group,
        node_group: None,
    };
    let mut jobs = Vec::new();
    match &spec.configuration {
        RunConfiguration::Task(task) if task.groups.is_some() => {
            let mut first = 0u32;
            for (index, node_group) in (0u32..).zip(task.groups.iter().flatten()) {
                let plan = Plan {
                    node_group: Some(node_group),
                    ..whole
                };
                for node in 0..node_group.nodes.min(most) {
                    let mut job = plan.job(replica_num, first.saturating_add(node), settings)?;
                    job.node_group_index = index;
                    job.node_group_job_index = node;
                    job.node_group_name = node_group.name.clone().unwrap_or_default();
                    jobs.push(job);
                }
                first = first.saturating_add(node_group.nodes);
            }
        }
        run => {
            for job_num in 0..jobs_per_replica(run).min(most) {
                let mut job = whole.job(replica_num, job_num, settings)?;
                job.node_group_job_index = job_num;
                jobs.push(job);
            }
        }
    }
    Ok(jobs)
}

impl Plan<'_> {
    fn job(
        &self,
        replica_num: u32,
        job_num: u32,
        settings: &JobSettings<'_>,
    ) -> Result<JobSpec, PlanError> {
        let base = self.spec.configuration.base();
        let params = &self.profile.params;
        let image = self.image();
        let facts = image.as_ref().and_then(|image| settings.facts.get(image));
        let name = image
            .clone()
            .unwrap_or_else(|| self.default_image(settings));
        let (image_name, registry_auth) = match settings.registry {
            Some(registry) => registry.apply(name, base.registry_auth.clone()),
            None => (name, base.registry_auth.clone()),
        };
        let run_name = self.run_name();
        let repo = base.repos.first();
        let repo_dir = repo
            .map(|repo| repo.path.clone())
            .or_else(|| self.spec.repo_dir.clone());
        let stop = params
            .stop_duration
            .unwrap_or(Limit::Seconds(DEFAULT_STOP_SECONDS));
        let replica_group = self
            .replica_group
            .and_then(|group| group.name.clone())
            .unwrap_or_else(|| "0".to_owned());
        Ok(JobSpec {
            replica_num,
            job_num,
            job_name: format!("{run_name}-{job_num}-{replica_num}"),
            jobs_per_replica: jobs_per_replica(&self.spec.configuration),
            replica_group,
            app_specs: Some(self.apps()),
            user: self.user(facts)?,
            commands: self.command(facts, settings)?,
            env: self.env()?,
            home_dir: Some(base.home_dir.clone()),
            image_name,
            privileged: self.is_privileged(),
            single_branch: Some(base.single_branch.unwrap_or(!self.is_dev())),
            max_duration: params.max_duration.and_then(Limit::seconds),
            stop_duration: stop.seconds(),
            utilization_policy: params.utilization_policy.clone(),
            registry_auth,
            requirements: self.requirements(facts),
            retry: params.effective_retry(),
            volumes: Some(volumes(&base.volumes, job_num)?),
            ssh_key: None,
            working_dir: base.working_dir.as_deref().map(absolute_dir),
            repo_data: self.spec.repo_data.clone(),
            repo_code_hash: self.spec.repo_code_hash.clone(),
            repo_dir: repo_dir.unwrap_or_else(|| WORKFLOW.to_owned()),
            repo_exists_action: repo.map(|repo| repo.if_exists),
            file_archives: self.spec.file_archives.clone(),
            service_port: self.service().map(|service| service.port.container_port),
            probes: self
                .service()
                .map(|service| self.probes(service))
                .unwrap_or_default(),
            node_group_index: 0,
            node_group_name: "0".to_owned(),
            node_group_job_index: 0,
        })
    }

    pub(super) fn run_name(&self) -> &str {
        let named = self
            .spec
            .run_name
            .as_deref()
            .or_else(|| self.spec.configuration.name());
        named.unwrap_or(DRY_RUN)
    }

    fn is_dev(&self) -> bool {
        matches!(self.spec.configuration, RunConfiguration::DevEnvironment(_))
    }

    fn service(&self) -> Option<&ServiceConfiguration> {
        match &self.spec.configuration {
            RunConfiguration::Service(service) => Some(service),
            RunConfiguration::Task(_) | RunConfiguration::DevEnvironment(_) => None,
        }
    }

    pub(super) fn is_docker(&self) -> bool {
        self.spec.configuration.base().docker == Some(true)
            || self
                .replica_group
                .is_some_and(|group| group.docker == Some(true))
    }

    fn is_privileged(&self) -> bool {
        self.is_docker()
            || self.spec.configuration.base().privileged
            || self
                .replica_group
                .is_some_and(|group| group.privileged == Some(true))
    }

    /// The image the person names.
    pub(super) fn image(&self) -> Option<String> {
        if self.is_docker() {
            return None;
        }
        let own = self.replica_group.and_then(|group| group.image.clone());
        own.or_else(|| self.spec.configuration.base().image.clone())
    }

    fn default_image(&self, settings: &JobSettings<'_>) -> String {
        if self.is_docker() {
            return settings.images.docker.clone();
        }
        let nvcc = self.spec.configuration.base().nvcc == Some(true)
            || self
                .replica_group
                .is_some_and(|group| group.nvcc == Some(true));
        settings.images.plain(nvcc)
    }

    fn user(&self, facts: Option<&ImageFacts>) -> Result<Option<UnixUser>, PlanError> {
        match &self.spec.configuration.base().user {
            Some(user) => Ok(Some(UnixUser::parse(user)?)),
            None => {
                let user = facts
                    .and_then(|facts| facts.user.as_deref())
                    .filter(|user| !user.is_empty());
                user.map(UnixUser::parse)
                    .transpose()
                    .map_err(PlanError::from)
            }
        }
    }

    fn env(&self) -> Result<BTreeMap<String, String>, PlanError> {
        let base = self.spec.configuration.base();
        let mut env = base.env.texts()?;
        if base.dstack {
            env.entry("DSTACK_SERVER_URL".to_owned())
                .or_insert_with(|| SERVER_IN_JOB.to_owned());
        }
        Ok(env)
    }

    fn apps(&self) -> Vec<AppSpec> {
        let ports: &[PortMapping] = match (&self.spec.configuration, self.node_group) {
            (_, Some(group)) => &group.ports,
            (RunConfiguration::Task(task), None) => &task.ports,
            (RunConfiguration::DevEnvironment(dev), None) => &dev.ports,
            (RunConfiguration::Service(_), None) => &[],
        };
        let own = ports
            .iter()
            .filter(|port| !AGENT_PORTS.contains(&port.container_port));
        own.enumerate()
            .map(|(i, port)| AppSpec {
                port: port.container_port,
                map_to_port: port.local_port,
                app_name: format!("app_{i}"),
                url_path: None,
                url_query_params: None,
            })
            .collect()
    }

    fn resources(&self) -> &ResourcesSpec {
        let node = self.node_group.map(|group| &group.resources);
        let replica = self.replica_group.map(|group| &group.resources);
        node.or(replica)
            .unwrap_or(&self.spec.configuration.base().resources)
    }

    fn requirements(&self, facts: Option<&ImageFacts>) -> Requirements {
        let params = &self.profile.params;
        let mut resources = self.resources().clone();
        if resources.cpu.arch.is_none() {
            resources.cpu.arch = match (
                self.image(),
                facts.map(|facts| facts.architectures.as_slice()),
            ) {
                (None, _) => Some(CpuArchitecture::X86),
                (Some(_), Some([only])) => Some(*only),
                (Some(_), _) => None,
            };
        }
        let group = self.replica_group;
        let spot = match group
            .and_then(|group| group.spot_policy)
            .or(params.spot_policy)
        {
            Some(SpotPolicy::Auto) => None,
            Some(SpotPolicy::Spot) => Some(true),
            Some(SpotPolicy::OnDemand) | None => Some(false),
        };
        let reservation = group.and_then(|group| group.reservation.clone());
        Requirements {
            resources,
            max_price: params.max_price,
            spot,
            reservation: reservation.or_else(|| params.reservation.clone()),
            multinode: Some(jobs_per_replica(&self.spec.configuration) > 1),
            backend_options: params.backend_options.as_deref().map(options_json),
        }
    }

    /// The probes of a service; a model without any gets a default one, which a router answers for all groups.
    fn probes(&self, service: &ServiceConfiguration) -> Vec<ProbeSpec> {
        if let Some(probes) = &service.probes {
            return probes
                .iter()
                .map(crate::config::ProbeConfig::effective)
                .collect();
        }
        let routed = service
            .groups()
            .into_iter()
            .flatten()
            .any(|group| group.router.is_some());
        if routed
            && self
                .replica_group
                .is_none_or(|group| group.router.is_none())
        {
            return Vec::new();
        }
        match &service.model {
            Some(ServiceModel::Openai(model)) => {
                vec![ProbeSpec::of_model(&model.name, &model.prefix)]
            }
            Some(ServiceModel::Tgi(_)) | None => Vec::new(),
        }
    }
}

fn absolute_dir(dir: &str) -> String {
    if dir.starts_with(['/', '~']) {
        dir.to_owned()
    } else {
        format!("{WORKFLOW}/{dir}")
    }
}

/// The mounts of a job: names of volumes may have its number in them, and are always a list.
fn volumes(mounts: &[MountPoint], job_num: u32) -> Result<Vec<MountPoint>, PlanError> {
    let number = job_num.to_string();
    let names = ["job_num", "node_rank"];
    let values: Namespace = names
        .iter()
        .map(|name| ((*name).to_owned(), number.clone()))
        .collect();
    let namespaces = Namespaces::default().with("dstack", &values);
    let mount = |mount: &MountPoint| match mount {
        MountPoint::Volume { name, path } => {
            let names: Result<Vec<_>, _> = name
                .as_slice()
                .iter()
                .map(|name| interpolate_all(name, &namespaces))
                .collect();
            let name = Names::Many(names.map_err(|source| PlanError::Reference {
                place: "the name of a volume".to_owned(),
                source,
            })?);
            Ok(MountPoint::Volume {
                name,
                path: path.clone(),
            })
        }
        MountPoint::Instance { .. } => Ok(mount.clone()),
    };
    mounts.iter().map(mount).collect()
}

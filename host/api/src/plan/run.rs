//! What the server does with a run before it plans and submits: rules, defaults, merging.

use jiff::Timestamp;

use super::accelerators::{self, ImageSource};
use super::client::commands_mut;
use super::groups_ip::{self, Member};
use super::shape::{initial_job_count, jobs_per_replica, replica_bounds, replica_group_count};
use super::{PlanError, PlanLimits};
use crate::config::names::check_resource_name;
use crate::config::{
    CreationPolicy, EnvValue, MountPoint, Profile, ProfileRetry, Router, RunConfiguration,
    ServiceConfiguration,
};
use crate::runs::RunSpec;

/// Lets the run's own parameters replace those of its profile.
pub fn merged_profile(run: &RunConfiguration, profile: Option<&Profile>) -> Profile {
    let mut merged = profile
        .cloned()
        .unwrap_or_else(|| Profile::empty("default"));
    merged.params.merge(run.profile());
    merged
        .params
        .creation_policy
        .get_or_insert(CreationPolicy::ReuseOrCreate);
    merged
}

/// A run with its defaults filled in, and the profile that goes with it.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectiveRun {
    /// The run.
    pub spec: RunSpec,
    /// The profile with the run's own parameters.
    pub profile: Profile,
}

/// Checks a run by all rules that need nothing stored, and fills in what is inferred.
///
/// # Errors
/// The first rule that is broken.
pub fn effective_run(mut spec: RunSpec, limits: &PlanLimits) -> Result<EffectiveRun, PlanError> {
    let profile = merged_profile(&spec.configuration, spec.profile.as_ref());
    if let Some(name) = spec
        .run_name
        .as_deref()
        .or_else(|| spec.configuration.name())
    {
        check_resource_name("run", name)?;
    }
    if let Some(ProfileRetry::Detail {
        duration: Some(seconds),
        ..
    }) = &profile.params.retry
        && *seconds < 0
    {
        return Err(PlanError::NegativeRetry(*seconds));
    }
    check_size(&spec.configuration, limits)?;
    check_group_references(&mut spec.configuration)?;
    check_mounts(&spec.configuration)?;
    if spec.repo_id.is_some() != spec.repo_data.is_some() {
        return Err(PlanError::HalfRepo);
    }
    check_profile(&profile, limits)?;
    if let RunConfiguration::Service(service) = &spec.configuration {
        check_service(service, &profile, limits)?;
    }
    fill_defaults(&mut spec.configuration);
    check_accelerators(&spec.configuration)?;
    Ok(EffectiveRun { spec, profile })
}

/// Each job becomes a row and a machine, so that a slip of the finger in `nodes` must not get that far.
fn check_size(run: &RunConfiguration, limits: &PlanLimits) -> Result<(), PlanError> {
    let jobs = initial_job_count(run).max(jobs_per_replica(run));
    if jobs > limits.jobs {
        let max = limits.jobs;
        return Err(PlanError::TooManyJobs { jobs, max });
    }
    Ok(())
}

fn check_group_references(run: &mut RunConfiguration) -> Result<(), PlanError> {
    for (name, value) in &run.base().env.0 {
        if let EnvValue::Text(text) = value
            && groups_ip::has_references(text)
        {
            return Err(PlanError::GroupReferenceInEnv(name.clone()));
        }
    }
    let (member, counts) = match &*run {
        RunConfiguration::Task(task) => {
            let groups = task.groups.iter().flatten().map(|group| group.nodes);
            let counts: Vec<_> = match &task.groups {
                Some(_) => groups.collect(),
                None => vec![task.nodes.unwrap_or(1)],
            };
            (Member::Nodes, counts)
        }
        run => (
            Member::Replicas,
            replica_bounds(run)
                .into_iter()
                .map(|(min, _)| min)
                .collect(),
        ),
    };
    let counts: Vec<_> = counts.into_iter().map(|count| count as usize).collect();
    for command in commands_mut(run).into_iter().flatten() {
        groups_ip::check(command, member, &counts)?;
    }
    Ok(())
}

/// Parsing has made the paths clean, but peers' data does not always come through it.
fn check_mounts(run: &RunConfiguration) -> Result<(), PlanError> {
    let path = run.base().volumes.iter().map(MountPoint::path);
    let bad = |path: &&str| {
        !path.starts_with('/') || path.contains('\0') || (path.ends_with('/') && *path != "/")
    };
    match path.into_iter().find(bad) {
        Some(path) => Err(PlanError::MountPath(path.to_owned())),
        None => Ok(()),
    }
}

fn check_profile(profile: &Profile, limits: &PlanLimits) -> Result<(), PlanError> {
    if let Some(policy) = &profile.params.utilization_policy
        && policy.time_window > limits.metrics_seconds
    {
        let (window, kept) = (policy.time_window, limits.metrics_seconds);
        return Err(PlanError::UtilizationWindow { window, kept });
    }
    for cron in profile
        .params
        .schedule
        .iter()
        .flat_map(|schedule| &schedule.cron)
    {
        // A time that never comes does not come after any other moment either.
        if cron.next(Timestamp::UNIX_EPOCH).is_none() {
            return Err(PlanError::CronNever(cron.as_str().to_owned()));
        }
    }
    Ok(())
}

fn check_service(
    service: &ServiceConfiguration,
    profile: &Profile,
    limits: &PlanLimits,
) -> Result<(), PlanError> {
    let run = RunConfiguration::Service(Box::new(service.clone()));
    if profile.params.schedule.is_some() && replica_bounds(&run).iter().all(|(min, _)| *min == 0) {
        return Err(PlanError::ScheduledZero);
    }
    let dynamo = service.groups().into_iter().flatten().any(|group| {
        group
            .router
            .is_some_and(|config| config.router == Router::Dynamo)
    });
    if dynamo && profile.params.retry.is_some() {
        return Err(PlanError::DynamoRetry);
    }
    let probes = service.probes.as_deref().unwrap_or_default();
    if probes.len() > limits.probes {
        return Err(PlanError::TooManyProbes {
            count: probes.len(),
            max: limits.probes,
        });
    }
    let timeouts = probes.iter().filter_map(|probe| probe.timeout);
    match timeouts
        .into_iter()
        .find(|timeout| *timeout > limits.probe_timeout_seconds)
    {
        Some(timeout) => Err(PlanError::ProbeTimeout {
            timeout,
            max: limits.probe_timeout_seconds,
        }),
        None => Ok(()),
    }
}

/// Where the container's image comes from, for each replica group.
fn sources(run: &RunConfiguration) -> Vec<ImageSource> {
    let base = run.base();
    let own = ImageSource {
        image: base.image.is_some(),
        docker: base.docker == Some(true),
    };
    match run {
        RunConfiguration::Service(service) if service.groups().is_some() => {
            let groups = service.groups().into_iter().flatten();
            let group = groups.map(|group| ImageSource {
                image: own.image || group.image.is_some(),
                docker: own.docker || group.docker == Some(true),
            });
            group.collect()
        }
        run => vec![own; replica_group_count(run)],
    }
}

fn fill_defaults(run: &mut RunConfiguration) {
    let sources = sources(run);
    let base = run.base();
    let own = ImageSource {
        image: base.image.is_some(),
        docker: base.docker == Some(true),
    };
    let base = run.base_mut();
    base.priority.get_or_insert(0);
    base.resources.gpu = Some(accelerators::infer_vendor(base.resources.gpu.as_ref(), own));
    match run {
        RunConfiguration::Task(task) => {
            if task.groups.is_none() {
                task.nodes.get_or_insert(1);
            }
            for group in task.groups.iter_mut().flatten() {
                let gpu = accelerators::infer_vendor(group.resources.gpu.as_ref(), own);
                group.resources.gpu = Some(gpu);
            }
        }
        RunConfiguration::Service(service) => {
            for (group, source) in service.replication.groups.iter_mut().flatten().zip(sources) {
                let gpu = accelerators::infer_vendor(group.resources.gpu.as_ref(), source);
                group.resources.gpu = Some(gpu);
            }
        }
        RunConfiguration::DevEnvironment(_) => {}
    }
}

fn check_accelerators(run: &RunConfiguration) -> Result<(), PlanError> {
    let sources = sources(run);
    match run {
        RunConfiguration::Task(task) if task.groups.is_some() => {
            let source = sources.first().copied().unwrap_or(ImageSource {
                image: false,
                docker: false,
            });
            let mut groups = task.groups.iter().flatten();
            groups.try_for_each(|group| accelerators::check(&group.resources, source))
        }
        RunConfiguration::Service(service) if service.groups().is_some() => {
            let mut groups = service.groups().into_iter().flatten().zip(sources);
            groups.try_for_each(|(group, source)| accelerators::check(&group.resources, source))
        }
        run => {
            let mut sources = sources.into_iter();
            sources.try_for_each(|source| accelerators::check(&run.base().resources, source))
        }
    }
}

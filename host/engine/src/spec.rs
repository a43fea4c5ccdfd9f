//! What decisions need to know of specifications, in one place.

use std::borrow::Cow;

use dstack_api::config::{
    Blocks, CreationPolicy, Cron, Placement, ProfileParams, RunConfiguration, ScalingSpec,
    SpotPolicy, StopCriteria,
};
use dstack_api::fleets::FleetSpec;
use dstack_api::plan;
use dstack_api::runs::RunSpec;
use dstack_backend_types::{Requirements, ResourcesSpec};

use crate::offers::Sharing;

pub use dstack_api::config::StartupOrder;

/// The run's profile with what the configuration sets on top.
pub fn run_profile(spec: &RunSpec) -> Cow<'_, ProfileParams> {
    let over = spec.configuration.profile();
    match &spec.profile {
        None => Cow::Borrowed(over),
        Some(profile) => {
            let mut merged = profile.params.clone();
            merged.merge(over);
            Cow::Owned(merged)
        }
    }
}

/// The parameter of the configuration, else of the profile, without merging all the others.
fn param<T>(spec: &RunSpec, pick: impl Fn(&ProfileParams) -> Option<T>) -> Option<T> {
    pick(spec.configuration.profile())
        .or_else(|| spec.profile.as_ref().and_then(|p| pick(&p.params)))
}

/// How many machines a fleet must be able to give before the run is placed in it.
pub fn required_nodes(spec: &RunSpec) -> u32 {
    plan::initial_job_count(&spec.configuration).max(1)
}

/// Only existing machines may be used: by policy, or because instances are named.
pub fn reuse_only(spec: &RunSpec) -> bool {
    param(spec, |p| p.creation_policy) == Some(CreationPolicy::Reuse)
        || param(spec, |p| p.instances.as_ref().map(|_| ())).is_some()
}

/// How many spot offers are tried before regular ones, where both are allowed.
pub fn spot_tries(spec: &RunSpec) -> Option<u32> {
    let both = param(spec, |p| p.spot_policy) == Some(SpotPolicy::Auto);
    param(spec, |p| p.spot_tries).filter(|_| both)
}

/// In which order the jobs of a replica start.
pub fn startup_order(spec: &RunSpec) -> StartupOrder {
    param(spec, |p| p.startup_order).unwrap_or(StartupOrder::Any)
}

/// The run is done when its job 0 is.
pub fn master_done(spec: &RunSpec) -> bool {
    param(spec, |p| p.stop_criteria) == Some(StopCriteria::MasterDone)
}

/// The schedule, if the run has one.
pub fn schedule(spec: &RunSpec) -> Option<Vec<Cron>> {
    param(spec, |p| {
        p.schedule.as_ref().map(|schedule| schedule.cron.clone())
    })
}

/// Whether the run is a service.
pub fn is_service(spec: &RunSpec) -> bool {
    matches!(spec.configuration, RunConfiguration::Service(_))
}

/// Whether the requests of a service come by a gateway, not by the server's own proxy.
pub fn is_at_gateway(run: &crate::model::RunRow) -> bool {
    run.service
        .as_ref()
        .is_some_and(|service| !service.url.starts_with('/'))
}

/// Whether the replicas of this group get requests: with a router, only the router does.
pub fn takes_requests(spec: &RunSpec, group: &str) -> bool {
    let RunConfiguration::Service(service) = &spec.configuration else {
        return false;
    };
    let router = service
        .groups()
        .into_iter()
        .flatten()
        .find(|group| group.router.is_some());
    router.is_none_or(|router| router.name.as_deref() == Some(group))
}

/// A group of replicas.
#[derive(Debug, Clone, PartialEq)]
pub struct Group<'a> {
    /// Its name.
    pub name: String,
    /// Least and most replicas.
    pub bounds: (u32, u32),
    /// How their number follows the load.
    pub scaling: Option<&'a ScalingSpec>,
}

/// The groups of replicas in the order of the configuration; runs without groups have one.
pub fn groups(spec: &RunSpec) -> Vec<Group<'_>> {
    let bounds = plan::replica_bounds(&spec.configuration);
    let names = plan::replica_group_names(&spec.configuration);
    let scaling = |index: usize| match &spec.configuration {
        RunConfiguration::Service(service) => match service.groups() {
            Some(groups) => groups.get(index)?.scaling.as_ref(),
            None => service.scaling.as_ref(),
        },
        RunConfiguration::Task(_) | RunConfiguration::DevEnvironment(_) => None,
    };
    names
        .into_iter()
        .zip(bounds)
        .enumerate()
        .map(|(index, (name, bounds))| Group {
            name,
            bounds,
            scaling: scaling(index),
        })
        .collect()
}

/// Seconds without a connection after which a dev environment ends.
pub fn inactivity_limit(spec: &RunSpec) -> Option<i64> {
    match &spec.configuration {
        RunConfiguration::DevEnvironment(dev) => dev.inactivity_duration.filter(|limit| *limit > 0),
        RunConfiguration::Task(_) | RunConfiguration::Service(_) => None,
    }
}

/// Whether the run may be placed in this fleet of the project (or an imported one).
pub fn fleet_is_named(
    profile: &ProfileParams,
    fleet: &str,
    fleet_project: &str,
    own_project: &str,
) -> bool {
    profile.fleets.as_ref().is_none_or(|list| {
        list.iter().any(|wanted| {
            wanted.name == fleet
                && wanted.project.as_deref().unwrap_or(own_project) == fleet_project
        })
    })
}

/// The fleet's profile with what the configuration sets on top.
pub fn fleet_profile(spec: &FleetSpec) -> ProfileParams {
    plan::merged_fleet_profile(&spec.configuration, &spec.profile).params
}

/// What the fleet itself asks of its machines; of own hosts, nothing.
pub fn fleet_requirements(spec: &FleetSpec) -> Requirements {
    let profile = plan::merged_fleet_profile(&spec.configuration, &spec.profile);
    plan::fleet_requirements(&spec.configuration, &profile)
        .unwrap_or_else(|| Requirements::of(ResourcesSpec::unconstrained()))
}

/// Seconds a machine of the fleet may idle; negative keeps it, `None` is the default.
pub fn fleet_idle(spec: &FleetSpec) -> Option<i64> {
    spec.configuration
        .idle_duration
        .or(spec.profile.params.idle_duration)
}

/// Its machines are hosts that the user brought.
pub fn is_ssh(spec: &FleetSpec) -> bool {
    spec.configuration.ssh_config.is_some()
}

/// Its machines stand together and reach each other.
pub fn is_cluster(spec: &FleetSpec) -> bool {
    spec.configuration.placement == Some(Placement::Cluster)
}

/// How its machines are shared.
pub fn sharing(spec: &FleetSpec) -> Sharing {
    match spec.configuration.blocks {
        Blocks::Auto => Sharing::AUTO,
        Blocks::Count(count) => Sharing::Count(count),
    }
}

/// The least number of machines; 0 for SSH fleets.
pub fn nodes_min(spec: &FleetSpec) -> u32 {
    spec.configuration.nodes.map_or(0, |nodes| nodes.min)
}

/// The number of machines at the start.
pub fn nodes_target(spec: &FleetSpec) -> u32 {
    spec.configuration.nodes.map_or(0, |nodes| nodes.target)
}

/// The greatest number of machines; `None` is no limit.
pub fn nodes_max(spec: &FleetSpec) -> Option<u32> {
    spec.configuration.nodes.and_then(|nodes| nodes.max)
}

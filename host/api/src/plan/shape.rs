//! How many jobs a run has, and which images they need.

use dstack_backend_types::RegistryAuth;

use crate::config::{ReplicaGroup, RunConfiguration};

/// How many replica groups a run has; runs without groups have one.
pub fn replica_group_count(run: &RunConfiguration) -> usize {
    match run {
        RunConfiguration::Service(service) => service.groups().map_or(1, <[_]>::len),
        RunConfiguration::Task(_) | RunConfiguration::DevEnvironment(_) => 1,
    }
}

/// The names of the replica groups in their order; `0` without groups.
pub fn replica_group_names(run: &RunConfiguration) -> Vec<String> {
    match run {
        RunConfiguration::Service(service) if service.groups().is_some() => service
            .groups()
            .into_iter()
            .flatten()
            .map(|group| group.name.clone().unwrap_or_default())
            .collect(),
        _ => vec!["0".to_owned()],
    }
}

/// Least and most replicas of each group; tasks and dev environments have exactly one replica.
pub fn replica_bounds(run: &RunConfiguration) -> Vec<(u32, u32)> {
    let RunConfiguration::Service(service) = run else {
        return vec![(1, 1)];
    };
    match service.groups() {
        Some(groups) => groups
            .iter()
            .map(|group| (group.min(), group.max()))
            .collect(),
        None => {
            let range = service.replication.replicas;
            let min = range.and_then(|range| range.min).unwrap_or(1);
            vec![(min, range.and_then(|range| range.max).unwrap_or(min))]
        }
    }
}

/// How many jobs a replica has.
pub fn jobs_per_replica(run: &RunConfiguration) -> u32 {
    match run {
        RunConfiguration::Task(task) => match &task.groups {
            Some(groups) => groups
                .iter()
                .fold(0, |sum, group| sum.saturating_add(group.nodes)),
            None => task.nodes.unwrap_or(1),
        },
        RunConfiguration::Service(_) | RunConfiguration::DevEnvironment(_) => 1,
    }
}

/// How many jobs a run starts with; as many as can be counted if there are more.
pub fn initial_job_count(run: &RunConfiguration) -> u32 {
    let replicas = replica_bounds(run)
        .iter()
        .fold(0, |sum: u32, (min, _)| sum.saturating_add(*min));
    replicas.saturating_mul(jobs_per_replica(run))
}

/// The image of each replica group and the login for it, as written; `None` where a default image is used.
pub fn image_names(run: &RunConfiguration) -> Vec<Option<(String, Option<RegistryAuth>)>> {
    let base = run.base();
    let own = |group: Option<&ReplicaGroup>| {
        let docker = base.docker == Some(true) || group.is_some_and(|g| g.docker == Some(true));
        let image = group
            .and_then(|g| g.image.clone())
            .or_else(|| base.image.clone());
        image
            .filter(|_| !docker)
            .map(|image| (image, base.registry_auth.clone()))
    };
    match run {
        RunConfiguration::Service(service) if service.groups().is_some() => service
            .groups()
            .into_iter()
            .flatten()
            .map(|group| own(Some(group)))
            .collect(),
        _ => vec![own(None)],
    }
}

/// What has to be known about an image before jobs can be made of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageNeed {
    /// The image as written.
    pub image: String,
    /// The login as written.
    pub auth: Option<RegistryAuth>,
    /// Without it there is no command to start.
    pub is_command_open: bool,
}

/// The images to look up: where the run leaves the user, the architecture or the command to them.
pub fn image_needs(run: &RunConfiguration) -> Vec<ImageNeed> {
    let base = run.base();
    let groups: Vec<Option<&ReplicaGroup>> = match run {
        RunConfiguration::Service(service) if service.groups().is_some() => {
            service.groups().into_iter().flatten().map(Some).collect()
        }
        _ => vec![None],
    };
    let mut needs: Vec<ImageNeed> = Vec::new();
    for (group, named) in groups.into_iter().zip(image_names(run)) {
        let Some((image, auth)) = named else { continue };
        let is_command_open = base.entrypoint.is_none() && has_no_commands(run, group);
        let resources = group.map_or(&base.resources, |group| &group.resources);
        let node_archs_known = match run {
            RunConfiguration::Task(task) => task.groups.as_ref().map(|groups| {
                groups
                    .iter()
                    .all(|group| group.resources.cpu.arch.is_some())
            }),
            RunConfiguration::Service(_) | RunConfiguration::DevEnvironment(_) => None,
        };
        let is_arch_known = node_archs_known.unwrap_or(resources.cpu.arch.is_some());
        if !is_command_open && base.user.is_some() && is_arch_known {
            continue;
        }
        match needs
            .iter_mut()
            .find(|need| need.image == image && need.auth == auth)
        {
            Some(known) => known.is_command_open |= is_command_open,
            None => needs.push(ImageNeed {
                image,
                auth,
                is_command_open,
            }),
        }
    }
    needs
}

fn has_no_commands(run: &RunConfiguration, group: Option<&ReplicaGroup>) -> bool {
    match (run, group) {
        (_, Some(group)) => group.commands.is_empty(),
        (RunConfiguration::Task(task), None) => match &task.groups {
            Some(groups) => groups.iter().any(|group| group.commands.is_empty()),
            None => task.commands.is_empty(),
        },
        (RunConfiguration::Service(service), None) => service.commands.is_empty(),
        (RunConfiguration::DevEnvironment(_), None) => false,
    }
}

//! What the client does with a run before it asks for a plan: variables, arguments, ports.

use std::collections::BTreeSet;

use super::PlanError;
use super::interpolate::{BadReference, Namespace, Namespaces, interpolate_all};
use super::shell;
use crate::config::{
    Configuration, FleetConfiguration, PortMapping, ProbeConfig, RunConfiguration,
};

/// Namespaces that only the server can fill.
const LATER: &[&str] = &["secrets", "groups"];

/// Makes a run ready for the server: resolves bare variables by `lookup`, puts `args` and variables where they are
/// referred to, checks the working folder and the ports.
///
/// # Errors
/// The first thing that is wrong.
pub fn prepare_run(
    run: &mut RunConfiguration,
    args: &[String],
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<(), PlanError> {
    run.base_mut().env.resolve(lookup)?;
    if let Some(dir) = run
        .base()
        .working_dir
        .as_deref()
        .filter(|dir| !dir.starts_with('/'))
    {
        return Err(PlanError::RelativeWorkingDir(dir.to_owned()));
    }
    check_ports(run)?;
    put_args(run, args)?;
    put_env(run)
}

/// Makes a fleet ready for the server.
///
/// # Errors
/// Variables are for SSH fleets only, and must have values.
pub fn prepare_fleet(
    fleet: &mut FleetConfiguration,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<(), PlanError> {
    if fleet.ssh_config.is_none() && !fleet.env.0.is_empty() {
        return Err(PlanError::CloudFleetEnv);
    }
    Ok(fleet.env.resolve(lookup)?)
}

/// [`prepare_run`] or [`prepare_fleet`]; other configurations stay as they are.
///
/// # Errors
/// As those.
pub fn prepare(
    configuration: &mut Configuration,
    args: &[String],
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<(), PlanError> {
    match configuration {
        Configuration::Run(run) => prepare_run(run, args, lookup),
        Configuration::Fleet(fleet) => prepare_fleet(fleet, lookup),
        Configuration::Gateway(_) | Configuration::Volume(_) | Configuration::Preset(_) => Ok(()),
    }
}

/// Every list of commands that a person wrote, but not those of dev environments, which have no arguments.
pub(super) fn commands_mut(run: &mut RunConfiguration) -> Vec<&mut Vec<String>> {
    match run {
        RunConfiguration::Task(task) => {
            let groups = task
                .groups
                .iter_mut()
                .flatten()
                .map(|group| &mut group.commands);
            std::iter::once(&mut task.commands).chain(groups).collect()
        }
        RunConfiguration::Service(service) => {
            let groups = service.replication.groups.iter_mut().flatten();
            let groups = groups.map(|group| &mut group.commands);
            std::iter::once(&mut service.commands)
                .chain(groups)
                .collect()
        }
        RunConfiguration::DevEnvironment(_) => Vec::new(),
    }
}

fn put_args(run: &mut RunConfiguration, args: &[String]) -> Result<(), PlanError> {
    let values = Namespace::from([("args".to_owned(), shell::join(args))]);
    let names = Namespaces::leaving(LATER).with("run", &values);
    for commands in commands_mut(run) {
        for command in commands {
            *command = put(command, &names, || "a command".to_owned())?;
        }
    }
    Ok(())
}

fn put(
    text: &str,
    names: &Namespaces<'_>,
    place: impl FnOnce() -> String,
) -> Result<String, PlanError> {
    interpolate_all(text, names).map_err(|source: BadReference| PlanError::Reference {
        place: place(),
        source,
    })
}

fn put_env(run: &mut RunConfiguration) -> Result<(), PlanError> {
    let env: Namespace = run.base().env.texts()?;
    let names = Namespaces::leaving(&["secrets"]).with("env", &env);
    if let Some(auth) = &mut run.base_mut().registry_auth {
        auth.username = put(&auth.username, &names, || "`registry_auth`".to_owned())?;
        auth.password = put(&auth.password, &names, || "`registry_auth`".to_owned())?;
    }
    if let RunConfiguration::Service(service) = run {
        for (i, probe) in service.probes.iter_mut().flatten().enumerate() {
            put_env_in_probe(probe, i, &names)?;
        }
    }
    Ok(())
}

fn put_env_in_probe(
    probe: &mut ProbeConfig,
    index: usize,
    names: &Namespaces<'_>,
) -> Result<(), PlanError> {
    let place = || format!("probe {index}");
    for text in probe.url.iter_mut().chain(&mut probe.body) {
        *text = put(text, names, place)?;
    }
    for header in &mut probe.headers {
        header.value = put(&header.value, names, place)?;
    }
    Ok(())
}

fn ports_of(run: &RunConfiguration) -> &[PortMapping] {
    match run {
        RunConfiguration::Task(task) => &task.ports,
        RunConfiguration::DevEnvironment(dev) => &dev.ports,
        RunConfiguration::Service(_) => &[],
    }
}

fn check_ports(run: &RunConfiguration) -> Result<(), PlanError> {
    check_unique(ports_of(run))?;
    if let RunConfiguration::Task(task) = run {
        // Groups are different machines, so only local ports could collide, and those of one group are enough to look at.
        for group in task.groups.iter().flatten() {
            check_unique(&group.ports)?;
        }
    }
    Ok(())
}

fn check_unique(ports: &[PortMapping]) -> Result<(), PlanError> {
    let (mut local, mut container) = (BTreeSet::new(), BTreeSet::new());
    for port in ports {
        if !container.insert(port.container_port) {
            return Err(PlanError::PortTwice(port.container_port));
        }
        if let Some(port) = port.local_port.filter(|port| !local.insert(*port)) {
            return Err(PlanError::PortTwice(port));
        }
    }
    Ok(())
}

/// Puts ports given on the command line over those of the file: one for the same container port replaces the file's.
pub fn merge_ports(file: &[PortMapping], options: &[PortMapping]) -> Vec<PortMapping> {
    let kept = file.iter().filter(|port| {
        !options
            .iter()
            .any(|option| option.container_port == port.container_port)
    });
    kept.chain(options).copied().collect()
}

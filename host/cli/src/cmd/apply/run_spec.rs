//! From a file and options to what the server is asked for.

use std::path::{Path, PathBuf};

use dstack_api::config::{EnvValue, PortMapping, RunConfiguration};
use dstack_api::runs::RunSpec;

use super::interpolate::{interpolate, quote};
use super::{Args, archives, profiles};
use crate::cx::{Cx, Here};
use crate::error::CliError;
use crate::repo::{self, Code};
use crate::ssh::public_half;

/// A run's configuration with where it came from.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) configuration: RunConfiguration,
    pub(crate) path: String,
    pub(crate) folder: PathBuf,
}

/// Everything about a run that is decided on this side. Makes the repository and the archives known to the server;
/// changes of the repository are uploaded by [`Code::upload`] once the person agrees.
pub(crate) fn make(
    args: &Args,
    source: Source,
    here: &Here,
    cx: &mut Cx<'_>,
) -> Result<(RunSpec, Code), CliError> {
    let Source {
        mut configuration,
        path,
        folder,
    } = source;
    args.resources
        .apply(&mut configuration.base_mut().resources);
    args.profile.apply(configuration.profile_mut());
    let base = configuration.base_mut();
    if args.name.is_some() {
        base.name.clone_from(&args.name);
    }
    super::check_name("run", base.name.as_deref())?;
    args.fill_env(&mut base.env, cx)?;
    check(&configuration, &path)?;
    ports(&mut configuration, &args.port)?;
    fill_references(&mut configuration, &args.run_args)?;
    super::ide::detect(&mut configuration, cx)?;
    let profile = profiles::choose(&args.profile, &folder, cx)?;
    super::own_fields::check(
        &serde_json::to_value(&configuration).unwrap_or_default(),
        here,
    )?;
    let files = &mut configuration.base_mut().files;
    let file_archives = archives::upload(files, &folder, here, cx)?;
    let repos = &mut configuration.base_mut().repos;
    let code = repo::prepare(repos, &args.repo, &folder, here, cx)?;
    let spec = RunSpec {
        run_name: configuration.name().map(str::to_owned),
        repo_id: Some(code.repo_id.clone()),
        repo_data: Some(code.data.clone()),
        repo_code_hash: code.changes.as_ref().map(|changes| changes.hash.clone()),
        repo_dir: None,
        file_archives,
        working_dir: None,
        configuration_path: Some(path),
        configuration,
        profile: Some(profile),
        ssh_key_pub: match &args.ssh_identity {
            Some(key) => Some(public_half(key, cx)?),
            None => None,
        },
    };
    Ok((spec, code))
}

fn check(configuration: &RunConfiguration, path: &str) -> Result<(), CliError> {
    let base = configuration.base();
    if let Some(folder) = base
        .working_dir
        .as_deref()
        .filter(|folder| !Path::new(folder).is_absolute())
    {
        return Err(CliError::message(format!(
            "{path}: working_dir: \"{folder}\" must be an absolute path in the container"
        )));
    }
    Ok(())
}

/// Options replace entries with the same port in the container; no port may be there twice.
fn ports(configuration: &mut RunConfiguration, given: &[PortMapping]) -> Result<(), CliError> {
    let ports = match configuration {
        RunConfiguration::Task(task) => &mut task.ports,
        RunConfiguration::DevEnvironment(dev) => &mut dev.ports,
        RunConfiguration::Service(_) => return Ok(()),
    };
    ports.retain(|port| {
        !given
            .iter()
            .any(|new| new.container_port == port.container_port)
    });
    ports.extend_from_slice(given);
    for (at, port) in ports.iter().enumerate() {
        let others = ports.iter().skip(at + 1);
        if others
            .clone()
            .any(|other| other.container_port == port.container_port)
        {
            return Err(CliError::message(format!(
                "the port {} is given twice",
                port.container_port
            )));
        }
        let is_same =
            |other: &PortMapping| port.local_port.is_some() && other.local_port == port.local_port;
        if let Some(local) = port.local_port.filter(|_| others.clone().any(is_same)) {
            return Err(CliError::message(format!(
                "the local port {local} is given twice; write `*:{}` for any free one",
                port.container_port
            )));
        }
    }
    Ok(())
}

/// `${{ run.args }}` in commands, `${{ env.NAME }}` in the registry's login and in probes.
fn fill_references(configuration: &mut RunConfiguration, args: &[String]) -> Result<(), CliError> {
    let env = configuration.base().env.clone();
    let known = |namespace: &str, key: &str| match env.0.get(key) {
        Some(EnvValue::Text(text)) if namespace == "env" => Some(text.clone()),
        _ => None,
    };
    if let Some(login) = &mut configuration.base_mut().registry_auth {
        login.username = interpolate(&login.username, known)?;
        login.password = interpolate(&login.password, known)?;
    }
    let args = quote(args);
    let arguments =
        |namespace: &str, key: &str| (namespace == "run" && key == "args").then(|| args.clone());
    let fill = |commands: &mut Vec<String>| -> Result<(), CliError> {
        for command in commands {
            *command = interpolate(command, arguments)?;
        }
        Ok(())
    };
    match configuration {
        RunConfiguration::Task(task) => {
            fill(&mut task.commands)?;
            for group in task.groups.iter_mut().flatten() {
                fill(&mut group.commands)?;
            }
        }
        RunConfiguration::Service(service) => {
            fill(&mut service.commands)?;
            for group in service.replication.groups.iter_mut().flatten() {
                fill(&mut group.commands)?;
            }
            for probe in service.probes.iter_mut().flatten() {
                let headers = probe.headers.iter_mut().map(|header| &mut header.value);
                for text in probe.url.iter_mut().chain(&mut probe.body).chain(headers) {
                    *text = interpolate(text, known)?;
                }
            }
        }
        RunConfiguration::DevEnvironment(_) => {}
    }
    Ok(())
}

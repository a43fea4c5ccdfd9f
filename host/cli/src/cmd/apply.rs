//! `dstack apply`: makes a configuration real.

mod archives;
mod document;
mod explain;
mod fleet;
mod host_keys;
mod ide;
mod interpolate;
mod other;
mod own_fields;
mod profiles;
mod run;
mod run_spec;

pub(crate) use profiles::choose as choose_profile;

use std::path::PathBuf;

use dstack_api::config::{
    Configuration, Env, EnvValue, PortMapping, RunKind, names, parse_env_item,
};

use self::document::Document;
use crate::cmd::options::{OfferOptions, ProfileOptions, ResourceOptions};
use crate::cx::{Cx, ProjectOption};
use crate::error::CliError;
use crate::repo::RepoOptions;

/// Apply a configuration: run a task, create a fleet
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Options that do not fit the type in the file are refused.\n\nExamples:\n  dstack apply -f task.dstack.yml             shows the plan, asks, runs and streams the log\n  dstack apply -f task.dstack.yml -y -d       submits and leaves\n  dstack apply -f task.dstack.yml --gpu H100:2 --spot -e LIMIT=5\n  dstack apply -f task.dstack.yml -- --fast   what `${{ run.args }}` in commands stands for\n  dstack apply -f task.dstack.yml --explain   why it is placed where it is, or nowhere\n  dstack apply -f fleet.dstack.yml -y"
)]
pub(crate) struct Args {
    #[command(flatten)]
    project: ProjectOption,
    /// The configuration; - for standard input. Default: .dstack.yml in this folder
    #[arg(short, long)]
    file: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Apply even if nothing changed, or if it changed since the plan was made
    #[arg(long)]
    force: bool,
    /// Leave once it is submitted
    #[arg(short, long)]
    detach: bool,
    /// Show every candidate, and why each that is turned down is
    #[arg(long)]
    explain: bool,
    /// More of the plan
    #[arg(short, long)]
    verbose: bool,
    /// The name, instead of the one in the file
    #[arg(short, long)]
    name: Option<String>,
    /// A variable; without a value it is taken from the environment. May be repeated
    #[arg(short, long, value_name = "KEY[=VALUE]", value_parser = variable)]
    env: Vec<Variable>,
    /// A port of the job, such as 8080 or 80:8080 (here:job) or *:8080; may be repeated
    #[arg(short, long, value_name = "MAPPING", value_parser = port)]
    port: Vec<PortMapping>,
    /// Address of this machine that the job's ports are bound to
    #[arg(long, default_value = "localhost", value_name = "HOST")]
    host: String,
    /// The private key to log in to the job with; its public half is the file beside it with .pub. Default: your key at the server
    #[arg(long, value_name = "KEY")]
    ssh_identity: Option<PathBuf>,
    /// How many offers to show
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_offers: u32,
    #[command(flatten)]
    offers: OfferOptions,
    #[command(flatten)]
    resources: ResourceOptions,
    #[command(flatten)]
    profile: ProfileOptions,
    #[command(flatten)]
    repo: RepoOptions,
    /// What `${{ run.args }}` in commands stands for
    #[arg(last = true)]
    run_args: Vec<String>,
}

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let document = Document::read(args.file.as_deref(), cx)?;
    args.check(&document.configuration)?;
    let here = cx.here(args.project.project.as_deref())?;
    let Document {
        configuration,
        path,
        folder,
    } = document;
    match configuration {
        Configuration::Run(configuration) => {
            let source = run_spec::Source {
                configuration,
                path,
                folder,
            };
            run::apply(&args, source, &here, cx)
        }
        Configuration::Fleet(configuration) => {
            fleet::apply(&args, *configuration, &path, &folder, &here, cx)
        }
        Configuration::Volume(configuration) => {
            other::apply_volume(&args, *configuration, &here, cx)
        }
        Configuration::Gateway(configuration) => {
            other::apply_gateway(&args, *configuration, &path, &here, cx)
        }
        Configuration::Preset(_) => Err(CliError::message(
            "presets are not applied: `type: preset` is a starting point for finding a service's configuration",
        )),
    }
}

/// A variable of `-e`.
#[derive(Clone)]
struct Variable {
    name: String,
    value: EnvValue,
}

impl std::fmt::Debug for Variable {
    /// Values may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

fn variable(text: &str) -> Result<Variable, String> {
    parse_env_item(text).map(|(name, value)| Variable { name, value })
}

pub(crate) fn port(text: &str) -> Result<PortMapping, String> {
    PortMapping::parse(text)
        .ok_or_else(|| "expected a port (1 to 65535), LOCAL:CONTAINER or *:CONTAINER".to_owned())
}

/// Early, since the server's words for it are a pattern.
fn check_name(what: &'static str, name: Option<&str>) -> Result<(), CliError> {
    name.map_or(Ok(()), |name| names::check_resource_name(what, name))
        .map_err(|error| CliError::message(error.to_string()))
}

impl Args {
    /// Variables of options replace those of the file; open ones are taken from the environment.
    fn fill_env(&self, env: &mut Env, cx: &Cx<'_>) -> Result<(), CliError> {
        for given in &self.env {
            env.0.insert(given.name.clone(), given.value.clone());
        }
        env.resolve(|name| cx.vars.get(name))
            .map_err(|error| CliError::message(error.to_string()))
    }

    /// Which options fit is known only now, that the file is read.
    fn check(&self, configuration: &Configuration) -> Result<(), CliError> {
        let (kind, is_run, has_ports, has_args) = match configuration {
            Configuration::Run(run) => (
                run.kind().as_str(),
                true,
                run.kind() != RunKind::Service,
                run.kind() != RunKind::DevEnvironment,
            ),
            Configuration::Fleet(_) => ("fleet", false, false, false),
            Configuration::Volume(_) => ("volume", false, false, false),
            Configuration::Gateway(_) => ("gateway", false, false, false),
            Configuration::Preset(_) => ("preset", false, false, false),
        };
        let has_env = is_run || matches!(configuration, Configuration::Fleet(_));
        let (resources, profile) = (&self.resources, &self.profile);
        let repo = &self.repo;
        let given = [
            ("--env", !self.env.is_empty(), has_env),
            ("--port", !self.port.is_empty(), has_ports),
            ("--host", self.host != "localhost", has_ports),
            ("--ssh-identity", self.ssh_identity.is_some(), is_run),
            ("arguments after --", !self.run_args.is_empty(), has_args),
            ("--cpu", resources.cpu.is_some(), is_run),
            ("--gpu", resources.gpu.is_some(), is_run),
            ("--memory", resources.memory.is_some(), is_run),
            ("--disk", resources.disk.is_some(), is_run),
            ("--full-offers", self.offers.full_offers, is_run),
            ("--unallocated", self.offers.unallocated, is_run),
            ("--profile", profile.profile.is_some(), is_run),
            ("--no-profile", profile.no_profile, is_run),
            ("--max-price", profile.max_price.is_some(), is_run),
            ("--max-duration", profile.max_duration.is_some(), is_run),
            ("--backend", !profile.backend.is_empty(), is_run),
            ("--region", !profile.region.is_empty(), is_run),
            ("--instance-type", !profile.instance_type.is_empty(), is_run),
            ("--fleet", !profile.fleet.is_empty(), is_run),
            ("--reuse", profile.reuse, is_run),
            ("--repo", repo.repo.is_some(), is_run),
            ("--repo-branch", repo.repo_branch.is_some(), is_run),
            ("--repo-hash", repo.repo_hash.is_some(), is_run),
            ("--no-repo", repo.no_repo, is_run),
            ("--token", repo.login.token.is_some(), is_run),
            ("--git-identity", repo.login.git_identity.is_some(), is_run),
            ("--dont-destroy", profile.dont_destroy, is_run),
            ("--idle-duration", profile.idle_duration.is_some(), is_run),
            ("--spot", profile.spot, is_run),
            ("--on-demand", profile.on_demand, is_run),
            ("--spot-auto", profile.spot_auto, is_run),
            ("--spot-policy", profile.spot_policy.is_some(), is_run),
            ("--retry", profile.retry, is_run),
            ("--no-retry", profile.no_retry, is_run),
            ("--retry-duration", profile.retry_duration.is_some(), is_run),
        ];
        match given.iter().find(|(_, is_given, fits)| *is_given && !fits) {
            Some((name, ..)) => Err(CliError::Usage(format!(
                "{name} cannot be used with `type: {kind}`, which the file has"
            ))),
            None => Ok(()),
        }
    }
}

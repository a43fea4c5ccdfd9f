//! The tree of commands.

use clap::{CommandFactory, Parser, Subcommand};

use crate::cmd;
use crate::cx::Cx;
use crate::error::CliError;

/// Provision machines on any cloud and run dev environments, tasks and services on them.
#[derive(Debug, Parser)]
#[command(
    name = "dstack",
    disable_version_flag = true,
    max_term_width = 100,
    after_help = "Examples:\n  dstack server                       start a server\n  dstack apply -f task.dstack.yml     run a configuration\n  dstack ps                           what runs\n  dstack logs NAME                    what it printed"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Show the version
    #[arg(short = 'v', long = "version", action = clap::ArgAction::SetTrue)]
    version: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Apply a configuration: run a task, create a fleet
    Apply(Box<cmd::apply::Args>),
    /// Bring a run's ports and login to this machine
    Attach(cmd::attach::Args),
    /// Plugins with their state
    Backend(cmd::backend::Args),
    /// Prices of clouds
    Catalog(cmd::catalog::Args),
    /// Shell completion
    Completion(cmd::completion::Args),
    /// Check configuration files; schemas for editors
    Config(cmd::config::Args),
    /// Events of a project
    Event(Box<cmd::event::Args>),
    /// What this project lends to others
    Export(cmd::export::Args),
    /// Fleets of machines
    Fleet(cmd::fleet::Args),
    /// Public entrances of services
    Gateway(cmd::gateway::Args),
    /// Let your runs clone a Git repository
    Init(cmd::init::Args),
    /// What this project borrows from others
    Import(cmd::export::ImportArgs),
    /// The log of a run
    Logs(cmd::logs::Args),
    /// What the jobs of a run use
    Metrics(cmd::metrics::Args),
    /// What machines are offered, and at what price
    Offer(Box<cmd::offer::Args>),
    /// Projects in the client's configuration
    Project(cmd::project::Args),
    /// Runs
    Ps(cmd::ps::Args),
    /// One run
    Run(cmd::run::Args),
    /// Secrets of a project
    Secret(cmd::secret::Args),
    /// Start a server
    Server(cmd::server::Args),
    /// Stop a run
    Stop(cmd::stop::Args),
    /// Extra tokens, for scripts and other machines
    Token(cmd::token::Args),
    /// Users of the server
    User(cmd::user::Args),
    /// Disks that outlive runs
    Volume(cmd::volume::Args),
}

impl Command {
    pub(crate) fn run(self, cx: &mut Cx<'_>) -> Result<(), CliError> {
        match self {
            Self::Apply(args) => cmd::apply::run(*args, cx),
            Self::Attach(args) => cmd::attach::run(args, cx),
            Self::Backend(args) => cmd::backend::run(args, cx),
            Self::Catalog(args) => cmd::catalog::run(args, cx),
            Self::Completion(args) => cmd::completion::run(&args, cx),
            Self::Config(args) => cmd::config::run(&args, cx),
            Self::Event(args) => cmd::event::run(*args, cx),
            Self::Export(args) => cmd::export::run(args, cx),
            Self::Fleet(args) => cmd::fleet::run(args, cx),
            Self::Gateway(args) => cmd::gateway::run(args, cx),
            Self::Init(args) => cmd::init::run(&args, cx),
            Self::Import(args) => cmd::export::run_import(args, cx),
            Self::Logs(args) => cmd::logs::run(&args, cx),
            Self::Metrics(args) => cmd::metrics::run(&args, cx),
            Self::Offer(args) => cmd::offer::run(*args, cx),
            Self::Project(args) => cmd::project::run(args, cx),
            Self::Ps(args) => cmd::ps::run(&args, cx),
            Self::Run(args) => cmd::run::run(&args, cx),
            Self::Secret(args) => cmd::secret::run(args, cx),
            Self::Server(args) => cx.local.server(&args).map_err(CliError::Message),
            Self::Stop(args) => cmd::stop::run(&args, cx),
            Self::Token(args) => cmd::token::run(args, cx),
            Self::User(args) => cmd::user::run(args, cx),
            Self::Volume(args) => cmd::volume::run(args, cx),
        }
    }
}

/// The whole tree, for completion and documentation.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

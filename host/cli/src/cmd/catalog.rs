//! `dstack catalog`: prices of clouds, where they are from, and how files of them are made and checked.

mod check;
mod collect;
mod query;
mod refresh;
mod status;

use clap::Subcommand;

use crate::cx::{Cx, Here, ProjectOption};
use crate::error::CliError;
use crate::local_config::ConfigError;

/// Prices of clouds
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dstack catalog status                     where prices are from, and how old they are\n  dstack catalog refresh                    asks the sources for new ones\n  dstack catalog query --filter '{\"gpu_name\": \"H100\", \"max_price\": 3}'\n  dstack catalog collect runpod --output runpod.csv\n  dstack catalog check runpod.csv\n\nSources are named in DSTACK_CATALOG_SOURCES; without any, the prices are those that the program carries."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

/// Whose catalog.
#[derive(Debug, Clone, clap::Args)]
struct Whose {
    #[command(flatten)]
    project: ProjectOption,
    /// The catalog of this machine instead of the server's
    #[arg(long, conflicts_with = "project")]
    local: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Where the prices of each provider are from, and how old they are
    Status(Whose),
    /// Ask the sources for new prices
    Refresh(Whose),
    /// Search
    Query(query::Args),
    /// Make a provider's file out of its public prices
    Collect(collect::Args),
    /// Say what is wrong with a file
    Check(check::Args),
}

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    match args.command {
        Command::Status(whose) => status::run(&whose, cx),
        Command::Refresh(whose) => refresh::run(&whose, cx),
        Command::Query(args) => query::run(&args, cx),
        Command::Collect(args) => collect::run(&args, cx),
        Command::Check(args) => check::run(&args, cx),
    }
}

impl Whose {
    /// The server whose catalog is meant; `None` for this machine's: it is asked for, or no server is configured.
    fn server(&self, cx: &mut Cx<'_>) -> Result<Option<Here>, CliError> {
        if self.local {
            return Ok(None);
        }
        match cx.here(self.project.project.as_deref()) {
            Ok(here) => Ok(Some(here)),
            Err(CliError::Config(ConfigError::Empty)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

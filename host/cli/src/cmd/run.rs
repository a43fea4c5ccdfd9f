//! `dstack run`: one run with everything about it.

use clap::Subcommand;
use dstack_api::runs::{GetRunRequest, Run};

use crate::cmd::stop::not_found;
use crate::cx::{Cx, ProjectOption};
use crate::error::CliError;
use crate::view;

/// One run
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Everything about one run
    #[command(after_help = "Example:\n  dstack run get NAME --json")]
    Get {
        #[command(flatten)]
        project: ProjectOption,
        /// The run's name
        #[arg(required_unless_present = "id")]
        name: Option<String>,
        /// Its id instead
        #[arg(long, conflicts_with = "name")]
        id: Option<uuid::Uuid>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let Command::Get {
        project,
        name,
        id,
        json,
    } = &args.command;
    let here = cx.here(project.project.as_deref())?;
    let shown = name
        .clone()
        .unwrap_or_else(|| id.map(|id| id.to_string()).unwrap_or_default());
    let ask = GetRunRequest {
        run_name: name.clone(),
        id: *id,
    };
    let run: Run = here
        .client
        .post(&here.path("runs/get"), &ask)
        .map_err(|error| not_found(error, &shown))?;
    if *json {
        return cx.ui.json(&run);
    }
    let table = view::runs::table(&cx.ui, &[run], true, cx.now());
    cx.ui.line(table)
}

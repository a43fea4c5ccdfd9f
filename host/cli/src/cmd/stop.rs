//! `dstack stop`: asks a run to end.

use dstack_api::runs::{GetRunRequest, Run, StopRunsRequest};

use crate::cx::{Cx, ProjectOption};
use crate::error::CliError;

/// Stop a run
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dstack stop NAME        lets it end in its grace time\n  dstack stop -x NAME     ends it at once"
)]
pub(crate) struct Args {
    #[command(flatten)]
    project: ProjectOption,
    /// The name of the run
    run_name: String,
    /// Stop without the grace period
    #[arg(short = 'x', long)]
    abort: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) fn run(args: &Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    let ask = GetRunRequest {
        run_name: Some(args.run_name.clone()),
        id: None,
    };
    here.client
        .post::<Run>(&here.path("runs/get"), &ask)
        .map_err(|error| not_found(error, &args.run_name))?;
    let verb = if args.abort { "abort" } else { "stop" };
    if !args.yes
        && !cx.ui.confirm(&format!(
            "Are you sure you want to {verb} the run {}?",
            args.run_name
        ))?
    {
        return cx.ui.line("Exiting...");
    }
    let order = StopRunsRequest {
        runs_names: vec![args.run_name.clone()],
        abort: args.abort,
    };
    here.client.post::<()>(&here.path("runs/stop"), &order)?;
    cx.ui.line(if args.abort { "Aborted" } else { "Stopped" })
}

/// The same words for an unknown run in every command.
pub(crate) fn not_found(error: CliError, name: &str) -> CliError {
    if error.is_not_found() {
        CliError::message(format!("Run {name} not found"))
    } else {
        error
    }
}

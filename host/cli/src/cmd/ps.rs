//! `dstack ps`: the runs of a project.

use std::time::Duration;

use dstack_api::runs::{ListRunsRequest, Run};

use crate::cx::{Cx, Here, ProjectOption};
use crate::error::CliError;
use crate::view;

/// Runs
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dstack ps            what runs now\n  dstack ps -a -v      all runs with details\n  dstack ps -w         a live view\n  dstack ps --json     for scripts"
)]
pub(crate) struct Args {
    #[command(flatten)]
    project: ProjectOption,
    /// Finished runs too
    #[arg(short, long)]
    all: bool,
    /// Details
    #[arg(short, long)]
    verbose: bool,
    /// A live view; end it with Ctrl+C
    #[arg(short, long, conflicts_with = "json")]
    watch: bool,
    /// Only this many, the newest; implies --all
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    last: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How to print
    #[arg(long, value_parser = ["plain", "json"], default_value = "plain", hide = true)]
    format: String,
}

pub(crate) fn run(args: &Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    if args.json || args.format == "json" {
        let runs = list(&here, args)?;
        return cx
            .ui
            .json(&serde_json::json!({ "project": here.project.name, "runs": runs }));
    }
    loop {
        let runs = list(&here, args)?;
        let table = view::runs::table(&cx.ui, &runs, args.verbose, cx.now());
        if !args.watch || !cx.ui.is_terminal() {
            return cx.ui.line(table);
        }
        cx.ui.live(&table)?;
        std::thread::sleep(Duration::from_secs(2));
    }
}

fn list(here: &Here, args: &Args) -> Result<Vec<Run>, CliError> {
    let ask = |only_active: bool, limit: u32| -> Result<Vec<Run>, CliError> {
        here.client.post(
            "/api/runs/list",
            &ListRunsRequest {
                project_name: Some(here.project.name.clone()),
                only_active,
                job_submissions_limit: Some(1),
                limit,
                ..ListRunsRequest::default()
            },
        )
    };
    if args.all || args.last.is_some() {
        return ask(false, args.last.unwrap_or(100));
    }
    let active = ask(true, 100)?;
    // Nothing runs: the last finished run is what one wants to see.
    if active.is_empty() {
        ask(false, 1)
    } else {
        Ok(active)
    }
}

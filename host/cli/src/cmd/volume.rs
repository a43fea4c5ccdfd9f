//! `dstack volume`: disks that outlive runs.

use std::time::Duration;

use clap::Subcommand;
use dstack_api::volumes::{DeleteVolumesRequest, GetVolumeRequest, Volume};

use crate::cx::{Cx, Here, ProjectOption};
use crate::error::CliError;
use crate::view;

/// Disks that outlive runs
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List volumes
    #[command(alias = "ls")]
    List(ListArgs),
    /// Delete a volume with its data
    #[command(visible_alias = "destroy")]
    Delete(DeleteArgs),
    /// One volume
    Get(GetArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// Details
    #[arg(short, long)]
    verbose: bool,
    /// A live view; end it with Ctrl+C
    #[arg(short, long, conflicts_with = "json")]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The volume
    name: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
struct GetArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The volume
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    match args.command.unwrap_or(Command::List(args.list)) {
        Command::List(args) => list(&args, cx),
        Command::Delete(args) => delete(&args, cx),
        Command::Get(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            let volume = get(&here, &args.name)?;
            if args.json {
                return cx.ui.json(&volume);
            }
            let table = view::volumes::table(&cx.ui, &[volume], true, cx.now());
            cx.ui.line(table)
        }
    }
}

fn list(args: &ListArgs, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    loop {
        let volumes: Vec<Volume> = here.client.ask(&here.path("volumes/list"))?;
        if args.json {
            return cx
                .ui
                .json(&serde_json::json!({ "project": here.project.name, "volumes": volumes }));
        }
        let table = view::volumes::table(&cx.ui, &volumes, args.verbose, cx.now());
        if !args.watch || !cx.ui.is_terminal() {
            return cx.ui.line(table);
        }
        cx.ui.live(&table)?;
        std::thread::sleep(Duration::from_secs(2));
    }
}

fn ask(name: &str) -> GetVolumeRequest {
    GetVolumeRequest {
        name: name.to_owned(),
    }
}

fn get(here: &Here, name: &str) -> Result<Volume, CliError> {
    find(here, name)?.ok_or_else(|| CliError::message(format!("Volume {name} does not exist")))
}

/// A volume, if there is one of this name.
pub(crate) fn find(here: &Here, name: &str) -> Result<Option<Volume>, CliError> {
    match here.client.post(&here.path("volumes/get"), &ask(name)) {
        Ok(volume) => Ok(Some(volume)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn delete(args: &DeleteArgs, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    let name = &args.name;
    let volume = get(&here, name)?;
    let data = if volume.external {
        "it was made outside, its data stays"
    } else {
        "its data is lost"
    };
    if !args.yes
        && !cx
            .ui
            .confirm(&format!("Delete the volume {name} ({data})?"))?
    {
        return cx.ui.line("Exiting...");
    }
    end(&here, name)?;
    cx.ui.line(format!("Volume {name} deleted"))
}

/// Deletes a volume and waits until it is gone.
pub(crate) fn end(here: &Here, name: &str) -> Result<(), CliError> {
    let order = DeleteVolumesRequest {
        names: vec![name.to_owned()],
    };
    here.client
        .post::<()>(&here.path("volumes/delete"), &order)?;
    while find(here, name)?.is_some() {
        std::thread::sleep(Duration::from_millis(250));
    }
    Ok(())
}

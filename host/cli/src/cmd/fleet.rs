//! `dstack fleet`: fleets and their instances.

use std::time::Duration;

use clap::Subcommand;
use dstack_api::fleets::{
    DeleteFleetInstancesRequest, DeleteFleetsRequest, Fleet, GetFleetRequest,
    ListProjectFleetsRequest,
};

use crate::cx::{Cx, Here, ProjectOption};
use crate::error::CliError;
use crate::view;

/// Fleets of machines
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
    /// List fleets and their instances
    #[command(alias = "ls")]
    List(ListArgs),
    /// Delete a fleet, or some of its instances
    #[command(
        visible_alias = "destroy",
        after_help = "Examples:\n  dstack fleet delete NAME\n  dstack fleet delete NAME -i 0 -i 2 -y"
    )]
    Delete(DeleteArgs),
    /// One fleet
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
    /// The fleet
    name: String,
    /// Only this instance; may be repeated
    #[arg(short, long, value_name = "NUM")]
    instance: Vec<u32>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
struct GetArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The fleet's name
    #[arg(required_unless_present = "id")]
    name: Option<String>,
    /// Its id instead
    #[arg(long, conflicts_with = "name")]
    id: Option<uuid::Uuid>,
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
            let fleet = get(
                &here,
                GetFleetRequest {
                    name: args.name,
                    id: args.id,
                },
            )?;
            if args.json {
                return cx.ui.json(&fleet);
            }
            let table = view::fleets::table(&cx.ui, &[fleet], true, cx.now());
            cx.ui.line(table)
        }
    }
}

fn list(args: &ListArgs, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    loop {
        let ask = ListProjectFleetsRequest {
            include_imported: true,
        };
        let fleets: Vec<Fleet> = here.client.post(&here.path("fleets/list"), &ask)?;
        if args.json {
            return cx
                .ui
                .json(&serde_json::json!({ "project": here.project.name, "fleets": fleets }));
        }
        let table = view::fleets::table(&cx.ui, &fleets, args.verbose, cx.now());
        if !args.watch || !cx.ui.is_terminal() {
            return cx.ui.line(table);
        }
        cx.ui.live(&table)?;
        std::thread::sleep(Duration::from_secs(2));
    }
}

fn get(here: &Here, ask: GetFleetRequest) -> Result<Fleet, CliError> {
    let name = ask
        .name
        .clone()
        .unwrap_or_else(|| ask.id.map(|id| id.to_string()).unwrap_or_default());
    here.client
        .post(&here.path("fleets/get"), &ask)
        .map_err(|error| {
            if error.is_not_found() {
                CliError::message(format!("Fleet {name} does not exist"))
            } else {
                error
            }
        })
}

fn delete(args: &DeleteArgs, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    let ask = GetFleetRequest {
        name: Some(args.name.clone()),
        id: None,
    };
    let fleet = get(&here, ask.clone())?;
    let has = |number: u32| {
        let mut instances = fleet.instances.iter();
        instances.any(|instance| instance.instance_num == number)
    };
    if let Some(missing) = args.instance.iter().find(|number| !has(**number)) {
        return Err(CliError::message(format!(
            "fleet {0} has no instance {missing}; `dstack fleet get {0}` shows those it has",
            args.name
        )));
    }
    let what = if args.instance.is_empty() {
        format!("fleet {}", args.name)
    } else {
        let list = args
            .instance
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        format!("instances {list} of fleet {}", args.name)
    };
    if !args.yes && !cx.ui.confirm(&format!("Delete the {what}?"))? {
        return cx.ui.line("Exiting...");
    }
    if args.instance.is_empty() {
        here.client.post::<()>(
            &here.path("fleets/delete"),
            &DeleteFleetsRequest {
                names: vec![args.name.clone()],
            },
        )?;
        wait_gone(&here, &ask)?;
        return cx.ui.line(format!("Fleet {} deleted", args.name));
    }
    let order = DeleteFleetInstancesRequest {
        name: args.name.clone(),
        instance_nums: args.instance.clone(),
    };
    here.client
        .post::<()>(&here.path("fleets/delete_instances"), &order)?;
    loop {
        let left = get(&here, ask.clone())?;
        if !left
            .instances
            .iter()
            .any(|instance| args.instance.contains(&instance.instance_num))
        {
            return cx
                .ui
                .line(format!("Instances of fleet {} deleted", args.name));
        }
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// Deletion is done by the server's loops; it is over when the fleet is no longer found.
pub(crate) fn wait_gone(here: &Here, ask: &GetFleetRequest) -> Result<(), CliError> {
    loop {
        match here.client.post::<Fleet>(&here.path("fleets/get"), ask) {
            Ok(_) => std::thread::sleep(Duration::from_millis(200)),
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

//! `dstack gateway`: public entrances of services.

use std::time::Duration;

use clap::Subcommand;
use dstack_api::gateways::{
    DeleteGatewaysRequest, Gateway, GetGatewayRequest, ListGatewaysRequest,
    SetDefaultGatewayRequest, SetWildcardDomainRequest,
};

use crate::cx::{Cx, Here, ProjectOption};
use crate::error::CliError;
use crate::view;

/// Public entrances of services
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
    /// List gateways
    #[command(alias = "ls")]
    List(ListArgs),
    /// Delete a gateway with its machines
    #[command(visible_alias = "destroy")]
    Delete(DeleteArgs),
    /// Change a gateway
    Update(UpdateArgs),
    /// One gateway
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
    /// The gateway
    name: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
struct UpdateArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The gateway
    name: String,
    /// Services use it unless they name another
    #[arg(long, required_unless_present = "domain")]
    set_default: bool,
    /// The domain of services, such as *.example.com
    #[arg(long)]
    domain: Option<String>,
}

#[derive(Debug, clap::Args)]
struct GetArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The gateway
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    match args.command.unwrap_or(Command::List(args.list)) {
        Command::List(args) => list(&args, cx),
        Command::Delete(args) => delete(&args, cx),
        Command::Update(args) => update(args, cx),
        Command::Get(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            let gateway = get(&here, &args.name)?;
            if args.json {
                return cx.ui.json(&gateway);
            }
            let table = view::gateways::table(&cx.ui, &[gateway], true, cx.now());
            cx.ui.line(table)
        }
    }
}

fn list(args: &ListArgs, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    loop {
        let ask = ListGatewaysRequest {
            include_imported: true,
        };
        let gateways: Vec<Gateway> = here.client.post(&here.path("gateways/list"), &ask)?;
        if args.json {
            return cx
                .ui
                .json(&serde_json::json!({ "project": here.project.name, "gateways": gateways }));
        }
        let table = view::gateways::table(&cx.ui, &gateways, args.verbose, cx.now());
        if !args.watch || !cx.ui.is_terminal() {
            return cx.ui.line(table);
        }
        cx.ui.live(&table)?;
        std::thread::sleep(Duration::from_secs(2));
    }
}

fn get(here: &Here, name: &str) -> Result<Gateway, CliError> {
    find(here, name)?.ok_or_else(|| CliError::message(format!("Gateway {name} does not exist")))
}

/// A gateway, if there is one of this name.
pub(crate) fn find(here: &Here, name: &str) -> Result<Option<Gateway>, CliError> {
    let ask = GetGatewayRequest {
        name: name.to_owned(),
    };
    match here.client.post(&here.path("gateways/get"), &ask) {
        Ok(gateway) => Ok(Some(gateway)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn delete(args: &DeleteArgs, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    let name = &args.name;
    get(&here, name)?;
    if !args.yes && !cx.ui.confirm(&format!("Delete the gateway {name}?"))? {
        return cx.ui.line("Exiting...");
    }
    end(&here, name)?;
    cx.ui.line(format!("Gateway {name} deleted"))
}

/// Deletes a gateway and waits until it is gone.
pub(crate) fn end(here: &Here, name: &str) -> Result<(), CliError> {
    let order = DeleteGatewaysRequest {
        names: vec![name.to_owned()],
    };
    here.client
        .post::<()>(&here.path("gateways/delete"), &order)?;
    while find(here, name)?.is_some() {
        std::thread::sleep(Duration::from_millis(250));
    }
    Ok(())
}

fn update(args: UpdateArgs, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    let name = args.name;
    get(&here, &name)?;
    if args.set_default {
        let order = SetDefaultGatewayRequest {
            name: name.clone(),
            gateway_project: None,
        };
        here.client
            .post::<()>(&here.path("gateways/set_default"), &order)?;
    }
    if args.domain.is_some() {
        let order = SetWildcardDomainRequest {
            name: name.clone(),
            wildcard_domain: args.domain,
        };
        let _: Gateway = here
            .client
            .post(&here.path("gateways/set_wildcard_domain"), &order)?;
    }
    let table = view::gateways::table(&cx.ui, &[get(&here, &name)?], true, cx.now());
    cx.ui.line(table)
}

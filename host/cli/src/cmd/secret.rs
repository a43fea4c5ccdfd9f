//! `dstack secret`: values that runs of a project may use.

use clap::Subcommand;
use dstack_api::secrets::{
    CreateOrUpdateSecretRequest, DeleteSecretsRequest, GetSecretRequest, Secret,
};

use crate::cx::{Cx, ProjectOption};
use crate::error::CliError;

/// Secrets of a project
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
    /// List the names of secrets
    #[command(alias = "ls")]
    List(ListArgs),
    /// One secret with its value
    Get(OneArgs),
    /// Add a secret or change its value
    #[command(
        after_help = "Example:\n  dstack secret set HF_TOKEN hf_...\n\nIn a configuration: env: [HF_TOKEN=${{ secrets.HF_TOKEN }}]"
    )]
    Set(SetArgs),
    /// Delete a secret
    #[command(visible_alias = "destroy")]
    Delete(DeleteArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The secret
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct SetArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The secret
    name: String,
    /// Its value
    value: String,
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The secret
    name: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

const HEAD: [&str; 2] = ["NAME", "VALUE"];
/// In place of values that are not shown.
const HIDDEN: &str = "******";

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    match args.command.unwrap_or(Command::List(args.list)) {
        Command::List(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            let secrets: Vec<Secret> = here.client.ask(&here.path("secrets/list"))?;
            if args.json {
                return cx.ui.json(&secrets);
            }
            let row = |secret: Secret| vec![secret.name, HIDDEN.to_owned()];
            let rows: Vec<Vec<String>> = secrets.into_iter().map(row).collect();
            cx.ui.line(cx.ui.table(&HEAD, &rows))
        }
        Command::Get(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            let ask = GetSecretRequest {
                name: args.name.clone(),
            };
            let secret: Secret = here
                .client
                .post(&here.path("secrets/get"), &ask)
                .map_err(|error| missing(error, &args.name))?;
            if args.json {
                return cx.ui.json(&secret);
            }
            let value = secret.value.map(|value| value.expose().clone());
            let rows = [vec![secret.name, value.unwrap_or_default()]];
            cx.ui.line(cx.ui.table(&HEAD, &rows))
        }
        Command::Set(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            let order = CreateOrUpdateSecretRequest {
                name: args.name,
                value: args.value.into(),
            };
            here.client
                .post::<Secret>(&here.path("secrets/create_or_update"), &order)?;
            cx.ui.line("OK")
        }
        Command::Delete(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            if !args.yes
                && !cx
                    .ui
                    .confirm(&format!("Delete the secret {}?", args.name))?
            {
                return cx.ui.line("Exiting...");
            }
            let order = DeleteSecretsRequest {
                secrets_names: vec![args.name.clone()],
            };
            here.client
                .post::<()>(&here.path("secrets/delete"), &order)
                .map_err(|error| missing(error, &args.name))?;
            cx.ui.line("OK")
        }
    }
}

fn missing(error: CliError, name: &str) -> CliError {
    if error.is_not_found() {
        CliError::message(format!("Secret {name} does not exist"))
    } else {
        error
    }
}

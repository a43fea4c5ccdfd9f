//! `dstack export` and `dstack import`: what projects lend to each other.

use clap::Subcommand;
use dstack_api::exports::{
    CreateExportRequest, DeleteExportRequest, DeleteImportRequest, Export, ExportedResource,
    ListExportsResponse, ListImportsResponse, UpdateExportRequest,
};

use crate::cx::{Cx, ProjectOption};
use crate::error::CliError;

/// What this project lends to others
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
    /// List exports
    #[command(alias = "ls")]
    List(ListArgs),
    /// Lend fleets and gateways to other projects
    #[command(after_help = "Example:\n  dstack export create lab --importer team --fleet metal")]
    Create(CreateArgs),
    /// Change an export
    Update(UpdateArgs),
    /// End an export; runs of others on its machines end
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
struct CreateArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// A name for it
    name: String,
    /// A project that imports it; may be repeated
    #[arg(long, value_name = "PROJECT")]
    importer: Vec<String>,
    /// A fleet to lend; may be repeated
    #[arg(long, value_name = "FLEET")]
    fleet: Vec<String>,
    /// A gateway to lend; may be repeated
    #[arg(long, value_name = "GATEWAY")]
    gateway: Vec<String>,
    /// Every project imports it
    #[arg(long, conflicts_with = "importer")]
    global: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct UpdateArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The export
    name: String,
    /// A project that begins to import it; may be repeated
    #[arg(long, value_name = "PROJECT")]
    add_importer: Vec<String>,
    /// A project that ends to import it; may be repeated
    #[arg(long, value_name = "PROJECT")]
    remove_importer: Vec<String>,
    /// A fleet that comes; may be repeated
    #[arg(long, value_name = "FLEET")]
    add_fleet: Vec<String>,
    /// A fleet that goes; may be repeated
    #[arg(long, value_name = "FLEET")]
    remove_fleet: Vec<String>,
    /// A gateway that comes; may be repeated
    #[arg(long, value_name = "GATEWAY")]
    add_gateway: Vec<String>,
    /// A gateway that goes; may be repeated
    #[arg(long, value_name = "GATEWAY")]
    remove_gateway: Vec<String>,
    /// From now on every project imports it
    #[arg(long, conflicts_with = "unset_global")]
    set_global: bool,
    /// New projects no longer import it
    #[arg(long)]
    unset_global: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The export
    name: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// What this project borrows from others
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    command: Option<ImportCommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Subcommand)]
enum ImportCommand {
    /// List imports
    #[command(alias = "ls")]
    List(ListArgs),
    /// End an import
    #[command(visible_alias = "destroy")]
    Delete(DeleteImportArgs),
}

#[derive(Debug, clap::Args)]
struct DeleteImportArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The project that lends, and its export
    #[arg(value_name = "PROJECT/NAME", value_parser = reference)]
    name: (String, String),
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

fn reference(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((project, name)) if !project.is_empty() && !name.is_empty() => {
            Ok((project.to_owned(), name.to_owned()))
        }
        _ => Err("give PROJECT/NAME, as `dstack import list` shows it".to_owned()),
    }
}

fn names(resources: &[ExportedResource]) -> String {
    let names: Vec<&str> = resources.iter().map(|one| one.name.as_str()).collect();
    if names.is_empty() {
        return "-".to_owned();
    }
    names.join(", ")
}

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    match args.command.unwrap_or(Command::List(args.list)) {
        Command::List(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            let list: ListExportsResponse = here.client.ask(&here.path("exports/list"))?;
            if args.json {
                return cx.ui.json(&list);
            }
            for warning in &list.warnings {
                cx.ui.warn(warning)?;
            }
            table(&list.exports, cx)
        }
        Command::Create(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            let order = CreateExportRequest {
                name: args.name,
                is_global: args.global,
                importer_projects: args.importer,
                exported_fleets: args.fleet,
                exported_gateways: args.gateway,
            };
            let made: Export = here.client.post(&here.path("exports/create"), &order)?;
            shown(made, args.json, cx)
        }
        Command::Update(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            let order = UpdateExportRequest {
                name: args.name,
                set_global: args.set_global,
                unset_global: args.unset_global,
                add_importer_projects: args.add_importer,
                remove_importer_projects: args.remove_importer,
                add_exported_fleets: args.add_fleet,
                remove_exported_fleets: args.remove_fleet,
                add_exported_gateways: args.add_gateway,
                remove_exported_gateways: args.remove_gateway,
            };
            let changed: Export = here.client.post(&here.path("exports/update"), &order)?;
            shown(changed, args.json, cx)
        }
        Command::Delete(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            if !args.yes
                && !cx
                    .ui
                    .confirm(&format!("Delete the export {}?", args.name))?
            {
                return cx.ui.line("Exiting...");
            }
            let order = DeleteExportRequest { name: args.name };
            here.client
                .post::<()>(&here.path("exports/delete"), &order)?;
            cx.ui.line("OK")
        }
    }
}

fn shown(export: Export, json: bool, cx: &mut Cx<'_>) -> Result<(), CliError> {
    if json {
        return cx.ui.json(&export);
    }
    table(&[export], cx)
}

fn table(exports: &[Export], cx: &mut Cx<'_>) -> Result<(), CliError> {
    let importers = |export: &Export| {
        if export.is_global {
            return "*".to_owned();
        }
        let names: Vec<&str> = export
            .imports
            .iter()
            .map(|one| one.project_name.as_str())
            .collect();
        if names.is_empty() {
            "-".to_owned()
        } else {
            names.join(", ")
        }
    };
    let rows: Vec<Vec<String>> = exports
        .iter()
        .map(|export| {
            vec![
                export.name.clone(),
                names(&export.exported_fleets),
                names(&export.exported_gateways),
                importers(export),
            ]
        })
        .collect();
    let head = ["NAME", "FLEETS", "GATEWAYS", "IMPORTERS"];
    cx.ui.line(cx.ui.table(&head, &rows))
}

pub(crate) fn run_import(args: ImportArgs, cx: &mut Cx<'_>) -> Result<(), CliError> {
    match args.command.unwrap_or(ImportCommand::List(args.list)) {
        ImportCommand::List(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            let list: ListImportsResponse = here.client.ask(&here.path("imports/list"))?;
            if args.json {
                return cx.ui.json(&list);
            }
            for warning in &list.warnings {
                cx.ui.warn(warning)?;
            }
            let rows: Vec<Vec<String>> = list
                .imports
                .iter()
                .map(|import| {
                    let export = &import.export;
                    vec![
                        format!("{}/{}", export.project_name, export.name),
                        names(&export.exported_fleets),
                        names(&export.exported_gateways),
                    ]
                })
                .collect();
            cx.ui
                .line(cx.ui.table(&["NAME", "FLEETS", "GATEWAYS"], &rows))
        }
        ImportCommand::Delete(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            let (project, name) = args.name;
            let question = format!("Stop to import {project}/{name}?");
            if !args.yes && !cx.ui.confirm(&question)? {
                return cx.ui.line("Exiting...");
            }
            let order = DeleteImportRequest {
                export_name: name,
                export_project_name: project,
            };
            here.client
                .post::<()>(&here.path("imports/delete"), &order)?;
            cx.ui.line("OK")
        }
    }
}

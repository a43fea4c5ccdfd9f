//! `dstack backend`: the plugins of the server.

use clap::Subcommand;
use dstack_api::plugins::ListPluginsResponse;

use crate::cx::{Cx, ProjectOption};
use crate::error::CliError;
use crate::ui::Tone;

/// Plugins with their state
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dstack backend list            state of every plugin of the server\n  dstack backend inspect FILE    what a .so says of itself; nothing of it runs\n  dstack backend lock FOLDER     trust what is in a folder"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the plugins of the server
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        project: ProjectOption,
        /// The whole hash, and the path
        #[arg(short, long)]
        verbose: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// What a plugin file says of itself; nothing of it runs
    Inspect {
        /// The `.so`
        file: std::path::PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write `plugins.lock`: the hashes of the plugins in a folder, which the server then trusts
    Lock {
        /// The folder
        folder: std::path::PathBuf,
    },
}

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    match args.command {
        Command::List {
            project,
            verbose,
            json,
        } => list(&project, verbose, json, cx),
        Command::Inspect { file, json } => inspect(&file, json, cx),
        Command::Lock { folder } => {
            let locked = cx.local.lock(&folder).map_err(CliError::Message)?;
            cx.ui.line(format!(
                "{}: {}",
                folder.display(),
                if locked.is_empty() {
                    "no plugins".to_owned()
                } else {
                    locked.join(", ")
                }
            ))
        }
    }
}

fn inspect(file: &std::path::Path, json: bool, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let facts = cx.local.inspect(file).map_err(CliError::Message)?;
    if json {
        return cx.ui.json(&facts);
    }
    let rows: Vec<Vec<String>> = facts
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| {
            let text = match value {
                serde_json::Value::String(text) => text.clone(),
                serde_json::Value::Array(items) => items
                    .iter()
                    .map(|item| item.as_str().unwrap_or_default())
                    .collect::<Vec<_>>()
                    .join(" "),
                other => other.to_string(),
            };
            vec![key.clone(), text]
        })
        .collect();
    let table = cx.ui.table(&[], &rows);
    cx.ui.line(table)
}

/// Digits of a hash that tell files apart.
const SHORT_HASH: usize = 12;

fn list(
    project: &ProjectOption,
    is_verbose: bool,
    json: bool,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    let here = cx.here(project.project.as_deref())?;
    let answer: ListPluginsResponse = here.client.ask("/api/x/plugins/list")?;
    if json {
        return cx.ui.json(&answer);
    }
    let rows: Vec<Vec<String>> = answer
        .plugins
        .iter()
        .map(|plugin| {
            let tone = if plugin.reason.is_some() {
                Tone::Bad
            } else {
                Tone::Good
            };
            let mut row = vec![
                plugin.name.clone(),
                plugin.version.clone().unwrap_or_default(),
                plugin.sdk.clone().unwrap_or_default(),
                plugin.isolation.clone().unwrap_or_default(),
                cx.ui.paint(tone, &plugin.state),
                plugin.capabilities.join(" "),
            ];
            let hash = plugin.sha256.as_deref().unwrap_or_default();
            let shown = if is_verbose {
                hash
            } else {
                hash.get(..SHORT_HASH).unwrap_or(hash)
            };
            row.push(shown.to_owned());
            row.push(plugin.reason.clone().unwrap_or_default());
            if is_verbose {
                row.push(plugin.path.clone());
            }
            row
        })
        .collect();
    let mut head = vec![
        "NAME",
        "VERSION",
        "SDK",
        "ISOLATION",
        "STATE",
        "CAPABILITIES",
        "HASH",
        "ERROR",
    ];
    if is_verbose {
        head.push("PATH");
    }
    let table = cx.ui.table(&head, &rows);
    cx.ui.line(table)
}

//! `dstack backend`: the plugins of the server.

mod check;
mod describe;
mod list;
mod new;
mod verify;

use clap::Subcommand;
use dstack_api::plugins::ReloadPluginsResponse;

use crate::cx::{Cx, ProjectOption};
use crate::error::CliError;

/// Plugins with their state
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dstack backend list            state of every plugin of the server\n  dstack backend inspect FILE    what a .so says of itself; nothing of it runs\n  dstack backend check FILE      the conformance suite on a .so\n  dstack backend new Acme --path .   the crate of a new backend\n  dstack backend describe acme   what its section of config.yml takes\n  dstack backend lock FOLDER     trust what is in a folder\n  dstack backend verify FOLDER   whether it is still the same"
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
    Check(Box<check::Args>),
    New(new::Args),
    /// Write `plugins.lock`: the hashes of the plugins in a folder, which the server then trusts
    Lock {
        /// The folder
        folder: std::path::PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare a folder with its `plugins.lock`; nothing of a file runs
    Verify {
        /// The folder
        folder: std::path::PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// What a backend can do, and what its section of `config.yml` takes
    Describe {
        /// A backend of the server, or a `.so`, which is loaded in a process of its own
        #[arg(value_name = "NAME|FILE")]
        what: String,
        #[command(flatten)]
        project: ProjectOption,
        /// Print JSON: the manifest and the JSON schema
        #[arg(long)]
        json: bool,
    },
    /// Look through the server's plugin folders again, and use what has changed of the backends in its `config.yml`
    Reload {
        #[command(flatten)]
        project: ProjectOption,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    match args.command {
        Command::List {
            project,
            verbose,
            json,
        } => list::run(&project, verbose, json, cx),
        Command::Inspect { file, json } => inspect(&file, json, cx),
        Command::Check(args) => check::run(*args, cx),
        Command::New(args) => new::run(args, cx),
        Command::Lock { folder, json } => lock(&folder, json, cx),
        Command::Verify { folder, json } => verify::run(&folder, json, cx),
        Command::Describe {
            what,
            project,
            json,
        } => describe::run(&what, &project, json, cx),
        Command::Reload { project, json } => reload(&project, json, cx),
    }
}

fn lock(folder: &std::path::Path, json: bool, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let locked = cx.local.lock(folder).map_err(CliError::Message)?;
    if json {
        return cx.ui.json(&locked);
    }
    let text = if locked.is_empty() {
        "no plugins".to_owned()
    } else {
        locked.join(", ")
    };
    cx.ui.line(format!("{}: {text}", folder.display()))
}

fn reload(project: &ProjectOption, json: bool, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(project.project.as_deref())?;
    let done: ReloadPluginsResponse = here.client.ask("/api/x/plugins/reload")?;
    let ended = if done.problems.is_empty() {
        Ok(())
    } else {
        Err(CliError::Quiet)
    };
    if json {
        cx.ui.json(&done)?;
        return ended;
    }
    let mut nothing = done.problems.is_empty();
    for (what, names) in [
        ("added", &done.added),
        ("replaced", &done.replaced),
        (
            "there is a newer file, restart the server to use it",
            &done.after_restart,
        ),
        ("removed", &done.removed),
        ("configured", &done.configured),
    ] {
        if !names.is_empty() {
            nothing = false;
            cx.ui.line(format!("{what}: {}", names.join(", ")))?;
        }
    }
    if nothing {
        cx.ui.line("nothing has changed")?;
    }
    for problem in &done.problems {
        cx.ui.line(problem)?;
    }
    ended
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

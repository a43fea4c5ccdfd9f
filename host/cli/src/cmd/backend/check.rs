//! `dstack backend check`: the conformance suite on one plugin file.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use dstack_api::config::Mode;
use dstack_backend_conformance::{Isolation, Suite, provider};
use serde_json::Value;

use crate::cx::Cx;
use crate::error::CliError;
use crate::ui::Tone;

/// Columns of the table where nobody looks at it.
const PIPE_WIDTH: usize = 120;

/// Where the plugin runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Where {
    /// In a process of its own: a crash fails one check.
    Process,
    /// In this process: a crash ends it.
    #[value(name = "in_process")]
    InProcess,
}

/// Check what a host relies on, with a fake provider in place of the cloud
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dstack backend check target/debug/libdstack_backend_acme.so       with the fake provider built beside it, examples/acme-provider\n  dstack backend check libacme.so --config acme.yml --provider http://127.0.0.1:8080\n  dstack backend check libacme.so --only create,terminate.confirmed\n  dstack backend check --list                                       all checks, and why they are made"
)]
pub(super) struct Args {
    /// The `.so`
    #[arg(required_unless_present = "list")]
    file: Option<PathBuf>,
    /// Where the plugin's requests go, whatever host they name: an address, a program that is the fake provider, or `none`;
    /// by default the program that cargo has built beside the file from `examples/NAME-provider.rs`. `live` lets them reach
    /// the real cloud, which makes real machines
    #[arg(long, value_name = "URL|PROGRAM")]
    provider: Option<String>,
    /// The backend's section of `config.yml`, as YAML or JSON; made up from the plugin's schema by default
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of `<provider>.csv` files for the catalog service
    #[arg(long, value_name = "FOLDER")]
    catalog: Option<PathBuf>,
    /// Only these checks or groups of checks
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,
    /// Leave these checks out
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    without: Vec<String>,
    /// Where the plugin runs
    #[arg(long, value_enum, default_value = "process")]
    isolation: Where,
    /// Append every exchange with the provider to this file, credentials taken out
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Answer from such a file instead of a provider
    #[arg(long, value_name = "FILE", conflicts_with = "provider")]
    replay: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// List the checks
    #[arg(long, exclusive = true)]
    list: bool,
}

pub(super) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let Some(file) = args.file else {
        return list(cx);
    };
    let beside = provider::beside(&file);
    let mut suite = Suite::new(file)
        .only(args.only)
        .isolation(match args.isolation {
            Where::Process => Isolation::Process,
            Where::InProcess => Isolation::InProcess,
        })
        // A process of its own is this command again.
        .child_args(std::env::args_os().skip(1));
    for id in &args.without {
        suite = suite.without(id, "left out by --without");
    }
    if let Some(path) = &args.config {
        suite = suite.config(read_config(path)?);
    }
    suite = match args.provider.as_deref() {
        Some("live") => suite.live(),
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
            suite.provider(url)
        }
        Some("none") => suite,
        Some(path) if Path::new(path).is_file() => suite.provider_program(cx.folder.join(path)),
        Some(other) => {
            return Err(CliError::Usage(format!(
                "--provider {other}: there is no such program; give one, or an address that begins with http:// or https://, or `live`, or `none`"
            )));
        }
        None => match beside {
            Some(program) if args.replay.is_none() => suite.provider_program(program),
            _ => suite,
        },
    };
    if let Some(folder) = args.catalog {
        suite = suite.catalog(folder);
    }
    if let Some(path) = args.record {
        suite = suite.record(path);
    }
    if let Some(path) = args.replay {
        suite = suite.replay(path);
    }
    let report = suite
        .report()
        .map_err(|error| CliError::message(error.to_string()))?;
    if args.json {
        cx.ui.json(&report)?;
    } else {
        let is_coloured = cx.ui.paint(Tone::Good, "x") != "x";
        let width = match crossterm::terminal::size() {
            Ok((columns, _)) if cx.ui.is_terminal() && columns > 0 => usize::from(columns),
            _ => PIPE_WIDTH,
        };
        cx.ui.line(report.table(width, is_coloured).trim_end())?;
    }
    if report.is_passed() {
        Ok(())
    } else {
        Err(CliError::Quiet)
    }
}

fn list(cx: &mut Cx<'_>) -> Result<(), CliError> {
    let rows: Vec<Vec<String>> = dstack_backend_conformance::checks()
        .map(|(id, title, why)| vec![id.to_owned(), title.to_owned(), why.to_owned()])
        .collect();
    let table = cx.ui.table(&["CHECK", "WHAT", "WHY"], &rows);
    cx.ui.line(table)
}

fn read_config(path: &Path) -> Result<Value, CliError> {
    let text = std::fs::read_to_string(path).map_err(|source| CliError::File {
        verb: "read",
        path: path.to_owned(),
        source,
    })?;
    // JSON is YAML.
    let parsed =
        dstack_api::yaml::parse::<Value>(&path.display().to_string(), &text, Mode::Tolerant)
            .map_err(|errors| CliError::message(errors.to_string()))?;
    Ok(parsed.value)
}

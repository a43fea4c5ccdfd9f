//! `dstack catalog collect`

use std::path::{Path, PathBuf};

use dstack_backend_catalog::collect::{self, Surroundings};
use dstack_backend_catalog::{publish, write_csv};

use crate::cx::Cx;
use crate::error::CliError;
use crate::{prices, view};

/// Make a provider's file out of its public prices
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The provider
    #[arg(value_parser = known)]
    provider: String,
    /// The CSV file to write; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    output: String,
    /// All rows, also those that the published catalog leaves out
    #[arg(long)]
    no_filter: bool,
    /// Also write the published form into this folder
    #[arg(long, value_name = "DIR")]
    publish: Option<PathBuf>,
    /// Its version; default: today's date and 1
    #[arg(long, value_name = "VERSION", requires = "publish")]
    version: Option<String>,
}

fn known(text: &str) -> Result<String, String> {
    let names = collect::names();
    if names.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("there are collectors of {}", names.join(", ")))
}

pub(super) fn run(args: &Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let words = |error: &dyn std::error::Error| CliError::message(view::prices::chain(error));
    let network = prices::Network::new();
    let vars = |name: &str| cx.vars.get(name).filter(|value| !value.is_empty());
    let around = Surroundings {
        web: &network,
        vars: &vars,
    };
    let items = collect::collect(&args.provider, &around, !args.no_filter)
        .map_err(|error| words(&error))?;
    let text = write_csv(&items);
    if args.output == "-" {
        cx.ui.raw(text.as_bytes())?;
    } else {
        let path = cx.folder.join(Path::new(&args.output));
        std::fs::write(&path, &text).map_err(|source| CliError::File {
            verb: "write",
            path: path.clone(),
            source,
        })?;
        cx.ui
            .note(format!("{}: {} rows", path.display(), items.len()))?;
    }
    if let Some(folder) = &args.publish {
        let today = cx.now().strftime("%Y%m%d-1").to_string();
        let version = args.version.clone().unwrap_or(today);
        publish(&cx.folder.join(folder), &args.provider, &version, &items)
            .map_err(|error| words(&error))?;
        cx.ui
            .note(format!("published as {}/{version}", args.provider))?;
    }
    Ok(())
}

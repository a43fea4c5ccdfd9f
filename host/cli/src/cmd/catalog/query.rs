//! `dstack catalog query`

use std::sync::Arc;

use dstack_backend_catalog::{Catalog, CatalogConfig, Filter, Found, Search, Source};

use super::Whose;
use crate::cx::Cx;
use crate::error::CliError;
use crate::{prices, view};

/// Search
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The filter's fields: provider, cpu_arch, min_cpu, max_cpu, min_memory, max_memory, min_gpu_count, max_gpu_count, gpu_vendor, gpu_name, min_gpu_memory, max_gpu_memory, min_total_gpu_memory, max_total_gpu_memory, min_disk_size, max_disk_size, min_price, max_price, min_compute_capability, max_compute_capability, spot, allowed_flags. Sizes are in GB, prices in dollars an hour, bounds are part of the range."
)]
pub(super) struct Args {
    #[command(flatten)]
    whose: Whose,
    /// Only this folder of <provider>.csv files, or this address of the published form
    #[arg(long, value_name = "DIR", conflicts_with_all = ["project", "local"])]
    catalog: Option<String>,
    /// What is wanted, as a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    filter: String,
    /// How many rows at most; default: 50 in a table, all in JSON
    #[arg(long, value_name = "N")]
    max_items: Option<usize>,
}

/// Rows of a table without a limit.
const SHOWN: usize = 50;

pub(super) fn run(args: &Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let filter = Filter::from_json(&args.filter)
        .map_err(|error| CliError::Usage(format!("--filter: {}", view::prices::chain(&error))))?;
    let usual = (!args.whose.json).then_some(SHOWN);
    let search = Search {
        filter,
        max_items: args.max_items.or(usual),
        ..Search::default()
    };
    let found = find(args, &search, cx)?;
    if args.whose.json {
        return cx.ui.json(&found.items);
    }
    if found.items.is_empty() {
        return cx.ui.warn("Nothing fits.");
    }
    let table = view::prices::rows(&cx.ui, &found);
    cx.ui.line(table)
}

fn find(args: &Args, search: &Search, cx: &mut Cx<'_>) -> Result<Found, CliError> {
    let now = cx.now();
    let catalog = match &args.catalog {
        Some(place) => {
            let source = Source::parse(place)
                .map_err(|error| CliError::Usage(format!("--catalog: {error}")))?;
            if let Source::Folder(path) = &source {
                let path = cx.folder.join(path);
                if !path.is_dir() {
                    return Err(CliError::message(format!(
                        "{} is no folder; --catalog takes one with <provider>.csv files",
                        path.display()
                    )));
                }
            }
            let source = match source {
                Source::Folder(path) => Source::Folder(cx.folder.join(path)),
                published @ Source::Published(_) => published,
            };
            let config = CatalogConfig {
                sources: vec![source],
                ..CatalogConfig::default()
            };
            Catalog::new(config, Arc::new(prices::Network::new()))
        }
        None => match args.whose.server(cx)? {
            Some(here) => return here.client.post("/api/x/catalog/search", search),
            None => prices::local(cx)?,
        },
    };
    catalog
        .search(search, now)
        .map_err(|error| CliError::message(view::prices::chain(&error)))
}

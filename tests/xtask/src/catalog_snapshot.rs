//! The catalog that the program carries.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use dstack_backend_catalog::Snapshot;

use crate::process::root;

/// Make the catalog that is part of the program
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A folder with one `<provider>.csv` for each provider of `backend-sdk/catalog/data/about.json`
    folder: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let data = root().join("backend-sdk/catalog/data");
    let about = data.join("about.json");
    let text = fs::read(&about).with_context(|| format!("cannot read {}", about.display()))?;
    let about = serde_json::from_slice(&text).context("about.json")?;
    let bytes = Snapshot::make(&args.folder, &about)?;
    let place = data.join("snapshot.zip");
    fs::write(&place, &bytes).with_context(|| format!("cannot write {}", place.display()))?;
    println!("==> {}: {} bytes", place.display(), bytes.len());
    Ok(())
}

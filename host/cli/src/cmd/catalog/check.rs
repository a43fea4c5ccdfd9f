//! `dstack catalog check`

use std::path::PathBuf;

use dstack_backend_catalog::{Coverage, check};

use crate::cx::Cx;
use crate::error::CliError;

/// Say what is wrong with a file
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Looks at every row, and at what a whole file of a known provider must have. Ends with 1 if something is wrong."
)]
pub(super) struct Args {
    /// <provider>.csv, or a catalog.zip
    file: PathBuf,
    /// Whose file it is; default: its name says so
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// The file has a part of the provider only: look at its rows alone
    #[arg(long)]
    partial: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let path = cx.folder.join(&args.file);
    let bytes = std::fs::read(&path).map_err(|source| CliError::File {
        verb: "read",
        path: path.clone(),
        source,
    })?;
    let stem = path
        .file_name()
        .and_then(|name| name.to_str())
        .and_then(|name| name.split('.').next())
        .unwrap_or_default();
    let provider = args.provider.as_deref().unwrap_or(stem);
    let coverage = if args.partial {
        Coverage::Partial
    } else {
        Coverage::Whole
    };
    let report = check(provider, &bytes, coverage)
        .map_err(|error| CliError::message(crate::view::prices::chain(&error)))?;
    if args.json {
        cx.ui.json(&report)?;
    } else {
        for defect in &report.defects {
            cx.ui.line(defect)?;
        }
        cx.ui.line(format!(
            "{}: {} rows, {} skipped, {} defects",
            path.display(),
            report.rows,
            report.skipped,
            report.defects.len()
        ))?;
    }
    if report.defects.is_empty() {
        Ok(())
    } else {
        Err(CliError::Quiet)
    }
}

//! `dstack config schema`: JSON Schemas for editors.

use std::path::{Path, PathBuf};

use dstack_api::config::{SchemaType, json_schema};
use serde_json::Value;

use crate::cx::Cx;
use crate::error::CliError;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Editors with a YAML language server use a schema where the first line of a file is\n  # yaml-language-server: $schema=PATH\n\nExamples:\n  dstack config schema > dstack.schema.json          any configuration that apply takes\n  dstack config schema task                          tasks only\n  dstack config schema --output ~/.dstack/schemas    all of them, one file each"
)]
pub(crate) struct Args {
    /// Which; default: any configuration that `apply` takes, with --output all
    #[arg(value_name = "TYPE", value_parser = super::types())]
    of: Option<SchemaType>,
    /// Write to TYPE.schema.json in this folder, which is made if it is missing
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let Some(folder) = &args.output else {
        let of = args.of.unwrap_or(SchemaType::Configuration);
        return cx.ui.line(text(&json_schema(of)));
    };
    let folder = cx.expand(&folder.display().to_string(), &cx.folder);
    let wanted = match &args.of {
        Some(of) => std::slice::from_ref(of),
        None => SchemaType::ALL,
    };
    std::fs::create_dir_all(&folder).map_err(|source| cannot_write(&folder, source))?;
    for of in wanted {
        let path = folder.join(format!("{of}.schema.json"));
        std::fs::write(&path, text(&json_schema(*of)) + "\n")
            .map_err(|source| cannot_write(&path, source))?;
        cx.ui.line(path.display().to_string())?;
    }
    Ok(())
}

fn cannot_write(path: &Path, source: std::io::Error) -> CliError {
    CliError::File {
        verb: "write",
        path: path.to_owned(),
        source,
    }
}

fn text(schema: &Value) -> String {
    format!("{schema:#}")
}

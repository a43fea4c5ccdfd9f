//! `dstack config`: configuration files and the API looked at without a server.

mod check;
mod kind;
mod place;
mod print;
mod schema;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use dstack_api::config::SchemaType;

use crate::cx::Cx;
use crate::error::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Check files, and show what they mean
    Check(check::Args),
    /// Print the JSON Schema of a file, for editors
    Schema(schema::Args),
    /// Print the OpenAPI document of this version's HTTP API; servers have it at /api/openapi.json
    Openapi,
}

pub(crate) fn run(args: &Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    match &args.action {
        Action::Check(args) => check::run(args, cx),
        Action::Schema(args) => schema::run(args, cx),
        Action::Openapi => {
            let document = cx.local.api_document().map_err(CliError::Message)?;
            cx.ui.line(format!("{document:#}"))
        }
    }
}

/// The words of [`SchemaType`] as values of an option.
fn types() -> impl TypedValueParser<Value = SchemaType> {
    let words = SchemaType::ALL.iter().map(|of| of.as_str());
    PossibleValuesParser::new(words).map(|word| {
        let found = SchemaType::ALL.iter().find(|of| of.as_str() == word);
        // The parser lets only known words through.
        found.copied().unwrap_or(SchemaType::Configuration)
    })
}

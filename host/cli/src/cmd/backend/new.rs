//! `dstack backend new`: the crate of a new backend.

use std::path::PathBuf;

use clap::ValueEnum;
use dstack_backend_scaffold::{Auth, Kind, Order, Place, SEARCH_WORD, Sdk, create};

use crate::cx::Cx;
use crate::error::CliError;

/// Make the crate of a new backend: it builds, loads and passes `check` as it is
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dstack backend new ExampleXYZ --path ~/src                  machines, a token\n  dstack backend new ExampleXYZ --path . --kind container --auth basic"
)]
pub(super) struct Args {
    /// Name in camel case, e.g. ExampleXYZ: the backend is called examplexyz
    name: String,
    /// Folder in which the crate's folder is made
    #[arg(long, value_name = "DIR")]
    path: PathBuf,
    /// What the provider rents out
    #[arg(long, value_enum, default_value_t = KindArg::Vm)]
    kind: KindArg,
    /// How its API is logged in to
    #[arg(long, value_enum, default_value_t = AuthArg::Bearer)]
    auth: AuthArg,
    /// Folder with the SDK's crates: a copy of `backend-sdk`, or unpacked packages; the registry without it
    #[arg(long, value_name = "DIR")]
    sdk_path: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KindArg {
    Vm,
    Container,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AuthArg {
    Bearer,
    Basic,
    Signed,
}

pub(super) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let order = Order {
        name: args.name,
        kind: match args.kind {
            KindArg::Vm => Kind::Vm,
            KindArg::Container => Kind::Container,
        },
        auth: match args.auth {
            AuthArg::Bearer => Auth::Bearer,
            AuthArg::Basic => Auth::Basic,
            AuthArg::Signed => Auth::Signed,
        },
    };
    let is_sdk_of_registry = args.sdk_path.is_none();
    let place = Place::Outside {
        folder: cx.folder.join(args.path),
        sdk: match args.sdk_path {
            Some(path) => Sdk::Path(cx.folder.join(path)),
            None => Sdk::Version,
        },
    };
    let created = create(&order, &place).map_err(|error| CliError::Message(error.to_string()))?;
    if args.json {
        let folder = created.folder.display().to_string();
        return cx.ui.json(&serde_json::json!({
            "name": created.name,
            "package": created.package,
            "folder": folder,
            "files": created.files,
        }));
    }
    let folder = created.folder.display();
    cx.ui.line(format!(
        "Made {} in {folder}\n\n  cd {folder}\n  cargo test                   the conformance suite; it passes as it is\n  grep -rn {SEARCH_WORD} .        what to fill in; README.md tells more",
        created.package,
    ))?;
    if is_sdk_of_registry {
        cx.ui.line(
            "\nThe SDK comes from the registry. If cargo does not find it there, take a copy: remove the folder and make it again with\n--sdk-path DIR, where DIR is `backend-sdk` of the repository or has its unpacked packages.",
        )?;
    }
    Ok(())
}

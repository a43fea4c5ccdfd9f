//! The crate of a new backend, and the proof that one can be made outside of this repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use dstack_backend_scaffold::{Auth, Kind, Order, Place, SEARCH_WORD, Sdk, create};

use crate::process::{cargo, root, run as run_command, target};

/// Make the crate of a new backend in `backends/`; it builds, loads and conforms as it is
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name in camel case, e.g. ExampleXYZ: the backend is called examplexyz
    #[arg(short, long, required_unless_present = "check_outside")]
    name: Option<String>,
    /// What the provider rents out
    #[arg(long, value_enum, default_value_t = KindArg::Vm)]
    kind: KindArg,
    /// How its API is logged in to
    #[arg(long, value_enum, default_value_t = AuthArg::Bearer)]
    auth: AuthArg,
    /// Make nothing here: package the SDK, make a backend elsewhere on the packages alone, build and check it
    #[arg(long, conflicts_with = "name")]
    check_outside: bool,
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

impl Args {
    fn order(&self, name: &str) -> Order {
        Order {
            name: name.to_owned(),
            kind: match self.kind {
                KindArg::Vm => Kind::Vm,
                KindArg::Container => Kind::Container,
            },
            auth: match self.auth {
                AuthArg::Bearer => Auth::Bearer,
                AuthArg::Basic => Auth::Basic,
                AuthArg::Signed => Auth::Signed,
            },
        }
    }
}

/// The chore.
///
/// # Errors
/// If the name cannot be one, or something does not build or conform.
pub(crate) fn run(args: &Args) -> Result<()> {
    let Some(name) = &args.name else {
        return check_outside(args);
    };
    let created = create(&args.order(name), &Place::Repository(root()))?;
    println!(
        "made {}\n\n  cargo test -p {}    builds, loads, conforms\n  grep -rn {SEARCH_WORD} {}    what to fill in",
        created.folder.display(),
        created.package,
        created.folder.display(),
    );
    Ok(())
}

/// The crates that a backend elsewhere is built from; each after those it depends on.
const PACKAGES: &[&str] = &[
    "dstack-backend-types",
    "dstack-backend-abi",
    "dstack-backend-sdk",
    "dstack-backend-loader",
    "dstack-backend-conformance",
];

fn check_outside(args: &Args) -> Result<()> {
    let started = Instant::now();
    let work = target().join("outside");
    if work.exists() {
        fs::remove_dir_all(&work).context("cannot empty the folder of the check")?;
    }
    let vendor = work.join("vendor");
    fs::create_dir_all(&vendor)?;
    println!("==> packaging the SDK");
    for file in packages(&work)? {
        run_command(
            Command::new("tar")
                .arg("-xzf")
                .arg(&file)
                .arg("-C")
                .arg(&vendor),
        )?;
    }
    let place = Place::Outside {
        folder: work.join("crates"),
        sdk: Sdk::Path(vendor),
    };
    let created = create(&args.order("OutsideCheck"), &place)?;
    // The same versions of everything as here, so that nothing is fetched.
    fs::copy(root().join("Cargo.lock"), created.folder.join("Cargo.lock"))?;
    println!("==> building and checking {}", created.package);
    let mut test = cargo();
    test.current_dir(&created.folder)
        .args(["test", "--offline"])
        .env("CARGO_TARGET_DIR", work.join("target"));
    run_command(&mut test)?;
    println!(
        "outside of the repository: ok, {:.0} s",
        started.elapsed().as_secs_f32()
    );
    Ok(())
}

/// The `.crate` files, made without building them: in one call, since the crates they depend on are in no registry.
fn packages(work: &Path) -> Result<Vec<PathBuf>> {
    let mut command = cargo();
    command
        .args([
            "package",
            "--quiet",
            "--offline",
            "--no-verify",
            "--allow-dirty",
            "--exclude-lockfile",
        ])
        .env("CARGO_TARGET_DIR", work.join("packages"));
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    run_command(&mut command)?;
    let folder = work.join("packages/package");
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "crate")
        {
            files.push(path);
        }
    }
    if files.len() != PACKAGES.len() {
        bail!(
            "cargo package left {} files in {}, not {}",
            files.len(),
            folder.display(),
            PACKAGES.len()
        );
    }
    Ok(files)
}

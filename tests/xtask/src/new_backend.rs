//! The crate of a new backend, and the proof that one can be made outside of this repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use dstack_backend_scaffold::{Auth, Created, Kind, Order, Place, SEARCH_WORD, Sdk, create};

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

/// A folder with the packages, and the crates of backends made on them.
struct Outside {
    work: PathBuf,
    vendor: PathBuf,
}

impl Outside {
    /// Packages the SDK and unpacks it below `work`, which is emptied.
    fn prepare(work: PathBuf) -> Result<Self> {
        if work.exists() {
            fs::remove_dir_all(&work).context("cannot empty the folder of the check")?;
        }
        let vendor = work.join("vendor");
        fs::create_dir_all(&vendor)?;
        println!("==> packaging the SDK");
        for file in packages(&work)? {
            // With the time of now: the files of a package are all of the same day, and cargo tells fresh from stale by time.
            run_command(
                Command::new("tar")
                    .arg("-xzmf")
                    .arg(&file)
                    .arg("-C")
                    .arg(&vendor),
            )?;
        }
        Ok(Self { work, vendor })
    }

    fn make(&self, order: &Order) -> Result<Created> {
        let place = Place::Outside {
            folder: self.work.join("crates"),
            sdk: Sdk::Path(self.vendor.clone()),
        };
        let created = create(order, &place)?;
        // The same versions of everything as here, so that nothing is fetched.
        fs::copy(root().join("Cargo.lock"), created.folder.join("Cargo.lock"))?;
        Ok(created)
    }
}

/// Builds the crate and runs its tests, the conformance suite among them.
fn test(created: &Created, build: &Path) -> Result<()> {
    println!("==> building and checking {}", created.package);
    let mut test = cargo();
    test.current_dir(&created.folder)
        .args(["test", "--offline"])
        .env("CARGO_TARGET_DIR", build);
    run_command(&mut test)
}

fn check_outside(args: &Args) -> Result<()> {
    let began = Instant::now();
    let outside = Outside::prepare(target().join("outside"))?;
    let created = outside.make(&args.order("OutsideCheck"))?;
    let build = outside.work.join("target");
    test(&created, &build)?;
    let cold = began.elapsed();
    // As after a change by its author.
    let began = Instant::now();
    let source = created.folder.join("src/compute.rs");
    let text = fs::read_to_string(&source)?;
    fs::write(&source, format!("{text}\n// changed\n"))?;
    test(&created, &build)?;
    println!(
        "outside of the repository: ok, {:.0} s from nothing, {:.0} s after a change",
        cold.as_secs_f32(),
        began.elapsed().as_secs_f32()
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

#[cfg(test)]
mod tests {
    use cargo_metadata::MetadataCommand;
    use dstack_backend_scaffold::{Auth, Kind, Names, Order};

    use super::{Outside, test};
    use crate::process::{root, target};

    #[test]
    fn no_backend_can_be_called_like_a_crate_that_is_none() {
        let manifest = root().join("Cargo.toml");
        let metadata = MetadataCommand::new()
            .manifest_path(manifest)
            .no_deps()
            .exec()
            .unwrap();
        for package in metadata.workspace_packages() {
            let is_backend = package.manifest_path.starts_with(root().join("backends"));
            let Some(short) = package.name.strip_prefix("dstack-backend-") else {
                continue;
            };
            if !is_backend {
                assert!(Names::parse(short).is_err(), "{short}");
            }
        }
    }

    /// The other half of the kinds and logins is made inside of the repository by the tests of the scaffold.
    #[test]
    fn backends_made_elsewhere_build_load_and_conform_on_the_packaged_crates_alone() {
        let outside = Outside::prepare(target().join("outside-test")).unwrap();
        for (name, kind, auth) in [
            ("PasswordVm", Kind::Vm, Auth::Basic),
            ("TokenPod", Kind::Container, Auth::Bearer),
            ("SignedPod", Kind::Container, Auth::Signed),
        ] {
            let name = name.to_owned();
            let created = outside.make(&Order { name, kind, auth }).unwrap();
            // Into the folder that this test was built into: what the SDK depends on is mostly built there already.
            test(&created, &target()).unwrap();
        }
    }
}

//! What is made builds, loads and passes the conformance suite as it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dstack_backend_conformance::{Isolation, Suite, provider};
use dstack_backend_scaffold::{Auth, Kind, Order, Place, Sdk, create};

#[expect(
    clippy::disallowed_methods,
    reason = "cargo tells tests where they are"
)]
fn repository() -> PathBuf {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    Path::new(&here).ancestors().nth(2).unwrap().to_owned()
}

/// The target folder that this test was built in: most of what the new crates need is built already.
fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().to_owned()
}

fn cargo(folder: &Path, args: &[&str]) -> Output {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(folder)
        .args(args)
        .env("CARGO_TARGET_DIR", target());
    command.output().unwrap()
}

/// A workspace like this repository, without its crates but the SDK's, which stay where they are.
fn workspace(root: &Path) {
    let repository = repository();
    let manifest = fs::read_to_string(repository.join("Cargo.toml")).unwrap();
    let (head, rest) = manifest.split_once("members = [").unwrap();
    let (_, rest) = rest.split_once("[workspace.package]").unwrap();
    let own = format!("{head}members = [\"backends/*\"]\n[workspace.package]{rest}");
    let absolute = format!("path = \"{}/", repository.display());
    fs::write(root.join("Cargo.toml"), own.replace("path = \"", &absolute)).unwrap();
    fs::copy(repository.join("Cargo.lock"), root.join("Cargo.lock")).unwrap();
    fs::create_dir(root.join("backends")).unwrap();
}

/// The other half of the kinds and logins is made outside of the repository, on packages, by the tests of xtask.
#[test]
fn every_kind_and_login_builds_loads_and_conforms_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    workspace(root.path());
    for (name, kind, auth) in [
        ("TokenVm", Kind::Vm, Auth::Bearer),
        ("PasswordPod", Kind::Container, Auth::Basic),
        ("SignedVm", Kind::Vm, Auth::Signed),
    ] {
        let order = Order {
            name: name.to_owned(),
            kind,
            auth,
        };
        create(&order, &Place::Repository(root.path().to_owned())).unwrap();
    }
    let output = cargo(
        root.path(),
        &["test", "--offline", "--workspace", "--quiet"],
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert_eq!(text.matches("2 passed").count(), 3, "{text}");
    assert!(!errors.contains("warning"), "{errors}");
    for name in ["tokenvm", "passwordpod", "signedvm"] {
        conforms_to_the_program_beside_it(name);
    }
    let format = cargo(root.path(), &["fmt", "--all", "--check"]);
    let text = String::from_utf8_lossy(&format.stdout);
    assert!(format.status.success(), "not formatted: {text}");
}

/// What `dstack backend check FILE.so` does: it finds the fake provider that cargo has built beside the file.
fn conforms_to_the_program_beside_it(name: &str) {
    let file = target().join(format!("debug/deps/libdstack_backend_{name}.so"));
    let program = provider::beside(&file).unwrap_or_else(|| panic!("{name}: no provider"));
    let report = Suite::new(&file)
        .provider_program(&program)
        .isolation(Isolation::InProcess)
        .only(["config.accepted", "create", "terminate"])
        .report()
        .unwrap();
    let (passed, failed, skipped) = report.counts();
    assert!(
        (failed, skipped) == (0, 0) && passed > 3,
        "{name}: {report}"
    );
    assert!(
        report.notes[0].contains(&program.display().to_string()),
        "{report}"
    );
    let alone = Suite::new(&file)
        .isolation(Isolation::InProcess)
        .only(["create.made"])
        .report()
        .unwrap();
    assert!(
        alone.is_passed() && alone.to_string().contains("WERE NOT MADE"),
        "what is left out is said aloud: {alone}"
    );
}

#[test]
fn a_crate_on_its_own_takes_the_sdk_from_the_folder_it_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let order = Order {
        name: "Outside".to_owned(),
        kind: Kind::Container,
        auth: Auth::Signed,
    };
    let sdk = repository().join("backend-sdk");
    let place = Place::Outside {
        folder: folder.path().join("new"),
        sdk: Sdk::Path(sdk.clone()),
    };
    let created = create(&order, &place).unwrap();
    // The same versions of everything as here, so that nothing is fetched.
    fs::copy(
        repository().join("Cargo.lock"),
        created.folder.join("Cargo.lock"),
    )
    .unwrap();
    let output = cargo(&created.folder, &["tree", "--offline", "--edges", "all"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for short in ["sdk", "types", "abi", "conformance", "loader"] {
        let line = text
            .lines()
            .find(|line| line.contains(&format!("dstack-backend-{short} v")))
            .unwrap_or_else(|| panic!("no {short}: {text}"));
        assert!(
            line.contains(&sdk.join(short).display().to_string()),
            "{line}"
        );
    }
}

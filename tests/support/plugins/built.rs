//! Builds plugins and programs of this workspace and finds the files. Included by the tests that need them (`#[path]`).
#![allow(dead_code, reason = "each test needs another part")]

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

/// Builds the packages if need be and returns the `.so` file of each, in their order.
pub(crate) fn plugins(packages: &[&str]) -> Vec<PathBuf> {
    built(packages, |package| {
        format!("/lib{}.so", package.replace('-', "_"))
    })
}

/// The same for programs that are called like their package.
pub(crate) fn programs(packages: &[&str]) -> Vec<PathBuf> {
    built(packages, |package| format!("/{package}"))
}

fn built(packages: &[&str], ending: impl Fn(&str) -> String) -> Vec<PathBuf> {
    // Asked once for each package: cargo takes a moment, and a lock, to say that nothing is to be done.
    static KNOWN: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let missing: Vec<&str> = packages
        .iter()
        .copied()
        .filter(|package| !known.contains_key(*package))
        .collect();
    if !missing.is_empty() {
        let files = build(&missing, ending);
        known.extend(
            missing
                .iter()
                .map(|package| (*package).to_owned())
                .zip(files),
        );
    }
    packages
        .iter()
        .map(|package| known[*package].clone())
        .collect()
}

fn build(packages: &[&str], ending: impl Fn(&str) -> String) -> Vec<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--message-format=json"]);
    for package in packages {
        command.args(["--package", package]);
    }
    // The target folder is the one that this test was built in.
    let output = command
        .current_dir(std::env::var_os("CARGO_MANIFEST_DIR").unwrap())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "it does not build");
    let text = String::from_utf8(output.stdout).unwrap();
    let files = |package: &&str| {
        let ending = ending(package);
        let quoted = text.split('"').rfind(|word| word.ends_with(&ending));
        PathBuf::from(quoted.unwrap_or_else(|| panic!("{package} has no such file")))
    };
    packages.iter().map(files).collect()
}

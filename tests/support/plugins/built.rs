//! Builds plugins and programs of this workspace and finds the files. Included by the tests that need them (`#[path]`).
#![allow(dead_code, reason = "each test needs another part")]

use std::{
    path::PathBuf,
    process::{Command, Stdio},
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

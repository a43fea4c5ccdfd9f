//! Finds the plugins of this folder, built. Included by the tests that load them (`#[path]`).

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

/// Builds the packages if need be and returns the `.so` file of each, in their order.
pub(crate) fn plugins(packages: &[&str]) -> Vec<PathBuf> {
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
    assert!(output.status.success(), "the plugins do not build");
    let text = String::from_utf8(output.stdout).unwrap();
    let files = |package: &&str| {
        let ending = format!("/lib{}.so", package.replace('-', "_"));
        let quoted = text.split('"').find(|word| word.ends_with(&ending));
        PathBuf::from(quoted.unwrap_or_else(|| panic!("{package} has no .so file")))
    };
    packages.iter().map(files).collect()
}

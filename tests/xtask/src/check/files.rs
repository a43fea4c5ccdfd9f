//! Rules about files: folders at the top, lengths, crate docs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process::output;

/// A file longer than this has two subjects.
const LINES: usize = 600;
/// `lib.rs` is a table of contents.
const LIB_LINES: usize = 80;
/// A whole backend without its tests, since the examples promise that it takes no more.
const EXAMPLE_LINES: usize = 250;
/// What stands at the top, beside tool configuration and dot files.
const TOP: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "host",
    "backend-sdk",
    "backends",
    "agents",
    "examples",
    "tests",
    "CONTRIBUTING.md",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "rustfmt.toml",
    "clippy.toml",
    "deny.toml",
];

/// One line for each broken rule.
///
/// # Errors
/// If git or a file cannot be read.
pub(super) fn findings(root: &Path) -> Result<Vec<String>> {
    let list = output(Command::new("git").arg("-C").arg(root).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    let mut found = Vec::new();
    let mut examples: BTreeMap<&str, usize> = BTreeMap::new();
    for path in list.lines() {
        let top = path.split('/').next().unwrap_or(path);
        if !top.starts_with('.') && !TOP.contains(&top) {
            found.push(format!(
                "{path}: the top level is fixed; put it below one of its folders"
            ));
        }
        if !path.ends_with(".rs") {
            continue;
        }
        let Ok(text) = fs::read_to_string(root.join(path)) else {
            continue;
        };
        let lines = text.lines().count();
        if path.starts_with("examples/backend-")
            && let Some((example, _)) = path.split_once("/src/")
        {
            *examples.entry(example).or_default() += lines;
        }
        let is_test =
            path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs");
        if lines > LINES && !is_test {
            found.push(format!(
                "{path}: {lines} lines; over {LINES} a file has two subjects"
            ));
        }
        // What is frozen stays as it was.
        if path.ends_with("src/lib.rs") && !path.starts_with("tests/frozen/") {
            if !text.trim_start().starts_with("//!") && !text.contains("#![doc = include_str!") {
                found.push(format!(
                    "{path}: a crate begins with what it is, who uses it and what it must not touch"
                ));
            }
            if lines > LIB_LINES {
                found.push(format!(
                    "{path}: {lines} lines; lib.rs holds docs, mods and the public list only"
                ));
            }
        }
        if path.ends_with("/mod.rs") {
            found.push(format!(
                "{path}: name the file after its module, beside its folder"
            ));
        }
    }
    for (example, lines) in examples {
        if lines > EXAMPLE_LINES {
            found.push(format!(
                "{example}: {lines} lines without tests; a whole backend takes at most {EXAMPLE_LINES}"
            ));
        }
    }
    Ok(found)
}

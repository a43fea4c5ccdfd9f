//! Crates of the SDK in a folder.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::ScaffoldError;

/// What a backend and its tests are built from; dependencies of each other too.
const CRATES: &[&str] = &["types", "abi", "sdk", "loader", "conformance"];

/// The part of a manifest by which these crates come from `folder` and not from the registry.
pub(crate) fn patches(folder: &Path) -> Result<String, ScaffoldError> {
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let mut text = String::from("\n[patch.crates-io]\n");
    for short in CRATES {
        let package = format!("dstack-backend-{short}");
        let path = find(&folder, short, &package).ok_or_else(|| ScaffoldError::NoSdk {
            path: folder.clone(),
            package: package.clone(),
        })?;
        // Debug quotes and escapes as TOML does, for all that stands in a path. Writing to a string cannot fail.
        writeln!(
            text,
            "{package} = {{ path = {:?} }}",
            path.display().to_string()
        )
        .ok();
    }
    Ok(text)
}

/// `sdk` of a copy of the repository, or `dstack-backend-sdk-0.1.0` of an unpacked package.
fn find(folder: &Path, short: &str, package: &str) -> Option<PathBuf> {
    let has_manifest = |path: &PathBuf| path.join("Cargo.toml").is_file();
    let plain = folder.join(short);
    if has_manifest(&plain) {
        return Some(plain);
    }
    let mut versions: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let rest = name.to_str().and_then(|name| name.strip_prefix(package));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
        .map(|entry| entry.path())
        .filter(has_manifest)
        .collect();
    versions.sort();
    versions.pop()
}

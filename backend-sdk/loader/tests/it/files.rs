//! Files that are no plugins, and are told apart without anything of them running.

use crate::built::plugins;
use dstack_backend_loader::{InspectError, inspect};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn fake() -> Vec<u8> {
    fs::read(&plugins(&["dstack-backend-fake"])[0]).unwrap()
}

fn written(folder: &Path, bytes: &[u8]) -> PathBuf {
    let path = folder.join("file.so");
    fs::write(&path, bytes).unwrap();
    path
}

fn problem(bytes: &[u8]) -> InspectError {
    let folder = tempfile::tempdir().unwrap();
    inspect(&written(folder.path(), bytes)).unwrap_err()
}

#[test]
fn a_right_file_shows_its_manifest_and_hash() {
    let path = &plugins(&["dstack-backend-fake"])[0];
    let inspected = inspect(path).unwrap();
    assert_eq!(inspected.manifest.name, "fake");
    assert_eq!(inspected.manifest.provisioning_timeout_s, Some(60));
    assert!(inspected.manifest.has("create_instance") && inspected.manifest.has("multinode"));
    let sum = Command::new("sha256sum").arg(path).output().unwrap();
    assert_eq!(
        inspected.sha256,
        String::from_utf8_lossy(&sum.stdout)
            .split(' ')
            .next()
            .unwrap()
    );
}

#[test]
fn a_stripped_file_keeps_its_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), &fake());
    assert!(Command::new("strip").arg(&path).status().unwrap().success());
    assert_eq!(inspect(&path).unwrap().manifest.name, "fake");
}

#[test]
fn every_cut_of_a_file_is_refused() {
    let whole = fake();
    for percent in [0, 1, 5, 20, 50, 80, 95, 99] {
        let cut = whole.len() * percent / 100;
        let error = problem(&whole[..cut]);
        let is_right = match percent {
            0 => matches!(error, InspectError::NotElf),
            _ => matches!(error, InspectError::Truncated { .. }),
        };
        assert!(is_right, "{percent}%: {error}");
    }
    let error = problem(&whole[..40]);
    assert!(matches!(error, InspectError::Truncated { .. }), "{error}");
}

#[test]
fn what_is_no_elf_file_is_refused() {
    for bytes in [
        b"".as_slice(),
        b"#!/bin/sh\nexit 1\n",
        b"\x7fEL",
        &[0; 4096],
    ] {
        assert!(matches!(problem(bytes), InspectError::NotElf));
    }
}

#[test]
fn another_machine_is_named() {
    let mut bytes = fake();
    // The ELF header's machine field.
    bytes[18..20].copy_from_slice(
        &(if cfg!(target_arch = "aarch64") {
            62_u16
        } else {
            183
        })
        .to_le_bytes(),
    );
    let (file, host) = if cfg!(target_arch = "aarch64") {
        ("x86_64", "aarch64")
    } else {
        ("aarch64", "x86_64")
    };
    assert_eq!(
        problem(&bytes).to_string(),
        format!("built for {file}, this host is {host}")
    );
    bytes[4] = 1;
    assert_eq!(
        problem(&bytes).to_string(),
        "built for a 32-bit machine, this host is 64-bit little-endian"
    );
}

#[test]
fn an_object_file_is_no_shared_library() {
    let mut bytes = fake();
    bytes[16] = 1;
    assert!(matches!(problem(&bytes), InspectError::NotShared));
}

#[test]
fn a_library_without_a_manifest_is_refused_before_its_constructor_runs() {
    let path = &plugins(&["dstack-backend-no-manifest"])[0];
    // Its constructor aborts: if it ran, this test would be gone.
    assert!(matches!(
        inspect(path).unwrap_err(),
        InspectError::NoManifest
    ));
}

/// The file with its manifest replaced, byte for byte in place.
fn with_manifest(change: impl Fn(&str) -> String) -> InspectError {
    let mut bytes = fake();
    let old = inspect(&plugins(&["dstack-backend-fake"])[0])
        .unwrap()
        .manifest;
    let start = br#"{"schema":1,"name":"fake""#;
    let at = bytes
        .windows(start.len())
        .position(|window| window == start)
        .unwrap();
    let length = bytes[at..].iter().position(|byte| *byte == b'}').unwrap();
    // The manifest ends with the second closing bracket: `abi` is an object.
    let length = length
        + 2
        + bytes[at + length + 1..]
            .iter()
            .position(|byte| *byte == b'}')
            .unwrap();
    let text = std::str::from_utf8(&bytes[at..at + length])
        .unwrap()
        .to_owned();
    assert!(text.contains(&old.version));
    let mut new = change(&text);
    assert!(new.len() <= length, "{new}");
    new.push_str(&" ".repeat(length - new.len()));
    bytes[at..at + length].copy_from_slice(new.as_bytes());
    problem(&bytes)
}

#[test]
fn a_bad_manifest_is_named() {
    let error = with_manifest(|text| text.replace(r#""major":1"#, r#""major":2"#));
    assert_eq!(
        error.to_string(),
        "made for plugin interface 2, this host has 1"
    );
    let error = with_manifest(|text| text.replace("\"fake\"", "\"Fake\""));
    assert!(
        matches!(&error, InspectError::BadManifest { reason } if reason.contains("\"Fake\"")),
        "{error}"
    );
    let error = with_manifest(|text| text.replace("{\"schema\"", "(\"schema\""));
    assert!(matches!(error, InspectError::BadManifest { .. }), "{error}");
}

#[test]
fn what_is_no_regular_file_is_refused_and_never_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.so");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    assert!(matches!(
        inspect(&pipe).unwrap_err(),
        InspectError::NotRegular
    ));
    assert!(matches!(
        inspect(folder.path()).unwrap_err(),
        InspectError::NotRegular
    ));
    let dangling = folder.path().join("dangling.so");
    std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
    assert!(matches!(
        inspect(&dangling).unwrap_err(),
        InspectError::Read { .. }
    ));
}

#[test]
fn a_huge_file_is_refused_unread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge.so");
    fs::File::create(&path)
        .unwrap()
        .set_len(dstack_backend_loader::MAX_FILE_BYTES + 1)
        .unwrap();
    assert!(matches!(
        inspect(&path).unwrap_err(),
        InspectError::TooLarge { .. }
    ));
}

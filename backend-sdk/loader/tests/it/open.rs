//! Opening and calling, with the smallest host that can be.

use crate::built::plugins;
use dstack_backend_abi::{HostServices, RResult, RSlice, RStr, RVec, Reply};
use dstack_backend_loader::{OpenError, Plugin, inspect};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command, sync::Mutex};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

extern "C" fn log(
    _: *const (),
    call_id: u64,
    level: u32,
    target: RStr<'_>,
    message: RStr<'_>,
    fields: RStr<'_>,
) {
    LINES
        .lock()
        .unwrap()
        .push(format!("{call_id} {level} {target} {message} {fields}"));
}

extern "C" fn request(_: *const (), _: u64, _: u32, _: RSlice<'_, u8>) -> Reply {
    RResult::RErr(RVec::from(
        br#"{"kind":"unsupported","message":"no services here"}"#.to_vec(),
    ))
}

fn services() -> HostServices {
    HostServices {
        context: std::ptr::null(),
        log,
        request,
    }
}

/// A copy of its own: each test loads another file, so the statics of one do not meet the other's.
fn opened(package: &str, folder: &Path) -> Plugin {
    let path = folder.join("plugin.so");
    fs::copy(&plugins(&[package])[0], &path).unwrap();
    inspect(&path).unwrap().open(services()).unwrap()
}

fn error(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn a_plugin_opens_and_answers() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = opened("dstack-backend-misbehaving", folder.path());
    let backend = plugin
        .open_backend(br#"{"mode":"good","unknown":1}"#)
        .unwrap();
    let reply = backend.call(6, 1, b"{}").unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&reply).unwrap(),
        json!({"message": "good"})
    );
}

#[test]
fn a_panic_is_an_error_of_that_call_alone() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = opened("dstack-backend-misbehaving", folder.path());
    for mode in ["panic", "panic_payload"] {
        let backend = plugin
            .open_backend(format!(r#"{{"mode":"{mode}"}}"#).as_bytes())
            .unwrap();
        for _ in 0..2 {
            assert_eq!(
                error(&backend.call(6, 7, b"{}").unwrap_err())["kind"],
                "panic",
                "{mode}"
            );
        }
        assert!(
            backend
                .call(3, 8, br#"{"instance_id":"x","region":"y"}"#)
                .is_ok()
        );
    }
    let lines = LINES.lock().unwrap();
    let line = lines
        .iter()
        .find(|line| line.contains("a bug in the backend"))
        .unwrap();
    assert!(
        line.starts_with("7 1 panic") && line.contains("location"),
        "{line}"
    );
}

#[test]
fn events_reach_the_host_with_call_level_and_fields() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = opened("dstack-backend-misbehaving", folder.path());
    let backend = plugin.open_backend(br#"{"mode":"log"}"#).unwrap();
    backend.call(6, 21, b"{}").unwrap();
    let lines = LINES.lock().unwrap();
    let wanted =
        r#"21 2 dstack_backend_misbehaving::backend a line from the backend {"answer":42}"#;
    assert!(lines.iter().any(|line| line == wanted), "{lines:?}");
}

#[test]
fn wrong_calls_are_typed_errors() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = opened("dstack-backend-misbehaving", folder.path());
    assert_eq!(
        error(&plugin.open_backend(b"nonsense").unwrap_err())["kind"],
        "invalid"
    );
    let refused = error(
        &plugin
            .open_backend(br#"{"mode":"refuse_config"}"#)
            .unwrap_err(),
    );
    assert_eq!(
        (&refused["kind"], &refused["details"]["fields"]),
        (&json!("auth"), &json!(["token"]))
    );
    let backend = plugin.open_backend(br#"{"mode":"good"}"#).unwrap();
    assert_eq!(
        error(&backend.call(16, 1, b"{}").unwrap_err())["kind"],
        "unsupported"
    );
    assert_eq!(
        error(&backend.call(4_000_000, 1, b"{}").unwrap_err())["kind"],
        "unsupported"
    );
    assert_eq!(
        error(&backend.call(3, 1, b"[]").unwrap_err())["kind"],
        "invalid"
    );
}

#[test]
fn without_a_configuration_only_the_configurator_answers() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = opened("dstack-backend-fake", folder.path());
    let bare = plugin.open_backend(b"").unwrap();
    let schema: Value = serde_json::from_slice(&bare.call(259, 1, b"{}").unwrap()).unwrap();
    assert!(
        schema["schema"]["properties"]["folder"].is_object(),
        "{schema}"
    );
    assert_eq!(
        error(&bare.call(6, 1, b"{}").unwrap_err())["kind"],
        "invalid"
    );
}

#[test]
fn two_plugins_are_two_even_when_descriptors_are_reused() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = opened("dstack-backend-misbehaving", one.path());
    let second = opened("dstack-backend-fake", two.path());
    assert_eq!((first.name(), second.name()), ("misbehaving", "fake"));
    // Were it the first one again, its `init` would refuse a second time.
    assert!(second.open_backend(br#"{"folder":"/tmp"}"#).is_ok());
}

#[test]
fn the_same_file_again_refuses_to_start_twice() {
    let folder = tempfile::tempdir().unwrap();
    let _plugin = opened("dstack-backend-misbehaving", folder.path());
    let link = folder.path().join("link.so");
    std::os::unix::fs::symlink(folder.path().join("plugin.so"), &link).unwrap();
    let error = inspect(&link).unwrap().open(services()).unwrap_err();
    assert!(
        matches!(&error, OpenError::Init { reason } if reason.contains("already initialised")),
        "{error}"
    );
}

#[test]
fn what_says_that_it_is_a_backend_and_is_none_is_a_short_error() {
    let manifest = r#"{"schema":1,"name":"c","version":"1","sdk":"none","abi":{"major":1,"minor":0},"capabilities":[]}"#;
    for (code, word) in [
        ("int nothing;", "undefined symbol"),
        (
            "int nobody_has_this(void); int f(void) { return nobody_has_this(); }",
            "nobody_has_this",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (source, library) = (folder.path().join("c.c"), folder.path().join("c.so"));
        let section = format!(
            "__attribute__((section(\".dstack.plugin\"), used)) const char manifest[{}] = {manifest:?};\n{code}\n",
            manifest.len()
        );
        fs::write(&source, section).unwrap();
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .status()
            .unwrap();
        assert!(built.success());
        let error = inspect(&library).unwrap().open(services()).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, OpenError::Load { .. }), "{text}");
        assert!(
            text.contains(word) && text.lines().count() == 1 && text.len() < 400,
            "{text}"
        );
    }
}

#[test]
fn another_border_is_a_short_error() {
    let path = &plugins(&["dstack-backend-other-border"])[0];
    let error = inspect(path).unwrap().open(services()).unwrap_err();
    assert!(matches!(error, OpenError::Incompatible { .. }), "{error}");
    let text = error.to_string();
    assert!(text.lines().count() == 1 && text.len() < 400, "{text}");
}

#[test]
fn another_abi_stable_is_a_short_error() {
    let mut bytes = fs::read(&plugins(&["dstack-backend-fake"])[0]).unwrap();
    // Its header: 32 bytes of magic, then major and minor version.
    let magic = b"abi stable library for Rust";
    let places: Vec<usize> = bytes
        .windows(magic.len())
        .enumerate()
        .filter_map(|(at, window)| (window == magic).then_some(at))
        .collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at + 36..at + 40].copy_from_slice(&10_u32.to_le_bytes());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("older.so");
    fs::write(&path, bytes).unwrap();
    let error = inspect(&path).unwrap().open(services()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "incompatible interface: built with abi_stable 0.10"
    );
}

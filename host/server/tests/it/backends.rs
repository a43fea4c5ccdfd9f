//! A backend that an admin adds: where its credentials go, and what is counted of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use dstack_plugins::{PluginsConfig, write_lock};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::TestServer;

const TOKEN: &str = "hush-token-0123456789";
const BACKENDS: &str = "/api/project/main/backends";

/// A server with the plugin `fake` in its own process, and the plugin's folder.
fn with_fake(vars: &[(&str, &str)]) -> (TestServer, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("fake.so");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(&crate::built::plugins(&["dstack-backend-fake"])[0], &plugin).unwrap();
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o644)).unwrap();
    write_lock(folder.path()).unwrap();
    let plugins = PluginsConfig::new(vec![folder.path().to_owned()]);
    (TestServer::start_with(vars, plugins), folder)
}

fn config(folder: &Path, token: &str) -> Value {
    json!({"type": "fake", "folder": folder, "token": token})
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .flat_map(|entry| match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path()),
            false => vec![entry.path()],
        })
        .collect()
}

#[test]
fn credentials_are_stored_encrypted_and_shown_to_nobody_but_admins_who_ask() {
    let (server, folder) = with_fake(&[]);
    server.ok(&format!("{BACKENDS}/create"), config(folder.path(), TOKEN));
    let info = server.ok(&format!("{BACKENDS}/fake/config_info"), Value::Null);
    assert_eq!(info["token"], TOKEN, "sealed, but not lost");

    let has = |text: &str| {
        let all = files(server.folder.path()).into_iter();
        all.filter(|file| {
            let bytes = fs::read(file).unwrap();
            bytes
                .windows(text.len())
                .any(|window| window == text.as_bytes())
        })
        .collect::<Vec<_>>()
    };
    let clear = folder.path().display().to_string();
    assert!(!has(&clear).is_empty(), "what is no credential is readable");
    assert_eq!(has(TOKEN), [] as [PathBuf; 0]);

    let bearer = format!("Bearer {}", crate::client::ADMIN);
    let ours = [
        ("Authorization", bearer.as_str()),
        ("X-Dstack-Client", "1.0.0"),
    ];
    let project = server.send("/api/projects/main/get", None, &ours);
    assert!(
        project.text.contains("fake") && project.text.contains(&clear),
        "{}",
        project.text
    );
    let asked = [
        ("/api/x/plugins/list", None),
        ("/api/events/list", Some(json!({}))),
    ];
    for (path, body) in asked {
        let answer = server.send(path, body.as_ref(), &ours);
        assert!(
            answer.status == 200 && !answer.text.contains(TOKEN),
            "{path}"
        );
    }
    assert!(!project.text.contains(TOKEN));
}

#[test]
fn refused_credentials_are_named_by_their_field_and_change_nothing() {
    let (server, folder) = with_fake(&[]);
    let refused = server.post(
        &format!("{BACKENDS}/create"),
        config(folder.path(), "wrong"),
    );
    assert_eq!(refused.status, 400, "{}", refused.text);
    let detail = &refused.body["detail"][0];
    assert_eq!(
        (&detail["code"], &detail["fields"]),
        (&json!("invalid_credentials"), &json!(["token"]))
    );
    let unknown = server.post(&format!("{BACKENDS}/fake/config_info"), Value::Null);
    assert_eq!(unknown.status, 400, "{}", unknown.text);
}

#[test]
fn calls_of_a_backend_are_counted_by_method_and_kind_of_error() {
    let (server, folder) = with_fake(&[("DSTACK_ENABLE_PROMETHEUS_METRICS", "")]);
    for token in ["wrong", TOKEN] {
        server.post(&format!("{BACKENDS}/create"), config(folder.path(), token));
    }
    let text = server.get_with("/metrics", &[]).text;
    let of = "backend=\"fake\"";
    let validate = format!("{of},method=\"configurator.validate\"");
    for line in [
        format!("dstack_backend_calls_total{{{validate}}} 2"),
        format!("dstack_backend_call_errors_total{{{validate},kind=\"auth\"}} 1"),
        format!("dstack_backend_call_duration_seconds_count{{{validate}}} 2"),
        format!("dstack_backend_respawns_total{{{of}}} 0"),
        format!("dstack_backend_breaker_open{{{of}}} 0"),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    let usable = text
        .lines()
        .find(|line| line.starts_with(&format!("dstack_backend_usable{{{of},")));
    let usable = usable.unwrap_or_else(|| panic!("{text}"));
    assert!(
        usable.contains("isolation=\"in_process\"") && usable.ends_with(" 1"),
        "{usable}"
    );
}

//! Answers have the keys and types of recorded answers.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::client::TestServer;

pub(crate) fn recorded(file: &str, path: &str) -> (Value, Value) {
    let folder = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap())
        .join("../../tests/contract/wire");
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    let all: Vec<Value> = serde_json::from_str(&text).unwrap();
    let exchange = all
        .into_iter()
        .find(|exchange| exchange["path"] == path)
        .unwrap();
    (exchange["request"].clone(), exchange["response"].clone())
}

/// Where `ours` has other keys or other types than `theirs`. Null fits everything, an empty list every list.
pub(crate) fn differences(theirs: &Value, ours: &Value, at: &str, found: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Null, _) | (_, Value::Null) => {}
        (Value::Object(a), Value::Object(b)) => {
            let is_open = at.ends_with(".env") || at.ends_with(".options");
            for key in a.keys().filter(|key| !b.contains_key(*key) && !is_open) {
                found.push(format!("{at}.{key} is missing"));
            }
            for key in b.keys().filter(|key| !a.contains_key(*key) && !is_open) {
                found.push(format!("{at}.{key} is new"));
            }
            for (key, value) in a {
                if let Some(other) = b.get(key) {
                    differences(value, other, &format!("{at}.{key}"), found);
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            if let (Some(a), Some(b)) = (a.first(), b.first()) {
                differences(a, b, &format!("{at}[]"), found);
            }
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() == b.is_f64() => {}
        (Value::String(_), Value::String(_)) | (Value::Bool(_), Value::Bool(_)) => {}
        (a, b) => found.push(format!("{at}: {a} became {b}")),
    }
}

fn same_shape(server: &TestServer, file: &str, path: &str) -> Value {
    let (request, theirs) = recorded(file, path);
    let answer = server.post(path, request);
    assert_eq!(answer.status, 200, "{file} {path}: {}", answer.text);
    let mut found = Vec::new();
    differences(&theirs, &answer.body, "answer", &mut found);
    assert!(found.is_empty(), "{file} {path}:\n{}", found.join("\n"));
    answer.body
}

#[test]
fn applying_a_task_looks_as_recorded() {
    let server = TestServer::start(&[]);
    same_shape(&server, "project_add.json", "/api/projects/main/get");
    same_shape(
        &server,
        "fleet_apply.json",
        "/api/project/main/fleets/get_plan",
    );
    same_shape(
        &server,
        "fleet_apply.json",
        "/api/project/main/fleets/apply",
    );
    let file = "task_apply_no_capacity.json";
    assert_eq!(
        same_shape(&server, file, "/api/project/main/repos/init"),
        Value::Null
    );
    same_shape(&server, file, "/api/project/main/runs/get_plan");
    same_shape(&server, file, "/api/project/main/fleets/list");
    same_shape(&server, file, "/api/project/main/runs/apply");
    same_shape(&server, "ps_after_apply.json", "/api/runs/list");
    same_shape(&server, "event_list.json", "/api/events/list");
}

#[test]
fn plans_have_the_recorded_values() {
    let server = TestServer::start(&[]);
    for file in [
        "task_apply_no_capacity.json",
        "dev_apply.json",
        "service_apply.json",
    ] {
        let (request, theirs) = recorded(file, "/api/project/main/runs/get_plan");
        let ours = server.ok("/api/project/main/runs/get_plan", request);
        assert_eq!(ours["run_spec"], theirs["run_spec"], "{file}");
        let mut effective = ours["effective_run_spec"].clone();
        assert!(effective["ssh_key_pub"].is_string());
        effective["ssh_key_pub"] = theirs["effective_run_spec"]["ssh_key_pub"].clone();
        assert_eq!(effective, theirs["effective_run_spec"], "{file}");
        let (ours, theirs) = (
            &ours["job_plans"][0]["job_spec"],
            &theirs["job_plans"][0]["job_spec"],
        );
        for key in [
            "job_name",
            "app_specs",
            "user",
            "image_name",
            "requirements",
            "retry",
            "service_port",
            "probes",
        ] {
            assert_eq!(ours[key], theirs[key], "{file} {key}");
        }
    }
}

#[test]
fn service_shows_where_it_is_reached() {
    let server = TestServer::start(&[]);
    let (request, theirs) = recorded("service_apply.json", "/api/project/main/runs/apply");
    let ours = server.ok("/api/project/main/runs/apply", request);
    assert_eq!(ours["service"], theirs["service"]);
}

#[test]
fn small_answers_are_equal() {
    let server = TestServer::start(&[]);
    for (file, path) in [
        ("missing_run.json", "/api/project/main/runs/get"),
        ("api_runs_stop_unknown.json", "/api/project/main/runs/stop"),
        ("api_logs_descending.json", "/api/project/main/logs/poll"),
        (
            "api_get_archive_missing.json",
            "/api/files/get_archive_by_hash",
        ),
        ("api_repo_get_missing.json", "/api/project/main/repos/get"),
        (
            "secret_delete_missing.json",
            "/api/project/main/secrets/delete",
        ),
        ("fleet_delete_missing.json", "/api/project/main/fleets/get"),
        (
            "volume_delete_missing.json",
            "/api/project/main/volumes/get",
        ),
        ("offer_group.json", "/api/project/main/gpus/list"),
    ] {
        let (request, theirs) = recorded(file, path);
        assert_eq!(server.post(path, request).body, theirs, "{file}");
    }
    assert_eq!(
        server
            .post("/api/projects/list", json!({}))
            .body
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

//! Runs: planned, applied, changed, ended; and their logs.

use serde_json::{Value, json};

use crate::client::TestServer;
use crate::support::{apply, code, task};

#[test]
fn a_run_is_planned_submitted_stopped_and_deleted() {
    let server = TestServer::start(&[]);
    let plan = server.ok(
        "/api/project/main/runs/get_plan",
        json!({"run_spec": task("one-run")}),
    );
    assert_eq!(
        (&plan["action"], &plan["current_resource"]),
        (&json!("create"), &Value::Null)
    );
    assert_eq!(
        plan["run_spec"]["configuration"]["nodes"], 1,
        "clients need a number"
    );
    assert_eq!(plan["run_spec"]["ssh_key_pub"], Value::Null);
    let me = server.ok("/api/users/get_my_user", Value::Null);
    assert_eq!(
        plan["effective_run_spec"]["ssh_key_pub"], me["ssh_public_key"],
        "attach compares them byte by byte"
    );
    assert_eq!(plan["job_plans"][0]["job_spec"]["job_name"], "one-run-0-0");

    let run = apply(&server, &plan["run_spec"], &Value::Null, false);
    assert_eq!(run.status, 200, "{}", run.text);
    assert_eq!(
        (
            &run.body["status"],
            &run.body["jobs"][0]["job_submissions"][0]["status"]
        ),
        (&json!("submitted"), &json!("submitted"))
    );
    let read = server.ok("/api/project/main/runs/get", json!({"run_name": "one-run"}));
    assert_eq!(read["id"], run.body["id"]);
    assert_eq!(
        server.ok("/api/project/main/runs/get", json!({"id": run.body["id"]}))["run_spec"]["run_name"],
        "one-run"
    );
    let listed = server.ok(
        "/api/runs/list",
        json!({"project_name": "main", "only_active": true, "job_submissions_limit": 0}),
    );
    assert_eq!(
        listed[0]["jobs"][0]["job_submissions"],
        json!([]),
        "specs without tries"
    );
    assert_eq!(
        code(&server.post(
            "/api/project/main/runs/delete",
            json!({"runs_names": ["one-run"]})
        )),
        "error"
    );

    server.ok(
        "/api/project/main/runs/stop",
        json!({"runs_names": ["one-run", "unknown"], "abort": false}),
    );
    let read = server.ok("/api/project/main/runs/get", json!({"run_name": "one-run"}));
    assert_eq!(
        (&read["status"], &read["termination_reason"]),
        (&json!("terminating"), &json!("stopped_by_user"))
    );
    assert_eq!(
        code(&server.post("/api/project/main/runs/get", json!({"run_name": "unknown"}))),
        "resource_not_exists"
    );
    let events = server.ok("/api/events/list", json!({"within_runs": [read["id"]]}));
    assert!(
        events
            .as_array()
            .unwrap()
            .iter()
            .any(|event| event["actor_user"] == "admin"),
        "{events}"
    );
}

#[test]
fn an_active_run_changes_in_place_or_not_at_all() {
    let server = TestServer::start(&[]);
    let run = apply(&server, &task("two-run"), &Value::Null, false);
    assert_eq!(run.status, 200, "{}", run.text);
    let mut changed = task("two-run");
    changed["configuration"]["priority"] = json!(50);
    let plan = server.ok(
        "/api/project/main/runs/get_plan",
        json!({"run_spec": changed}),
    );
    assert_eq!(plan["action"], "update");
    assert!(
        apply(&server, &changed, &Value::Null, false)
            .text
            .contains("Resource has been changed")
    );
    let updated = apply(&server, &changed, &plan["current_resource"], false);
    assert_eq!(
        (updated.status, &updated.body["deployment_num"]),
        (200, &json!(1)),
        "{}",
        updated.text
    );
    assert!(
        apply(&server, &changed, &plan["current_resource"], false)
            .text
            .contains("Resource has been changed")
    );
    assert_eq!(
        apply(&server, &changed, &Value::Null, true).status,
        200,
        "forced"
    );
    changed["configuration"]["commands"] = json!(["echo other"]);
    let refused = apply(&server, &changed, &Value::Null, true);
    assert_eq!(
        refused.body["detail"][0]["msg"],
        "Cannot override active run. Stop the run first."
    );
    let plan = server.ok(
        "/api/project/main/runs/get_plan",
        json!({"run_spec": changed}),
    );
    assert_eq!(plan["action"], "create");
}

#[test]
fn a_run_without_a_name_gets_one_and_pages_show_each_once() {
    let server = TestServer::start(&[]);
    let mut names = Vec::new();
    for _ in 0..5 {
        let mut spec = task("x");
        spec["run_name"] = Value::Null;
        spec["configuration"]["name"] = Value::Null;
        let run = apply(&server, &spec, &Value::Null, false);
        assert_eq!(run.status, 200, "{}", run.text);
        names.push(
            run.body["run_spec"]["run_name"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    let (mut seen, mut cursor) = (Vec::new(), json!({}));
    loop {
        let mut body = json!({"limit": 2});
        body.as_object_mut()
            .unwrap()
            .extend(cursor.as_object().unwrap().clone());
        let page = server.ok("/api/runs/list", body);
        let Some(last) = page.as_array().unwrap().last() else {
            break;
        };
        cursor = json!({"prev_submitted_at": last["submitted_at"], "prev_run_id": last["id"]});
        seen.extend(
            page.as_array()
                .unwrap()
                .iter()
                .map(|run| run["run_spec"]["run_name"].as_str().unwrap().to_owned()),
        );
    }
    names.sort();
    seen.sort();
    assert_eq!(seen, names);
}

#[test]
fn what_would_not_happen_is_refused() {
    let server = TestServer::start(&[]);
    let plan = |more: Value| {
        let mut configuration = json!({"type": "task", "image": "i", "commands": ["true"]});
        let keys = more.as_object().unwrap().clone();
        configuration.as_object_mut().unwrap().extend(keys);
        let spec = json!({"run_name": "run", "configuration": configuration, "ssh_key_pub": "ssh-ed25519 AAAA"});
        let answer = server.post("/api/project/main/runs/get_plan", json!({"run_spec": spec}));
        (answer.status, answer.text)
    };
    for fine in [
        json!({}),
        json!({"volumes": ["/folder:/data"]}),
        json!({"utilization_policy": {"min_gpu_utilization": 10, "time_window": "1h"}}),
    ] {
        let (status, text) = plan(fine);
        assert_eq!(status, 200, "{text}");
    }
    for (more, word) in [
        (json!({"dstack": true}), "dstack: true"),
        (
            json!({"utilization_policy": {"min_gpu_utilization": 10, "time_window": "2h"}}),
            "metrics are kept for 3600 s",
        ),
    ] {
        let (status, text) = plan(more);
        assert!(status == 400 && text.contains(word), "{status} {text}");
    }
    let service = server.get("/proxy/services/main/r/");
    assert!(
        service.status == 501 && service.text.contains("Services"),
        "{}",
        service.text
    );
}

#[test]
fn logs_of_what_is_not_there_are_empty() {
    let server = TestServer::start(&[]);
    let ask = |name: &str, token: Value| {
        server.post("/api/project/main/logs/poll", json!({"run_name": name, "job_submission_id": "11111111-1111-4111-8111-111111111111", "next_token": token}))
    };
    for name in ["unknown", "../../../etc", ""] {
        assert_eq!(
            ask(name, Value::Null).body,
            json!({"logs": [], "external_url": null, "next_token": null})
        );
    }
    let bad = ask("unknown", json!("x"));
    assert_eq!(
        bad.body["detail"][0]["msg"],
        "Invalid next_token: x. Must be a non-negative integer."
    );
}

#[test]
fn logs_are_read_by_the_run_they_belong_to() {
    let server = TestServer::start(&[]);
    let run = apply(&server, &task("talks"), &Value::Null, false).body;
    let id = run["jobs"][0]["job_submissions"][0]["id"].as_str().unwrap();
    let folder = server
        .folder
        .path()
        .join(format!(".dstack/server/projects/main/logs/talks/{id}"));
    std::fs::create_dir_all(&folder).unwrap();
    let line = "{\"timestamp\":\"2026-01-01T00:00:00Z\",\"log_source\":\"stdout\",\"message\":\"hi\\n\"}\n";
    std::fs::write(folder.join("job.log"), line).unwrap();
    let ask = |name: &str| {
        server.ok(
            "/api/project/main/logs/poll",
            json!({"run_name": name, "job_submission_id": id}),
        )
    };
    assert_eq!(ask("talks")["logs"][0]["message"], "aGkK");
    assert_eq!(ask("other")["logs"], json!([]));
}

//! Smaller operations, each with its effect.

use serde_json::{Value, json};

use crate::client::TestServer;
use crate::support::{code, task};

fn kinds(answer: &crate::client::Answer) -> Vec<&str> {
    let detail = answer.body["detail"].as_array().map(Vec::as_slice);
    let kind = |one: &'static str| move |problem: &Value| problem[one].as_str().is_some();
    assert!(
        detail.unwrap_or_default().iter().all(kind("type")),
        "{}",
        answer.text
    );
    let detail = answer.body["detail"].as_array().unwrap();
    detail
        .iter()
        .map(|one| one["type"].as_str().unwrap())
        .collect()
}

#[test]
fn what_is_no_json_is_told_before_who_asks() {
    let server = TestServer::start(&[]);
    let path = "/api/project/main/runs/get";
    for token in [None, Some("nobody"), Some(crate::client::ADMIN)] {
        let broken = server.post_text(path, "{\"run_name\": ", token);
        assert_eq!(broken.status, 422, "{token:?}: {}", broken.text);
        assert_eq!(kinds(&broken), ["json_invalid"]);
        assert_eq!(broken.body["detail"][0]["loc"][0], "body");
    }
    assert_eq!(server.post_text(path, "[]", None).status, 401);
    let list = server.post_text(path, "[]", Some(crate::client::ADMIN));
    assert_eq!(list.status, 422, "a list is no object: {}", list.text);
    let list = server.post_text("/api/projects/list", "[]", Some(crate::client::ADMIN));
    assert_eq!(list.status, 422, "{}", list.text);
    let ignored = server.post_text("/api/users/get_my_user", "{", Some(crate::client::ADMIN));
    assert_eq!(ignored.status, 200, "this operation has no body");
}

#[test]
fn public_keys_come_and_go() {
    let server = TestServer::start(&[]);
    let key = dstack_remote::KeyPair::generate("me@example")
        .unwrap()
        .public;
    assert_eq!(
        server.ok("/api/users/public_keys/list", Value::Null),
        json!([])
    );
    let added = server.ok("/api/users/public_keys/add", json!({"key": key}));
    assert_eq!(
        (&added["name"], &added["type"]),
        (&json!("me@example"), &json!("ssh-ed25519"))
    );
    assert!(
        added["fingerprint"]
            .as_str()
            .unwrap()
            .starts_with("SHA256:")
    );
    let again = server.post(
        "/api/users/public_keys/add",
        json!({"key": key, "name": "x"}),
    );
    assert_eq!(code(&again), "resource_exists");
    for wrong in [
        "garbage",
        "",
        "ssh-ed25519 AAAA",
        "ssh-dss AAAAB3NzaC1kc3MAAACBAA==",
    ] {
        let refused = server.post("/api/users/public_keys/add", json!({"key": wrong}));
        assert_eq!((refused.status, code(&refused)), (400, "error"), "{wrong}");
    }
    let ids = json!({"ids": [added["id"], "00000000-0000-4000-8000-000000000001"]});
    assert_eq!(server.ok("/api/users/public_keys/delete", ids), Value::Null);
    assert_eq!(
        server.ok("/api/users/public_keys/list", Value::Null),
        json!([])
    );
    let events = server.ok("/api/events/list", json!({"limit": 2}));
    let of = |index: usize| events[index]["message"].as_str().unwrap().to_owned();
    assert!(
        of(0).starts_with("Public key deleted. Fingerprint: SHA256:"),
        "{}",
        of(0)
    );
    assert!(
        of(1).starts_with("Public key added. Fingerprint: SHA256:"),
        "{}",
        of(1)
    );
}

#[test]
fn events_are_found_by_every_filter() {
    let server = TestServer::start(&[]);
    let project = server.ok("/api/projects/main/get", Value::Null);
    let (project_id, admin_id) = (
        project["project_id"].clone(),
        project["owner"]["id"].clone(),
    );
    let secret = server.ok(
        "/api/project/main/secrets/create_or_update",
        json!({"name": "s", "value": "v"}),
    );
    let plan =
        json!({"plan": {"run_spec": task("train-1"), "current_resource": null}, "force": false});
    let run = server.ok("/api/project/main/runs/apply", plan);
    let fleet = json!({"configuration": {"type": "fleet", "name": "f1", "nodes": 0}, "profile": {"name": "default"}});
    let fleet = server.ok(
        "/api/project/main/fleets/apply",
        json!({"plan": {"spec": fleet, "current_resource": null}, "force": false}),
    );
    let messages = |filter: Value| -> Vec<String> {
        let events = server.ok("/api/events/list", filter);
        let text = |event: &Value| event["message"].as_str().unwrap().to_owned();
        events.as_array().unwrap().iter().map(text).collect()
    };
    let job = &run["jobs"][0]["job_submissions"][0]["id"];
    for (filter, wanted) in [
        (json!({"target_secrets": [secret["id"]]}), "Secret created"),
        (
            json!({"target_runs": [run["id"]]}),
            "Run submitted. Status: SUBMITTED",
        ),
        (
            json!({"target_jobs": [job]}),
            "Job created on run submission. Status: SUBMITTED",
        ),
        (json!({"target_fleets": [fleet["id"]]}), "Fleet created"),
        (json!({"target_projects": [project_id]}), "Project created"),
        (json!({"target_users": [admin_id]}), "User created"),
        (
            json!({"within_runs": [run["id"]]}),
            "Job created on run submission. Status: SUBMITTED",
        ),
        (json!({"within_fleets": [fleet["id"]]}), "Fleet created"),
        (json!({"within_projects": [project_id]}), "Secret created"),
        (
            json!({"include_target_types": ["secret"]}),
            "Secret created",
        ),
        (
            json!({"actors": [null]}),
            "Job created on run submission. Status: SUBMITTED",
        ),
        (
            json!({"actors": [admin_id]}),
            "Run submitted. Status: SUBMITTED",
        ),
    ] {
        let found = messages(filter.clone());
        assert!(
            found.iter().any(|one| one.starts_with(wanted)),
            "{filter}: {found:?}"
        );
    }
    let none = json!(["00000000-0000-4000-8000-000000000001"]);
    for filter in [
        "target_instances",
        "target_volumes",
        "target_gateways",
        "target_gateway_replicas",
        "target_presets",
        "within_gateways",
        "target_runs",
        "within_projects",
    ] {
        assert_eq!(messages(json!({filter: none})), [""; 0], "{filter}");
    }
    for wrong in [
        json!({"target_runs": none, "target_fleets": none}),
        json!({"within_runs": none, "within_fleets": none}),
        json!({"limit": 0}),
        json!({"limit": 101}),
        json!({"target_runs": []}),
        json!({"include_target_types": ["planet"]}),
    ] {
        let answer = server.post("/api/events/list", wrong.clone());
        assert_eq!(answer.status, 422, "{wrong}: {}", answer.text);
    }
    let newest = messages(json!({"limit": 1}));
    let oldest = messages(json!({"limit": 1, "ascending": true}));
    assert_ne!(newest, oldest);
}

#[test]
fn templates_come_from_us_where_there_is_no_repository() {
    let server = TestServer::start(&[]);
    let list = server.ok("/api/project/main/templates/list", Value::Null);
    let names: Vec<&str> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["dev-environment", "task", "vllm"]);
    assert_eq!(list[0]["type"], "template");
    let bad = server.post(
        "/api/projects/main/update",
        json!({"templates_repo": "/etc"}),
    );
    assert_eq!(bad.status, 400);
    assert!(
        bad.text.contains("Cannot access templates repo: /etc"),
        "{}",
        bad.text
    );
}

#[test]
fn a_login_at_a_command_line_goes_back_to_it() {
    let server = TestServer::start(&[]);
    assert_eq!(
        server.ok("/api/auth/list_providers", Value::Null),
        json!([])
    );
    let ask = |state: &str| {
        let body = json!({"code": "a/b", "state": state});
        server.send("/api/auth/get_next_redirect", Some(&body), &[])
    };
    // {"value":"ff","local_port":4000}
    let state = "eyJ2YWx1ZSI6ImZmIiwibG9jYWxfcG9ydCI6NDAwMH0=";
    let url = ask(state).body["redirect_url"].as_str().unwrap().to_owned();
    assert!(
        url.starts_with("http://localhost:4000/auth/callback?code=a%2Fb&state="),
        "{url}"
    );
    // {"value":"ff"}
    assert_eq!(
        ask("eyJ2YWx1ZSI6ImZmIn0=").body,
        json!({"redirect_url": null})
    );
    assert_eq!(ask("%%%").status, 400);
}

#[test]
fn backends_of_no_plugin_are_refused_with_the_reason() {
    let server = TestServer::start(&[]);
    let path = "/api/project/main/backends";
    let unknown = server.post(
        &format!("{path}/create"),
        json!({"type": "nothing", "creds": {}}),
    );
    assert_eq!(unknown.status, 422, "{}", unknown.text);
    assert_eq!(unknown.body["detail"][0]["loc"], json!(["body", "type"]));
    assert_eq!(
        server
            .post(&format!("{path}/create"), json!({"creds": {}}))
            .status,
        422
    );
    let gone = server.post(&format!("{path}/update"), json!({"type": "nothing"}));
    assert_eq!(code(&gone), "resource_not_exists");
    let yaml = server.post(&format!("{path}/create_yaml"), json!({"config_yaml": "["}));
    assert_eq!(
        (code(&yaml), yaml.body["detail"][0]["msg"].as_str().unwrap()),
        ("error", "Error parsing YAML")
    );
    assert_eq!(
        code(&server.post(&format!("{path}/gcp/config_info"), Value::Null)),
        "resource_not_exists"
    );
    assert_eq!(
        code(&server.post(&format!("{path}/gcp/get_yaml"), Value::Null)),
        "resource_not_exists"
    );
    assert_eq!(
        server.ok(
            &format!("{path}/delete"),
            json!({"backends_names": ["gcp"]})
        ),
        Value::Null
    );
}

#[test]
fn metrics_and_health_of_what_is_not_there() {
    let server = TestServer::start(&[]);
    let bearer = format!("Bearer {}", crate::client::ADMIN);
    let get = |path: &str| server.get_with(path, &[("Authorization", &bearer)]);
    let missing = get("/api/project/main/metrics/job/nosuch");
    assert_eq!(
        missing.body["detail"][0]["msg"],
        "Found no job with given parameters"
    );
    assert_eq!(
        get("/api/project/main/metrics/job/nosuch?limit=many").status,
        422
    );
    let plan =
        json!({"plan": {"run_spec": task("train-1"), "current_resource": null}, "force": false});
    server.ok("/api/project/main/runs/apply", plan);
    let path = "/api/project/main/metrics/job/train-1?replica_num=0&job_num=0&limit=5";
    assert_eq!(get(path).body, json!({"metrics": []}));
    let health = json!({"fleet_name": "f", "instance_num": 0});
    let health = server.post(
        "/api/project/main/instances/get_instance_health_checks",
        health,
    );
    assert_eq!(code(&health), "resource_not_exists");
}

#[test]
fn the_ssh_proxy_has_a_token_of_its_own() {
    let ask = |server: &TestServer, token: &str| {
        server.post_as(token, "/api/sshproxy/get_upstream", json!({"id": "x"}))
    };
    let server = TestServer::start(&[]);
    assert_eq!(ask(&server, crate::client::ADMIN).status, 403);
    let server = TestServer::start(&[
        ("DSTACK_SERVER_SSHPROXY_ADDRESS", "proxy.example:2222"),
        ("DSTACK_SSHPROXY_API_TOKEN", "of the proxy"),
    ]);
    assert_eq!(ask(&server, crate::client::ADMIN).status, 403);
    let unknown = ask(&server, "of the proxy");
    assert_eq!(code(&unknown), "resource_not_exists", "{}", unknown.text);
}

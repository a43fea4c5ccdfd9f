//! What requests do, and how they are refused.

use serde_json::{Value, json};

use crate::client::{ADMIN, TestServer};

fn task(name: &str) -> Value {
    json!({"run_name": name, "configuration": {"type": "task", "name": name, "commands": ["echo hello"], "image": "scratch", "user": "root"}})
}

fn apply(server: &TestServer, spec: &Value, current: &Value, force: bool) -> crate::client::Answer {
    let plan = json!({"run_spec": spec, "current_resource": current});
    server.post(
        "/api/project/main/runs/apply",
        json!({"plan": plan, "force": force}),
    )
}

fn code(answer: &crate::client::Answer) -> &str {
    answer.body["detail"][0]["code"]
        .as_str()
        .unwrap_or_default()
}

/// A body that comes after the answer is still read, so the connection can be used again.
#[test]
fn a_late_body_does_not_cost_the_connection() {
    use std::io::{Read as _, Write as _};
    let server = TestServer::start(&[]);
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let patience = Some(std::time::Duration::from_secs(20));
    stream.set_read_timeout(patience).unwrap();
    for _ in 0..3 {
        let head = "POST /api/nope HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"}") {
            let mut some = [0; 512];
            let count = stream.read(&mut some).unwrap();
            assert!(count > 0, "closed: {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&some[..count]);
        }
        stream.write_all(b"{}").unwrap();
    }
}

#[test]
fn who_may_ask() {
    let server = TestServer::start(&[]);
    assert_eq!(
        server.get("/healthcheck").body,
        json!({"status": "running"})
    );
    let info = server.send("/api/server/get_info", None, &[]);
    assert_eq!(info.body, json!({"server_version": "0.22.5"}));
    assert!(info.host_version.is_some());
    let none = server.send("/api/users/get_my_user", None, &[]);
    assert_eq!(
        (none.status, none.text.as_str()),
        (401, r#"{"detail":"Not authenticated"}"#)
    );
    let wrong = server.post_as("nobody", "/api/users/get_my_user", Value::Null);
    assert_eq!(
        (wrong.status, wrong.text.as_str()),
        (403, r#"{"detail":{"msg":"Invalid token","code":null}}"#)
    );
    let project = server.post("/api/project/nowhere/runs/get", json!({"run_name": "x"}));
    assert_eq!(
        (project.status, project.text.as_str()),
        (404, r#"{"detail":{"msg":"Not found","code":null}}"#)
    );
    assert_eq!(
        server.post("/api/nope", json!({})).text,
        r#"{"detail":"Method Not Allowed"}"#
    );
    assert_eq!(server.get("/api/nope").status, 404);
    let newer = server.send("/api/server/get_info", None, &[("X-API-VERSION", "0.23.0")]);
    assert_eq!(newer.status, 400);
    assert!(newer.text.contains(
        "The client/CLI version (0.23.0) is incompatible with the server version (0.22.5)."
    ));
    assert_eq!(
        server
            .send(
                "/api/server/get_info",
                None,
                &[("X-API-VERSION", "0.22.99")]
            )
            .status,
        200
    );
}

#[test]
fn first_start_makes_admin_project_and_key() {
    let server = TestServer::start(&[]);
    let me = server.ok("/api/users/get_my_user", Value::Null);
    assert_eq!(
        (&me["username"], &me["creds"]["token"]),
        (&json!("admin"), &json!(ADMIN))
    );
    assert!(
        me["ssh_public_key"]
            .as_str()
            .unwrap()
            .starts_with("ssh-ed25519 ")
    );
    assert!(
        me["ssh_private_key"]
            .as_str()
            .unwrap()
            .contains("OPENSSH PRIVATE KEY")
    );
    let project = server.ok("/api/projects/main/get", Value::Null);
    assert_eq!(project["members"][0]["project_role"], "admin");
    let config =
        std::fs::read_to_string(server.folder.path().join(".dstack/server/config.yml")).unwrap();
    assert!(config.contains("type: aes"), "{config}");
    let database =
        std::fs::read(server.folder.path().join(".dstack/server/data/sqlite.db")).unwrap();
    assert!(
        !database
            .windows(ADMIN.len())
            .any(|bytes| bytes == ADMIN.as_bytes()),
        "the token is not stored in plain"
    );
}

#[test]
fn users_come_change_and_go() {
    let server = TestServer::start(&[]);
    let create = |name: &str| {
        server.post(
            "/api/users/create",
            json!({"username": name, "global_role": "user"}),
        )
    };
    assert_eq!(create("alice").status, 200);
    assert_eq!(code(&create("Alice")), "resource_exists");
    assert_eq!(code(&create("a b")), "error");
    let alice = server.ok("/api/users/get_user", json!({"username": "alice"}));
    let token = alice["creds"]["token"].as_str().unwrap().to_owned();
    assert_eq!(
        server
            .post_as(&token, "/api/users/list", Value::Null)
            .body
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        server
            .post_as(
                &token,
                "/api/users/create",
                json!({"username": "b", "global_role": "user"})
            )
            .status,
        403
    );
    assert_eq!(
        code(&server.post_as(&token, "/api/users/get_user", json!({"username": "admin"}))),
        "resource_not_exists"
    );
    assert_eq!(
        server
            .post_as(
                &token,
                "/api/project/main/runs/get",
                json!({"run_name": "x"})
            )
            .status,
        403
    );
    let fresh = server.ok("/api/users/refresh_token", json!({"username": "alice"}));
    assert_eq!(
        server
            .post_as(&token, "/api/users/get_my_user", Value::Null)
            .status,
        403,
        "the old token ends at once"
    );
    let token = fresh["creds"]["token"].as_str().unwrap().to_owned();
    server.ok(
        "/api/users/update",
        json!({"username": "alice", "global_role": "user", "active": false}),
    );
    assert_eq!(
        server
            .post_as(&token, "/api/users/get_my_user", Value::Null)
            .status,
        403,
        "not active"
    );
    server.ok("/api/users/delete", json!({"users": ["alice"]}));
    assert_eq!(create("alice").status, 200, "the name is free again");
    assert_eq!(
        server
            .post("/api/users/delete", json!({"users": ["admin"]}))
            .status,
        400
    );
    let counted = server.ok(
        "/api/users/list",
        json!({"return_total_count": true, "limit": 1}),
    );
    assert_eq!(
        (
            &counted["total_count"],
            counted["users"].as_array().unwrap().len()
        ),
        (&json!(2), 1)
    );
}

#[test]
fn members_have_roles() {
    let server = TestServer::start(&[]);
    let token = |name: &str| {
        server.ok(
            "/api/users/create",
            json!({"username": name, "global_role": "user"}),
        );
        let user = server.ok("/api/users/get_user", json!({"username": name}));
        user["creds"]["token"].as_str().unwrap().to_owned()
    };
    let (ann, bob) = (token("ann"), token("bob"));
    let made = server.post_as(&ann, "/api/projects/create", json!({"project_name": "lab"}));
    assert_eq!(made.status, 200, "{}", made.text);
    let add = json!({"members": [{"username": "bob", "project_role": "user"}]});
    assert_eq!(
        server
            .post_as(&bob, "/api/projects/lab/add_members", add.clone())
            .status,
        403
    );
    assert_eq!(
        server
            .post_as(&ann, "/api/projects/lab/add_members", add)
            .status,
        200
    );
    assert_eq!(
        server
            .post_as(&bob, "/api/project/lab/secrets/list", Value::Null)
            .status,
        403
    );
    assert_eq!(
        server
            .post_as(&bob, "/api/project/lab/repos/list", Value::Null)
            .body,
        json!([])
    );
    let leave = server.post_as(
        &ann,
        "/api/projects/lab/remove_members",
        json!({"usernames": ["ann"]}),
    );
    assert_eq!(
        leave.body["detail"][0]["msg"],
        "Cannot leave project: you are the last admin"
    );
    assert_eq!(
        server
            .post_as(
                &bob,
                "/api/projects/lab/remove_members",
                json!({"usernames": ["bob"]})
            )
            .status,
        200
    );
    assert_eq!(
        server
            .post_as(&bob, "/api/projects/lab/get", Value::Null)
            .status,
        403
    );
    assert_eq!(
        server
            .post_as(
                &bob,
                "/api/projects/delete",
                json!({"projects_names": ["lab"]})
            )
            .status,
        403
    );
    assert_eq!(
        server
            .post_as(
                &ann,
                "/api/projects/delete",
                json!({"projects_names": ["lab"]})
            )
            .status,
        200
    );
}

#[test]
fn bodies_are_strict() {
    let server = TestServer::start(&[]);
    let wrong = server.post("/api/runs/list", json!({"foo": 1}));
    assert_eq!(
        (wrong.status, &wrong.body["detail"][0]["type"]),
        (422, &json!("extra_forbidden"))
    );
    assert_eq!(
        server.post("/api/runs/list", json!({"limit": 101})).status,
        422
    );
    let mut spec = task("strict");
    spec["configuration"]["comands"] = json!(["x"]);
    let wrong = server.post("/api/project/main/runs/get_plan", json!({"run_spec": spec}));
    assert_eq!(wrong.status, 422, "{}", wrong.text);
    assert!(wrong.text.contains("comands"), "{}", wrong.text);
    assert_eq!(
        server
            .post(
                "/api/project/main/runs/get_plan",
                json!({"run_spec": task("strict"), "x": 1})
            )
            .status,
        422
    );
}

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
    for fine in [json!({}), json!({"volumes": ["/folder:/data"]})] {
        let (status, text) = plan(fine);
        assert_eq!(status, 200, "{text}");
    }
    for (more, word) in [
        (json!({"dstack": true}), "dstack: true"),
        (
            json!({"utilization_policy": {"min_gpu_utilization": 10, "time_window": "10m"}}),
            "utilization_policy",
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
fn fleets_are_made_changed_and_deleted() {
    let server = TestServer::start(&[]);
    let spec = |nodes: Value| json!({"configuration": {"type": "fleet", "name": "pool", "nodes": nodes}, "profile": {"name": "default"}});
    let plan = server.ok(
        "/api/project/main/fleets/get_plan",
        json!({"spec": spec(json!("1..2"))}),
    );
    assert_eq!(
        (&plan["action"], &plan["total_offers"]),
        (&json!("create"), &json!(0))
    );
    let apply = |spec: Value, current: Value| {
        server.post(
            "/api/project/main/fleets/apply",
            json!({"plan": {"spec": spec, "current_resource": current}, "force": false}),
        )
    };
    let made = apply(spec(json!("1..2")), Value::Null);
    assert_eq!(made.status, 200, "{}", made.text);
    assert_eq!(
        (&made.body["status"], &made.body["instances"][0]["status"]),
        (&json!("active"), &json!("pending"))
    );
    assert_eq!(made.body["instances"][0]["name"], "pool-0");
    let again = server.ok(
        "/api/project/main/fleets/get_plan",
        json!({"spec": spec(json!("1..2"))}),
    );
    assert_eq!(
        again["current_resource"]["spec"], again["effective_spec"],
        "else every apply shows changes"
    );
    let changed = apply(spec(json!("1..3")), again["current_resource"].clone());
    assert_eq!(
        (
            changed.status,
            &changed.body["spec"]["configuration"]["nodes"]["max"]
        ),
        (200, &json!(3)),
        "{}",
        changed.text
    );
    assert!(
        apply(spec(json!("1..4")), again["current_resource"].clone())
            .text
            .contains("Resource has been changed")
    );
    server.ok(
        "/api/project/main/fleets/delete",
        json!({"names": ["pool", "unknown"]}),
    );
    let gone = server.ok("/api/project/main/fleets/get", json!({"name": "pool"}));
    assert_eq!(gone["status"], "terminating");
    assert_eq!(
        code(&server.post("/api/project/main/fleets/get", json!({"name": "unknown"}))),
        "resource_not_exists"
    );
    assert_eq!(
        server
            .ok("/api/instances/list", json!({}))
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn secrets_are_kept_and_named() {
    let server = TestServer::start(&[]);
    let put = |value: &str| {
        server.ok(
            "/api/project/main/secrets/create_or_update",
            json!({"name": "key", "value": value}),
        )
    };
    let first = put("one");
    assert_eq!(put("two")["id"], first["id"]);
    put("two");
    assert_eq!(
        server.ok("/api/project/main/secrets/get", json!({"name": "key"}))["value"],
        "two"
    );
    assert_eq!(
        server.ok("/api/project/main/secrets/list", Value::Null)[0]["value"],
        Value::Null
    );
    let events = server.ok(
        "/api/events/list",
        json!({"include_target_types": ["secret"]}),
    );
    let texts: Vec<_> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["message"].as_str().unwrap())
        .collect();
    assert_eq!(
        texts,
        ["Secret updated", "Secret created"],
        "the same value again is no event"
    );
    let gone = server.post(
        "/api/project/main/secrets/delete",
        json!({"secrets_names": ["key", "a", "b"]}),
    );
    assert_eq!(gone.body["detail"][0]["msg"], "Secrets not found: a, b");
    server.ok(
        "/api/project/main/secrets/delete",
        json!({"secrets_names": ["key"]}),
    );
    assert_eq!(
        server.ok("/api/project/main/secrets/list", Value::Null),
        json!([])
    );
}

#[test]
fn uploads_are_kept_by_hash_and_limited() {
    let server = TestServer::start(&[("DSTACK_SERVER_CODE_UPLOAD_LIMIT", "1000")]);
    let name = "0".repeat(64);
    let first = server.upload("/api/files/upload_archive", &name, b"tar");
    assert_eq!(first.status, 200, "{}", first.text);
    assert_eq!(
        server
            .upload("/api/files/upload_archive", &name, b"tar")
            .body,
        first.body
    );
    assert_eq!(
        server.ok("/api/files/get_archive_by_hash", json!({"hash": name})),
        first.body
    );
    assert_eq!(
        code(&server.post("/api/files/get_archive_by_hash", json!({"hash": "x"}))),
        "resource_not_exists"
    );
    let large = server.upload("/api/files/upload_archive", "big", &[b'a'; 2000]);
    assert!(
        large.status == 400 && large.text.contains("exceeds the limit"),
        "{}",
        large.text
    );
    let path = "/api/project/main/repos/upload_code?repo_id=my-repo";
    assert_eq!(
        code(&server.upload(path, &name, b"diff")),
        "repo_does_not_exist"
    );
    let repo = json!({"repo_id": "my-repo", "repo_info": {"repo_type": "remote", "repo_name": "r"}, "repo_creds": {"clone_url": "https://x", "oauth_token": "secret"}});
    assert_eq!(server.ok("/api/project/main/repos/init", repo), Value::Null);
    assert_eq!(server.upload(path, &name, b"diff").body, Value::Null);
    assert_eq!(server.upload(path, "", b"diff").status, 400);
    let read = server.ok(
        "/api/project/main/repos/get",
        json!({"repo_id": "my-repo", "include_creds": true}),
    );
    assert_eq!(read["repo_creds"]["oauth_token"], "secret");
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

#[test]
fn a_second_start_keeps_everything() {
    let server = TestServer::start(&[]);
    let dir = server
        .folder
        .path()
        .join(".dstack/server")
        .display()
        .to_string();
    let before = server.ok("/api/users/get_my_user", Value::Null);
    let folder = std::mem::replace(&mut { server }.folder, tempfile::tempdir().unwrap());
    let again = TestServer::start(&[
        ("DSTACK_SERVER_DIR", &dir),
        ("DSTACK_SERVER_ADMIN_TOKEN", "another"),
    ]);
    assert_eq!(
        again.ok("/api/users/get_my_user", Value::Null),
        before,
        "an existing admin keeps its token"
    );
    drop(again);
    drop(folder);
}

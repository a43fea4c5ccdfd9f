//! Fleets, secrets, files.

use serde_json::{Value, json};

use crate::client::TestServer;
use crate::support::code;

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
    let name = "90aebae315675cbf04612de4f7d5874850f48e0b8dd82becbeaa47ca93f5ebfb".to_owned();
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
    let name = "df087996d45b03e7eb8c133c0298fd98d35113fca26aaba58612fef3cc212cad";
    assert_eq!(
        code(&server.upload(path, name, b"diff")),
        "repo_does_not_exist"
    );
    let repo = json!({"repo_id": "my-repo", "repo_info": {"repo_type": "remote", "repo_name": "r"}, "repo_creds": {"clone_url": "https://x", "oauth_token": "secret"}});
    assert_eq!(server.ok("/api/project/main/repos/init", repo), Value::Null);
    assert_eq!(server.upload(path, name, b"diff").body, Value::Null);
    assert_eq!(server.upload(path, "", b"diff").status, 400);
    let read = server.ok(
        "/api/project/main/repos/get",
        json!({"repo_id": "my-repo", "include_creds": true}),
    );
    assert_eq!(read["repo_creds"]["oauth_token"], "secret");
}

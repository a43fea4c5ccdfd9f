//! What every request meets: tokens, versions, bodies; and what the first start makes.

use serde_json::{Value, json};

use crate::client::{ADMIN, TestServer};
use crate::support::task;

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

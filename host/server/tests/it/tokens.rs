//! Extra tokens: what they are good for, and their end.

use serde_json::{Value, json};

use crate::client::TestServer;
use crate::support::{code, task};

fn make(server: &TestServer, name: &str, scopes: &[&str]) -> String {
    let body = json!({"name": name, "scopes": scopes});
    let made = server.ok("/api/x/tokens/create", body);
    made["token"].as_str().unwrap().to_owned()
}

#[test]
fn each_scope_allows_its_own() {
    let server = TestServer::start(&[]);
    server.ok("/api/projects/create", json!({"project_name": "other"}));
    let (read, runs) = (make(&server, "r", &["read"]), make(&server, "w", &["runs"]));
    let user = make(&server, "u", &["project:main:user"]);
    let admin = make(&server, "a", &["project:main:admin"]);
    let service = make(&server, "s", &["services:llm"]);
    let apply =
        json!({"plan": {"run_spec": task("train-1"), "current_resource": null}, "force": false});
    let secret = json!({"name": "s", "value": "v"});
    for (path, body, allowed) in [
        (
            "/api/runs/list",
            json!({"project_name": "main"}),
            [&read, &runs, &user, &admin].as_slice(),
        ),
        ("/api/runs/list", json!({}), &[&read, &runs]),
        ("/api/project/main/runs/apply", apply, &[&runs]),
        (
            "/api/project/main/runs/stop",
            json!({"runs_names": [], "abort": false}),
            &[&runs, &user, &admin],
        ),
        (
            "/api/project/other/runs/stop",
            json!({"runs_names": [], "abort": false}),
            &[&runs],
        ),
        (
            "/api/project/main/fleets/list",
            Value::Null,
            &[&read, &runs, &user, &admin],
        ),
        (
            "/api/project/main/fleets/delete",
            json!({"names": []}),
            &[&user, &admin],
        ),
        (
            "/api/project/main/secrets/create_or_update",
            secret,
            &[&admin],
        ),
        ("/api/project/other/secrets/list", Value::Null, &[]),
        (
            "/api/users/get_my_user",
            Value::Null,
            &[&runs, &user, &admin],
        ),
        ("/api/users/list", Value::Null, &[&read, &runs]),
        (
            "/api/users/create",
            json!({"username": "x", "global_role": "user"}),
            &[],
        ),
        (
            "/api/users/refresh_token",
            json!({"username": "admin"}),
            &[],
        ),
        ("/api/x/tokens/list", Value::Null, &[]),
        (
            "/api/projects/delete",
            json!({"projects_names": ["other"]}),
            &[],
        ),
    ] {
        for (name, token) in [
            ("read", &read),
            ("runs", &runs),
            ("user", &user),
            ("admin", &admin),
            ("service", &service),
        ] {
            // Once the run is there, applying it again is refused for another reason.
            let once = path.ends_with("runs/apply")
                && name != "runs"
                && name != "read"
                && name != "service";
            if once {
                continue;
            }
            let answer = server.post_as(token, path, body.clone());
            let expected = if allowed.contains(&token) { 200 } else { 403 };
            assert_eq!(answer.status, expected, "{path} by {name}: {}", answer.text);
        }
    }
    let me = server.post_as(&runs, "/api/users/get_my_user", Value::Null);
    assert_eq!(
        me.body["creds"]["token"],
        json!(runs),
        "never the user's own token"
    );
}

#[test]
fn tokens_end() {
    let server = TestServer::start(&[]);
    let token = make(&server, "ci", &["read"]);
    let list = server.ok("/api/x/tokens/list", Value::Null);
    assert_eq!(
        (&list[0]["name"], &list[0]["scopes"]),
        (&json!("ci"), &json!(["read"]))
    );
    assert!(!list.to_string().contains(&token), "told once");
    let database =
        std::fs::read(server.folder.path().join(".dstack/server/data/sqlite.db")).unwrap();
    assert!(
        !database
            .windows(token.len())
            .any(|bytes| bytes == token.as_bytes()),
        "kept as a hash"
    );
    let ask = || server.post_as(&token, "/api/runs/list", json!({})).status;
    assert_eq!(ask(), 200);
    server.ok("/api/x/tokens/delete", json!({"name": "ci"}));
    assert_eq!(ask(), 403);
    assert_eq!(
        code(&server.post("/api/x/tokens/delete", json!({"name": "ci"}))),
        "resource_not_exists"
    );
    for wrong in [
        json!({"name": "a", "scopes": []}),
        json!({"name": "a", "scopes": ["all"]}),
        json!({"name": "a", "scopes": ["read"], "expires_at": "2020-01-01T00:00:00Z"}),
    ] {
        assert_eq!(
            server.post("/api/x/tokens/create", wrong.clone()).status,
            422,
            "{wrong}"
        );
    }
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(700);
    let body = json!({"name": "short", "scopes": ["read"], "expires_at": soon.to_string()});
    let token = server.ok("/api/x/tokens/create", body)["token"]
        .as_str()
        .unwrap()
        .to_owned();
    while server.post_as(&token, "/api/runs/list", json!({})).status == 200 {
        std::thread::yield_now();
    }
    assert!(
        jiff::Timestamp::now() >= soon,
        "it did not end before its time"
    );
}

#[test]
fn a_deactivated_user_has_no_tokens() {
    let server = TestServer::start(&[]);
    server.ok(
        "/api/users/create",
        json!({"username": "ann", "global_role": "user"}),
    );
    let ann = server.ok("/api/users/get_user", json!({"username": "ann"}));
    let own = ann["creds"]["token"].as_str().unwrap();
    let made = server.post_as(
        own,
        "/api/x/tokens/create",
        json!({"name": "t", "scopes": ["read"]}),
    );
    let token = made.body["token"].as_str().unwrap();
    let ask = || server.post_as(token, "/api/runs/list", json!({})).status;
    assert_eq!(ask(), 200);
    server.ok(
        "/api/users/update",
        json!({"username": "ann", "global_role": "user", "active": false}),
    );
    assert_eq!(ask(), 403);
}

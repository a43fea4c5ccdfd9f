//! Users, and the members of projects.

use serde_json::{Value, json};

use crate::client::TestServer;
use crate::support::code;

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

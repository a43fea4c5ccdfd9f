//! Every operation as every kind of caller, compared with the table in the code.

use std::collections::BTreeSet;

use dstack_api::projects::ProjectRole;
use dstack_server::roles::{Class, Standing};
use dstack_server::{BodyKind, OperationInfo, operations};
use serde_json::{Value, json};

use crate::client::{ADMIN, Answer, TestServer};

/// A caller.
struct Caller {
    who: &'static str,
    token: Option<String>,
    /// `None`: there is no such active user.
    standing: Option<Standing>,
}

fn user(server: &TestServer, name: &str) -> String {
    let body = json!({"username": name, "global_role": "user"});
    server.ok("/api/users/create", body);
    let user = server.ok("/api/users/get_user", json!({"username": name}));
    user["creds"]["token"].as_str().unwrap().to_owned()
}

fn callers(server: &TestServer) -> Vec<Caller> {
    let of = |role| Standing {
        role,
        ..Standing::default()
    };
    let mut all = vec![
        Caller {
            who: "no token",
            token: None,
            standing: None,
        },
        Caller {
            who: "bad token",
            token: Some("nobody".to_owned()),
            standing: None,
        },
    ];
    let mut add = |who: &'static str, standing| {
        let token = Some(user(server, &who.replace(' ', "-")));
        all.push(Caller {
            who,
            token,
            standing,
        });
    };
    add("deactivated", None);
    add("stranger", Some(of(None)));
    add("member", Some(of(Some(ProjectRole::User))));
    add("manager", Some(of(Some(ProjectRole::Manager))));
    add("admin of another project", Some(of(None)));
    add("project admin", Some(of(Some(ProjectRole::Admin))));
    let admin = Standing {
        is_global_admin: true,
        ..of(None)
    };
    all.push(Caller {
        who: "global admin",
        token: Some(ADMIN.to_owned()),
        standing: Some(admin),
    });
    let members = [
        ("deactivated", "admin"),
        ("member", "user"),
        ("manager", "manager"),
        ("project-admin", "admin"),
    ];
    let members: Vec<Value> = members
        .iter()
        .map(|(name, role)| json!({"username": name, "project_role": role}))
        .collect();
    server.ok(
        "/api/projects/main/add_members",
        json!({"members": members}),
    );
    let gone = json!({"username": "deactivated", "global_role": "user", "active": false});
    server.ok("/api/users/update", gone);
    let other = all
        .iter()
        .find(|one| one.who == "admin of another project")
        .unwrap();
    let made = server.post_as(
        other.token.as_deref().unwrap(),
        "/api/projects/create",
        json!({"project_name": "other"}),
    );
    assert_eq!(made.status, 200, "{}", made.text);
    all
}

fn call(server: &TestServer, operation: &OperationInfo, caller: &Caller, project: &str) -> Answer {
    let path = operation
        .path
        .replace("{project_name}", project)
        .replace("{backend_name}", "nothing")
        .replace("{run_name}", "nothing");
    let bearer = caller.token.as_ref().map(|token| format!("Bearer {token}"));
    let mut headers = Vec::new();
    if let Some(bearer) = &bearer {
        headers.push(("Authorization", bearer.as_str()));
    }
    // A body that no operation takes: who may not ask is told so first, and nothing is changed by who may.
    let wrong = json!({"no such key": 1});
    let body = matches!(operation.body, BodyKind::Json | BodyKind::Optional).then_some(&wrong);
    if operation.method == "GET" {
        server.get_with(&path, &headers)
    } else {
        server.send(&path, body, &headers)
    }
}

fn expected(operation: &OperationInfo, caller: &Caller) -> &'static str {
    let Some(standing) = caller.standing else {
        return match (operation.class, &caller.token) {
            (Class::Anyone, _) => "allowed",
            (_, None) => "401",
            (_, Some(_)) => "403",
        };
    };
    if operation.class.allows(standing) {
        "allowed"
    } else {
        "403"
    }
}

fn got(answer: &Answer) -> &'static str {
    match answer.status {
        401 => "401",
        403 => "403",
        404 | 405 | 500.. => "broken",
        _ => "allowed",
    }
}

#[test]
fn every_operation_as_every_caller() {
    let server = TestServer::start(&[]);
    let callers = callers(&server);
    let mut wrong = Vec::new();
    let operations = operations();
    assert!(operations.len() > 80, "{}", operations.len());
    for operation in &operations {
        for caller in &callers {
            let answer = call(&server, operation, caller, "main");
            let (expected, got) = (expected(operation, caller), got(&answer));
            if expected != got {
                wrong.push(format!(
                    "{} as {}: {got} in place of {expected}: {} {}",
                    operation.path, caller.who, answer.status, answer.text
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_public_or_unknown_is_so_for_every_operation_of_a_project() {
    let server = TestServer::start(&[]);
    let callers = callers(&server);
    server.ok(
        "/api/projects/create",
        json!({"project_name": "open", "is_public": true}),
    );
    for operation in operations().iter().filter(|one| one.class.is_of_project()) {
        for caller in callers.iter().filter(|one| one.standing.is_some()) {
            let missing = call(&server, operation, caller, "nowhere");
            assert_eq!(
                (missing.status, missing.text.as_str()),
                (404, r#"{"detail":{"msg":"Not found","code":null}}"#),
                "{} as {}",
                operation.path,
                caller.who
            );
            let is_admin = caller.standing.is_some_and(|who| who.is_global_admin);
            let standing = Standing {
                is_public: true,
                is_global_admin: is_admin,
                ..Standing::default()
            };
            let answer = call(&server, operation, caller, "open");
            let expected = if operation.class.allows(standing) {
                "allowed"
            } else {
                "403"
            };
            assert_eq!(
                got(&answer),
                expected,
                "{} as {}",
                operation.path,
                caller.who
            );
        }
    }
}

/// What handlers decide beyond the table, since it depends on the body.
#[test]
fn for_oneself_and_for_others() {
    let server = TestServer::start(&[]);
    let callers = callers(&server);
    let token = |who: &str| {
        let caller = callers.iter().find(|one| one.who == who).unwrap();
        caller.token.clone().unwrap()
    };
    let status =
        |who: &str, path: &str, body: Value| server.post_as(&token(who), path, body).status;
    let name = |name: &str| json!({"username": name});
    for path in ["/api/users/refresh_token", "/api/users/refresh_ssh_key"] {
        assert_eq!(status("member", path, name("stranger")), 403, "{path}");
        assert_eq!(status("global admin", path, name("nobody")), 400, "{path}");
    }
    let remove = |who: &str| json!({"usernames": [who]});
    let path = "/api/projects/main/remove_members";
    assert_eq!(status("stranger", path, remove("member")), 403);
    assert_eq!(status("member", path, remove("manager")), 403);
    assert_eq!(status("manager", path, remove("project-admin")), 403);
    assert_eq!(
        status("member", path, remove("member")),
        200,
        "everybody may leave"
    );
    let add = |who: &str, role: &str| json!({"members": [{"username": who, "project_role": role}]});
    server.ok(
        "/api/projects/create",
        json!({"project_name": "open", "is_public": true}),
    );
    let path = "/api/projects/open/add_members";
    assert_eq!(status("stranger", path, add("member", "user")), 403);
    assert_eq!(status("stranger", path, add("stranger", "admin")), 403);
    assert_eq!(status("stranger", path, add("stranger", "user")), 200);
    let path = "/api/projects/delete";
    assert_eq!(
        status("manager", path, json!({"projects_names": ["main"]})),
        403
    );
    assert_eq!(
        status("stranger", path, json!({"projects_names": ["nowhere"]})),
        403
    );
}

/// A member who is removed, and a user who is switched off, lose access with the same answer.
#[test]
fn access_ends_at_once() {
    let server = TestServer::start(&[]);
    let token = user(&server, "ann");
    let add = json!({"members": [{"username": "ann", "project_role": "user"}]});
    server.ok("/api/projects/main/add_members", add);
    let get = || {
        server
            .post_as(&token, "/api/projects/main/get", Value::Null)
            .status
    };
    assert_eq!(get(), 200);
    server.ok(
        "/api/projects/main/remove_members",
        json!({"usernames": ["ann"]}),
    );
    assert_eq!(get(), 403);
}

#[test]
fn every_operation_of_the_reference_is_there() {
    let ours: BTreeSet<(String, String)> = operations()
        .iter()
        .map(|one| (one.method.to_string(), one.path.to_owned()))
        .collect();
    let text = std::fs::read_to_string(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/contract/http-api/operations.json"),
    )
    .unwrap();
    let theirs: Vec<(String, String)> = serde_json::from_str(&text).unwrap();
    let missing: Vec<_> = theirs.iter().filter(|one| !ours.contains(*one)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(theirs.len(), 83);
}

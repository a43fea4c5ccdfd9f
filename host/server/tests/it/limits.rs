//! What a request may cost.

use serde_json::json;

use crate::client::{ADMIN, TestServer};

#[test]
fn long_bodies_are_refused_without_being_kept() {
    let server = TestServer::start(&[]);
    let long = format!("{{\"run_name\": \"{}\"}}", "a".repeat(17 * 1024 * 1024));
    let answer = server.post_text("/api/project/main/runs/get", &long, Some(ADMIN));
    assert_eq!(answer.status, 422, "{}", answer.text);
    assert!(
        answer.text.contains("length limit exceeded"),
        "{}",
        answer.text
    );
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let answer = server.post_text("/api/project/main/runs/get", &deep, Some(ADMIN));
    assert_eq!(answer.status, 422, "{}", answer.text);
    assert_eq!(server.get("/healthcheck").status, 200, "still there");
}

/// Bodies of all shapes: an answer each, and never a 500.
#[test]
fn no_body_breaks_the_server() {
    let server = TestServer::start(&[]);
    let odd = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("\u{0}"),
        json!([]),
        json!([null]),
        json!({}),
        json!({"": null}),
        json!({"limit": -1}),
        json!({"limit": 1e99}),
        json!({"run_spec": {"configuration": []}}),
        json!({"plan": {"run_spec": {"configuration": {"type": "task"}}}}),
        json!({"spec": {"configuration": {"type": "fleet", "nodes": -1}}}),
        json!({"name": "\u{10FFFF}"}),
        json!({"prev_created_at": "0001-01-01T00:00:00Z"}),
        json!({"prev_id": "x"}),
        json!({"names": [1]}),
        json!({"members": [{"username": "x", "project_role": "y"}]}),
        json!({"id": {"id": {"id": {}}}}),
    ];
    for operation in dstack_server::operations() {
        let path = operation
            .path
            .replace("{project_name}", "main")
            .replace("{backend_name}", "x")
            .replace("{run_name}", "x");
        if operation.method == "GET" || path == "/api/users/refresh_token" {
            continue;
        }
        for body in &odd {
            let answer = server.post(&path, body.clone());
            assert!(answer.status < 500, "{path} {body}: {}", answer.text);
            let is_json = serde_json::from_str::<serde_json::Value>(&answer.text).is_ok();
            assert!(is_json, "{path} {body}: {} {}", answer.status, answer.text);
        }
    }
}

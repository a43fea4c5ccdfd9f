//! Recording and replay.

use super::{Probe, error_of, server::Server};
use dstack_backend_types::ErrorKind;
use dstack_plugins::{HttpProxy, HttpTape};
use serde_json::{Value, json};
use std::{fs, path::Path};

fn with(tape: HttpTape) -> Probe {
    Probe::with(|config| {
        config.http.proxy = HttpProxy::None;
        config.http.tape = Some(tape);
    })
}

fn steps(server: &Server) -> Value {
    json!([
        {"do": "http", "url": server.url("/list?page=1&api_key=hush-key"), "headers": [["Authorization", "Bearer hush-token"]]},
        {"do": "http", "url": server.url("/list?page=2&api_key=hush-key"), "headers": [["Authorization", "Bearer hush-token"]]},
        {
            "do": "http", "method": "POST", "url": server.url("/login"), "headers": [["x-api-key", "hush-key"]],
            "body": json!({"user": "me", "password": "hush-word", "note": "hush-key"}).to_string(),
        },
        {"do": "http", "url": server.url("/status?503")},
        {"do": "download", "url": server.url("/big?3000000")},
        {"do": "upload", "method": "PUT", "url": server.url("/sink"), "chunk": 1000, "count": 3},
        {"do": "http", "url": "http://127.0.0.1:1/", "is_idempotent": false},
    ])
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_recorded_is_answered_without_a_network_and_holds_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tape.jsonl");
    let server = Server::start().await;
    let recorded = with(HttpTape::Record(path.clone()))
        .run(steps(&server))
        .await;
    let begun = server.seen.begun();
    assert_eq!(begun, 6);
    assert_eq!(lines(&path).len(), 7);
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("hush"), "{text}");
    let replayed = with(HttpTape::Replay(path)).run(steps(&server)).await;
    assert_eq!(server.seen.begun(), begun, "the replay sent something");
    for (recorded, replayed) in recorded.iter().zip(&replayed) {
        for part in ["status", "error", "bytes", "written"] {
            assert_eq!(recorded[part], replayed[part], "{part}");
        }
    }
    // Pages are told apart although a parameter is hidden.
    assert!(replayed[0]["body"].as_str().unwrap().contains("page=1"));
    assert!(replayed[1]["body"].as_str().unwrap().contains("page=2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_come_in_order_and_the_last_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tape.jsonl");
    let line = |status: u16, body: &str| json!({"method": "GET", "url": "http://a.example/x", "reply": {"status": status, "body": body}});
    let text = format!("{}\n\n{}\n", line(404, "not yet"), line(200, "there"));
    fs::write(&path, text).unwrap();
    let probe = with(HttpTape::Replay(path));
    let step = json!({"do": "http", "url": "http://a.example/x"});
    let other = json!({"do": "http", "method": "DELETE", "url": "http://a.example/x"});
    let results = probe.run(json!([step, step, step, other])).await;
    let bodies: Vec<_> = results[..3].iter().map(|r| r["body"].as_str()).collect();
    assert_eq!(bodies, [Some("not yet"), Some("there"), Some("there")]);
    let error = error_of(&results[3]);
    assert_eq!(error.kind, ErrorKind::Transport);
    assert!(
        error.message.contains("DELETE http://a.example/x"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tape_that_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tape.jsonl");
    let step = json!({"do": "http", "url": "http://a.example/x"});
    let error = with(HttpTape::Replay(path.clone()))
        .error(step.clone())
        .await;
    assert!(error.message.contains("tape.jsonl"), "{error}");
    fs::write(&path, "{}\n").unwrap();
    let error = with(HttpTape::Replay(path)).error(step).await;
    assert!(error.message.contains("line 1"), "{error}");
}

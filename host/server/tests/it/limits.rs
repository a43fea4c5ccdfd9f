//! What a request may cost.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use serde_json::json;

use crate::client::{ADMIN, TestServer};

/// Bytes of this process in memory.
pub(crate) fn rss() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|it| it.starts_with("VmRSS:")).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<usize>().unwrap() * 1024
}

/// Raises the limit of open files as far as it goes; what it is then.
fn raise_open_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|it| it.starts_with("Max open files"));
    let most = line.unwrap().split_whitespace().nth(4).unwrap().to_owned();
    let raised = Command::new("prlimit")
        .args(["--pid", &std::process::id().to_string()])
        .arg(format!("--nofile={most}:{most}"))
        .status()
        .unwrap();
    assert!(raised.success(), "prlimit (util-linux) is needed");
    most.parse().unwrap_or(usize::MAX)
}

/// The server and its clients are one process here: each connection is two files and both ends' memory.
#[test]
fn ten_thousand_idle_connections_cost_little() {
    let most = raise_open_files();
    let count = 10_000.min((most - 300) / 2);
    assert!(count >= 1000, "only {most} open files are allowed here");
    let server = TestServer::start(&[]);
    assert_eq!(server.get("/healthcheck").status, 200);
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    let before = rss();
    let idle: Vec<TcpStream> = (0..count)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    // A new connection is behind all of them in the queue.
    let asked = b"GET /healthcheck HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let ask = || {
        let mut socket = TcpStream::connect(&address).unwrap();
        socket.write_all(asked).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    ask();
    let grown = rss().saturating_sub(before);
    assert!(grown / count < 24 * 1024, "{} bytes each", grown / count);
    // They are no less alive for having waited.
    for mut one in idle.into_iter().take(20) {
        one.write_all(asked).unwrap();
        let mut answer = String::new();
        one.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    ask();
}

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

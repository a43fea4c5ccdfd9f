//! Bodies in chunks, and limits of bodies in one message.

use super::{LONG, Probe, error_of, server::Server};
use crate::place::until;
use dstack_backend_types::ErrorKind;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{io::AsyncReadExt, net::TcpListener};

const MIB: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_longer_than_its_limit_is_an_error_or_comes_in_chunks() {
    let (probe, server) = (Probe::new(), Server::start().await);
    let url = server.url(&format!("/big?{}", 100 * MIB));
    let result = probe.one(json!({"do": "download", "url": url})).await;
    assert_eq!(
        (&result["status"], &result["bytes"]),
        (&json!(200), &json!(100 * MIB))
    );
    assert!(result["largest"].as_u64().unwrap() <= 1 << 20, "{result}");
    for limit in [None, Some(1_u64 << 40)] {
        let error = probe
            .error(json!({"do": "http", "url": url, "max_reply_bytes": limit}))
            .await;
        assert!(error.message.contains("read it in chunks"), "{error}");
    }
    let small = server.url("/big?1000");
    let within = json!({"do": "http", "url": small, "max_reply_bytes": 1000});
    assert_eq!(probe.one(within).await["status"], 200);
    let error = probe
        .error(json!({"do": "http", "url": small, "max_reply_bytes": 999}))
        .await;
    assert!(error.message.contains("more than 999 bytes"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_are_behind_the_last_chunk() {
    let (probe, server) = (Probe::new(), Server::start().await);
    for bytes in [0, 100_000] {
        let step = json!({
            "do": "download", "url": server.url(&format!("/trailers?{bytes}")), "headers": [["te", "trailers"]],
        });
        let result = probe.one(step).await;
        assert_eq!(result["bytes"], bytes);
        assert_eq!(result["trailers"], json!([["grpc-status", "0"]]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_goes_in_chunks() {
    let (probe, server) = (Probe::new(), Server::start().await);
    for http2 in [false, true] {
        let result = probe
            .one(json!({
                "do": "upload", "method": "PUT", "url": server.url("/sink"), "http2": http2,
                "chunk": 2 * MIB, "count": 40, "trailers": [["x-sum", "1"]],
                "headers": if http2 { json!([]) } else { json!([["trailer", "x-sum"]]) },
            }))
            .await;
        let body = result["reply"]["body"]
            .as_str()
            .unwrap_or_else(|| panic!("{result}"));
        let seen: Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            seen,
            json!({"bytes": 80 * MIB, "trailers": [["x-sum", "1"]]})
        );
    }
    let error = probe
        .error(json!({"do": "upload", "method": "PUT", "url": server.url("/sink"), "chunk": 9 * MIB, "count": 1}))
        .await;
    assert_eq!(error.kind, ErrorKind::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_early_gets_no_more() {
    let (probe, server) = (Probe::new(), Server::start().await);
    let result = probe
        .one(json!({"do": "upload", "method": "POST", "url": server.url("/early"), "chunk": MIB, "count": 500}))
        .await;
    assert_eq!(result["reply"]["status"], 413, "{result}");
    assert!(result["written"].as_u64().unwrap() < 400 << 20, "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_its_end_is_never_taken_for_whole() {
    let (probe, server) = (Probe::new(), Server::start().await);
    let step = |url: String, method: &str, is_given_up: bool| {
        json!({
            "do": "upload", "method": method, "url": url, "chunk": 1000, "count": 3, "is_given_up": is_given_up,
        })
    };
    let result = probe.one(step(server.url("/sink"), "PUT", true)).await;
    assert_eq!(result["written"], 3000);
    let whole = probe.one(step(server.url("/sink"), "PUT", false)).await;
    assert_eq!(whole["reply"]["status"], 200, "{whole}");
    // The first was broken off, or given up before anything of it was sent.
    until("only the second is whole", || {
        let ended_early = server.seen.broken() + server.seen.dropped();
        server.seen.begun() == ended_early + 1
    })
    .await;
    let error = probe.error(step(server.url("/sink"), "GET", false)).await;
    assert_eq!(error.kind, ErrorKind::Invalid);
    let error = probe
        .error(step("http://127.0.0.1:1/".to_owned(), "PUT", false))
        .await;
    assert_eq!(error.kind, ErrorKind::Transport);
}

/// A server that reads whatever comes and answers nothing; and whether its client went away.
async fn swallowing() -> (u16, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let is_left = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_left);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 64 << 10];
        while stream.read(&mut buffer).await.unwrap_or(0) > 0 {}
        told.store(true, Ordering::SeqCst);
    });
    (port, is_left)
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_their_call() {
    let (probe, server) = (Probe::new(), Server::start().await);
    // Cancelled while it reads what never ends.
    let steps = json!([{"do": "download", "url": server.url("/endless")}]);
    let error = probe
        .run_within(steps, Duration::from_millis(300))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    // Cancelled while it writes without an end.
    let (port, is_left) = swallowing().await;
    let steps = json!([{
        "do": "upload", "method": "PUT", "url": format!("http://127.0.0.1:{port}/"), "chunk": MIB,
        "count": 1_000_000,
    }]);
    let error = probe
        .run_within(steps, Duration::from_millis(300))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    until("the server is left", || is_left.load(Ordering::SeqCst)).await;
    assert_eq!(probe.plugins.list()[0].error, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_its_calls_own() {
    let (probe, server) = (Probe::new(), Server::start().await);
    let result = probe
        .one(json!({"do": "download", "url": server.url("/endless"), "stop_at": 10 * MIB}))
        .await;
    assert!(result["bytes"].as_u64().unwrap() >= 10 << 20);
    let read = "{\"op\":\"read\",\"stream\":1}";
    let message = format!(
        "{}\0\0\0{read}",
        char::from(u8::try_from(read.len()).unwrap())
    );
    let results = probe
        .run_within(json!([{"do": "raw", "service": 1, "text": message}]), LONG)
        .await
        .unwrap();
    let error = error_of(&results[0]);
    assert!(error.message.contains("no stream 1"), "{error}");
}

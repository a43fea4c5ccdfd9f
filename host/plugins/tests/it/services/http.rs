//! Whole requests: what goes out, what comes back, what is tried again, what ends them.

use super::{LONG, Probe, error_of, server};
use crate::place::until;
use dstack_backend_types::ErrorKind;
use serde_json::{Value, json};
use server::Server;
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

fn body(result: &Value) -> Value {
    serde_json::from_str(
        result["body"]
            .as_str()
            .unwrap_or_else(|| panic!("{result}")),
    )
    .unwrap()
}

fn header<'a>(headers: &'a Value, name: &str) -> Vec<&'a str> {
    let pairs = headers.as_array().unwrap().iter();
    pairs
        .filter(|pair| pair[0] == name)
        .map(|pair| pair[1].as_str().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_arrive_as_they_were_made() {
    let (probe, server) = (Probe::new(), Server::start().await);
    let result = probe
        .one(json!({
            "do": "http", "method": "PATCH", "url": server.url("/a%2Fb/c?x=%26&y=1"), "body": "hello",
            "headers": [["X-One", "1"], ["X-Many", "a"], ["X-Many", "b"]],
        }))
        .await;
    assert_eq!(result["status"], 200);
    assert_eq!(header(&result["headers"], "set-cookie"), ["a=1", "b=2"]);
    let seen = body(&result);
    assert_eq!(
        (&seen["method"], &seen["uri"]),
        (&json!("PATCH"), &json!("/a%2Fb/c?x=%26&y=1"))
    );
    assert_eq!(seen["body"], "hello");
    assert_eq!(header(&seen["headers"], "x-many"), ["a", "b"]);
    assert!(header(&seen["headers"], "user-agent")[0].starts_with("dstack/"));
    // An error status is a reply like any other.
    let result = probe
        .one(json!({"do": "http", "url": server.url("/status?429")}))
        .await;
    assert_eq!(result["status"], 429);
    assert_eq!(header(&result["headers"], "retry-after"), ["7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_shared() {
    let (probe, server) = (Probe::new(), Server::start().await);
    let step = json!({"do": "http", "url": server.url("/")});
    for _ in 0..10 {
        probe.run(json!([step, step])).await;
    }
    assert_eq!(server.seen.begun(), 20);
    // A request that follows at once may find the connection before it not yet given back.
    let connections = server.seen.connections();
    assert!(connections < 10, "{connections} connections");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused() {
    let probe = Probe::new();
    for step in [
        json!({"do": "http", "url": "no address"}),
        json!({"do": "http", "url": "ftp://a.example/"}),
        json!({"do": "http", "url": "http://127.0.0.1:1/", "method": "G T"}),
        json!({"do": "http", "url": "http://127.0.0.1:1/", "headers": [["a b", "c"]]}),
        json!({"do": "http", "url": "http://127.0.0.1:1/", "headers": [["a", "hush\n"]]}),
        json!({"do": "http", "url": "https://127.0.0.1:1/", "ca_pem": "hush"}),
        json!({"do": "http", "url": "https://127.0.0.1:1/", "client_pem": "hush"}),
        json!({"do": "raw", "service": 1, "text": "short"}),
    ] {
        let error = probe.error(step.clone()).await;
        assert_eq!(error.kind, ErrorKind::Invalid, "{step}");
        assert!(!error.message.contains("hush"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_reached_is_named_without_secrets() {
    let probe = Probe::new();
    let error = probe
        .error(json!({"do": "http", "url": "http://me:hush@127.0.0.1:1/path?token=hush", "is_idempotent": false}))
        .await;
    assert_eq!(error.kind, ErrorKind::Transport);
    assert!(
        error
            .message
            .starts_with("GET http://127.0.0.1:1/path?token: "),
        "{error}"
    );
    assert!(error.message.to_lowercase().contains("refused"), "{error}");
    assert!(!error.message.contains("hush"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_tried_again_only_if_that_does_no_harm() {
    let probe = Probe::new();
    for partial in ["", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart"] {
        let (port, requests) = server::cutting(2, partial).await;
        let url = format!("http://127.0.0.1:{port}/");
        let result = probe.one(json!({"do": "http", "url": url})).await;
        assert_eq!(result["body"], "done");
        assert_eq!(requests.load(Ordering::SeqCst), 3);
        let (port, requests) = server::cutting(1, partial).await;
        let url = format!("http://127.0.0.1:{port}/");
        let error = probe
            .error(json!({"do": "http", "method": "POST", "url": url, "body": "x"}))
            .await;
        assert_eq!(error.kind, ErrorKind::Transport);
        assert_eq!(requests.load(Ordering::SeqCst), 1);
        let (port, requests) = server::cutting(9, partial).await;
        let url = format!("http://127.0.0.1:{port}/");
        let error = probe.error(json!({"do": "http", "url": url})).await;
        assert_eq!(error.kind, ErrorKind::Transport);
        assert_eq!(requests.load(Ordering::SeqCst), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_its_own_limit() {
    let (probe, server) = (Probe::new(), Server::start().await);
    let error = probe
        .error(json!({"do": "http", "url": server.url("/slow?a=hush"), "timeout_ms": 100}))
        .await;
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert!(
        error.message.contains("/slow?: no answer within 100 ms")
            || error.message.contains("/slow?a: no answer within 100 ms"),
        "{error}"
    );
    until("the server is left", || server.seen.dropped() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_ends_with_its_call() {
    let (probe, server) = (Probe::new(), Server::start().await);
    let begun = Instant::now();
    let limit = Duration::from_millis(300);
    let steps = json!([{"do": "http", "url": server.url("/slow")}]);
    let error = probe.run_within(steps, limit).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    until("the server is left", || server.seen.dropped() == 1).await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    // The thread came back: it is not told of as lost.
    assert_eq!(probe.plugins.list()[0].error, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_requests_with_the_kind_cancelled() {
    let (probe, server) = (Probe::new(), Server::start().await);
    let steps = json!([
        {"do": "http", "url": server.url("/slow")}, {"do": "http", "url": server.url("/")},
    ]);
    let running = probe.run_within(steps, LONG);
    let plugins = probe.plugins.clone();
    let seen = std::sync::Arc::clone(&server.seen);
    let ending = async {
        until("the request is there", || seen.begun() == 1).await;
        plugins.shut_down().await;
    };
    let (results, ()) = tokio::join!(running, ending);
    for result in results.unwrap() {
        assert_eq!(error_of(&result).kind, ErrorKind::Cancelled);
    }
    // The second one was never sent.
    assert_eq!(server.seen.begun(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_followed_as_far_as_asked() {
    let (probe, server) = (Probe::new(), Server::start().await);
    let other = Server::start().await;
    let step = |path: String, method: &str, redirects: u32| {
        json!({
            "do": "http", "method": method, "url": server.url(&path), "redirects": redirects,
            "body": "data", "headers": [["Authorization", "Bearer hush"], ["X-Mine", "1"], ["Content-Type", "text/plain"]],
        })
    };
    let plain = probe.one(step("/redirect?/to".to_owned(), "GET", 0)).await;
    assert_eq!(plain["status"], 302);
    // At the same server a POST becomes a GET without a body, and 307 keeps both.
    let followed = body(&probe.one(step("/redirect?/to".to_owned(), "POST", 1)).await);
    assert_eq!(
        (&followed["method"], &followed["body"]),
        (&json!("GET"), &json!(""))
    );
    assert_eq!(
        header(&followed["headers"], "authorization"),
        ["Bearer hush"]
    );
    assert!(header(&followed["headers"], "content-type").is_empty());
    let kept = body(
        &probe
            .one(step("/redirect307?/to".to_owned(), "POST", 1))
            .await,
    );
    assert_eq!(
        (&kept["method"], &kept["body"]),
        (&json!("POST"), &json!("data"))
    );
    // Another server gets no credentials.
    let away = format!("/redirect307?{}", other.url("/to"));
    let away = body(&probe.one(step(away, "POST", 3)).await);
    assert!(header(&away["headers"], "authorization").is_empty());
    assert_eq!(header(&away["headers"], "x-mine"), ["1"]);
    let error = error_of(&probe.one(step("/loop".to_owned(), "GET", 4)).await);
    assert!(error.message.contains("more than 4 redirects"), "{error}");
    let error = error_of(
        &probe
            .one(step("/redirect?file:///etc/passwd".to_owned(), "GET", 4))
            .await,
    );
    assert!(error.message.contains("redirected to file:"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_backend_asks_for_is_counted() {
    let (probe, server) = (Probe::new(), Server::start().await);
    let steps = json!([
        {"do": "http", "url": server.url("/"), "body": "x".repeat(5000)}, {"do": "http", "url": "nowhere"},
        {"do": "raw", "service": 99, "text": ""},
    ]);
    let results = probe.run(steps).await;
    assert_eq!(error_of(&results[2]).kind, ErrorKind::Unsupported);
    let usage = probe.plugins.usage("probe");
    let http = usage[&1];
    assert_eq!((http.requests, http.errors), (2, 1));
    assert!(http.bytes_in > 5000 && http.bytes_out > 5000, "{http:?}");
    assert_eq!(usage[&99].errors, 1);
}

//! The fake provider by itself.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use dstack_backend_conformance::{FakeProvider, Provider, Reply, Resource, Scenario};
use serde_json::json;

/// One request over a connection of its own; the whole reply.
fn ask(provider: &Provider, request: &str) -> String {
    let address = provider.url().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

fn counting() -> Provider {
    FakeProvider::new(|| 0_u32)
        .route("POST /things/{name}", |count, request| {
            *count += 1;
            Reply::json(
                201,
                &json!({"name": request.param("name"), "sent": request.json(), "n": *count}),
            )
        })
        .route("GET /panic", |_, _| panic!("a bug of the author"))
        .inventory(|count| {
            (0..*count)
                .map(|number| Resource::new("thing", number.to_string()))
                .collect()
        })
        .scenario(Scenario::Quota, |_, _| Some(Reply::empty(403)))
        .start()
}

#[test]
fn bodies_come_with_a_length_or_in_chunks() {
    let provider = counting();
    let with_length = ask(
        &provider,
        "POST /things/a%20b HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 7\r\n\r\n{\"a\":1}",
    );
    assert!(
        with_length.contains(r#"{"n":1,"name":"a b","sent":{"a":1}}"#),
        "{with_length}"
    );
    let chunked = ask(
        &provider,
        "POST /things/c HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":2}\r\n0\r\n\r\n",
    );
    assert!(chunked.contains(r#""sent":{"a":2}"#), "{chunked}");
    assert_eq!(provider.with(|count: &mut u32| *count), 2);
    assert_eq!(provider.requests().len(), 2);
}

#[test]
fn a_handler_that_panics_is_a_500_and_the_server_lives() {
    let provider = counting();
    let get = "GET /panic HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert!(ask(&provider, get).starts_with("HTTP/1.1 500"));
    let unknown = "GET /unknown HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert!(ask(&provider, unknown).contains("no route for GET /unknown"));
}

#[test]
fn scenarios_and_state_are_controlled() {
    let provider = counting();
    let post =
        "POST /things/a HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    assert!(!provider.play(Some(Scenario::NoCapacity)), "not scripted");
    assert!(provider.play(Some(Scenario::Quota)));
    assert!(ask(&provider, post).starts_with("HTTP/1.1 403"));
    provider.play(None);
    assert!(ask(&provider, post).starts_with("HTTP/1.1 201"));
    assert_eq!(provider.stands().unwrap().len(), 1);
    let reset = "POST /_conformance/reset HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    assert!(ask(&provider, reset).starts_with("HTTP/1.1 204"));
    assert_eq!(provider.stands().unwrap().len(), 0);
    assert!(provider.requests().is_empty());
}

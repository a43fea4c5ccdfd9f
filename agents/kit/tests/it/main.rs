//! The server on real sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, helpers too")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dstack_agent_kit::http::{HttpError, Listen, Listener, Reply, Router, serve};
use dstack_agent_kit::stop::Stop;
use dstack_agent_kit::websocket::{self, tungstenite::Message};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

#[derive(Default)]
struct State {
    entered: Notify,
    release: Notify,
}

fn router(state: &Arc<State>) -> Router<State> {
    Router::new(Arc::clone(state))
        .get("/hello/{name}", async |_, request| {
            Ok(Reply::json(
                &json!({"name": request.param("name"), "loud": request.query("loud")}),
            ))
        })
        .post("/echo", async |_, request| {
            Ok(Reply::json(&request.json::<Value>().await?))
        })
        .get("/empty", async |_, _| Ok(Reply::empty()))
        .post("/refuse", async |_, _| Err(HttpError::conflict("not now")))
        .get("/refuse", async |_, _| Err(HttpError::conflict("not now")))
        .get("/panic", async |_, _| panic!("on purpose"))
        .get("/slow", async |state: Arc<State>, _| {
            state.entered.notify_one();
            state.release.notified().await;
            Ok(Reply::text("late"))
        })
        .get("/ws", async |_, request| {
            websocket::upgrade(request, async |mut socket| {
                while let Some(Ok(message)) = socket.next().await {
                    if message.is_text() {
                        socket.send(message).await.unwrap();
                    }
                }
            })
        })
}

async fn start(listen: Listen) -> (Arc<State>, Stop, Option<u16>, JoinHandle<()>) {
    let state = Arc::new(State::default());
    let stop = Stop::new();
    let listener = Listener::bind(&listen).await.unwrap();
    let port = listener.port();
    let (router, told) = (router(&state), stop.clone());
    (
        state,
        stop,
        port,
        tokio::spawn(async move { serve(listener, router, &told).await }),
    )
}

fn any_port() -> Listen {
    Listen::Tcp {
        host: "localhost".into(),
        port: 0,
    }
}

async fn ask(mut io: impl AsyncRead + AsyncWrite + Unpin, head: &str, body: &str) -> String {
    let request = format!(
        "{head} HTTP/1.1\r\nHost: %2Fa%2Fsocket\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // The server may answer and close before it has read a body that is too large.
    drop(io.write_all(request.as_bytes()).await);
    let mut reply = Vec::new();
    drop(io.read_to_end(&mut reply).await);
    String::from_utf8(reply).unwrap()
}

async fn ask_tcp(port: Option<u16>, head: &str, body: &str) -> String {
    let io = TcpStream::connect(("127.0.0.1", port.unwrap()))
        .await
        .unwrap();
    ask(io, head, body).await
}

#[tokio::test]
async fn replies_and_refusals_look_as_clients_expect() {
    let (_, _, port, _) = start(any_port()).await;
    let reply = ask_tcp(port, "GET /hello/a%20b?loud=yes", "").await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert!(
        reply.contains("content-type: application/json\r\n"),
        "{reply}"
    );
    assert!(
        reply.ends_with("{\"loud\":\"yes\",\"name\":\"a b\"}\n"),
        "{reply}"
    );
    let empty = ask_tcp(port, "GET /empty", "").await;
    assert!(
        empty.contains("content-type: text/plain; charset=utf-8\r\n"),
        "{empty}"
    );
    assert!(empty.ends_with("\r\n\r\n\n"), "{empty}");
    for (head, body, status, text) in [
        ("GET /nowhere", "", 404, "Not Found\n"),
        ("POST /empty", "", 405, "Method Not Allowed\n"),
        ("GET /refuse", "", 409, "not now\n"),
        ("POST /echo", "", 400, "Request body must not be empty\n"),
        ("GET /panic", "", 500, "Internal Server Error\n"),
    ] {
        let reply = ask_tcp(port, head, body).await;
        assert!(
            reply.starts_with(&format!("HTTP/1.1 {status} ")),
            "{head}: {reply}"
        );
        assert!(
            reply.ends_with(&format!("\r\n\r\n{text}")),
            "{head}: {reply}"
        );
    }
    assert!(
        ask_tcp(port, "POST /echo", "{\"a\": 1}")
            .await
            .ends_with("{\"a\":1}\n")
    );
}

/// Or a client would send its next request where it is closed.
#[tokio::test]
async fn a_refusal_that_leaves_a_body_unread_says_that_the_connection_ends() {
    let (_, _, port, _) = start(any_port()).await;
    let first = async |head: &str, length: usize| {
        let address = ("127.0.0.1", port.unwrap());
        let mut io = TcpStream::connect(address).await.unwrap();
        let text = format!("{head} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        io.write_all(text.as_bytes()).await.unwrap();
        let mut reply = vec![0; 1024];
        let n = io.read(&mut reply).await.unwrap();
        String::from_utf8_lossy(&reply[..n]).into_owned()
    };
    for head in ["POST /refuse", "POST /nowhere", "PUT /echo"] {
        let reply = first(head, 10).await;
        assert!(
            reply.contains("\r\nconnection: close\r\n"),
            "{head}: {reply}"
        );
        let reply = first(head, 0).await;
        assert!(!reply.contains("connection: close"), "{head}: {reply}");
    }
}

#[tokio::test]
async fn a_body_over_one_mebibyte_is_refused() {
    let (_, _, port, _) = start(any_port()).await;
    let body = format!("\"{}\"", "x".repeat(1024 * 1024));
    let mut io = TcpStream::connect(("127.0.0.1", port.unwrap()))
        .await
        .unwrap();
    let head = format!(
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    io.write_all(head.as_bytes()).await.unwrap();
    let mut reply = vec![0; 1024];
    let n = io.read(&mut reply).await.unwrap();
    let reply = String::from_utf8_lossy(&reply[..n]).into_owned();
    assert!(reply.starts_with("HTTP/1.1 413 "), "{reply}");
    assert!(
        reply.ends_with("Request body must not be larger than 1MB\n"),
        "{reply}"
    );
}

#[tokio::test]
async fn a_unix_socket_replaces_a_dead_one_and_not_a_living_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let (_, stop, port, served) = start(Listen::Unix(path.clone())).await;
    assert_eq!(port, None);
    let reply = ask(UnixStream::connect(&path).await.unwrap(), "GET /empty", "").await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let second = Listener::bind(&Listen::Unix(path.clone()))
        .await
        .unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
    stop.request();
    served.await.unwrap();
    assert!(!Path::exists(&path));
}

#[tokio::test]
async fn a_stop_lets_the_request_in_flight_end() {
    let (state, stop, port, served) = start(any_port()).await;
    let slow = tokio::spawn(ask_tcp(port, "GET /slow", ""));
    state.entered.notified().await;
    stop.request();
    // The port is closed at once, so a new connection fails while the old one still waits.
    while TcpStream::connect(("127.0.0.1", port.unwrap()))
        .await
        .is_ok()
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    state.release.notify_one();
    assert!(slow.await.unwrap().ends_with("late"));
    served.await.unwrap();
}

#[tokio::test]
async fn a_forced_stop_cuts_requests_off() {
    let (state, stop, port, served) = start(any_port()).await;
    let slow = tokio::spawn(ask_tcp(port, "GET /slow", ""));
    state.entered.notified().await;
    stop.force();
    served.await.unwrap();
    assert_eq!(slow.await.unwrap(), "");
}

#[tokio::test]
async fn a_websocket_carries_messages() {
    let (_, _, port, _) = start(any_port()).await;
    let io = TcpStream::connect(("127.0.0.1", port.unwrap()))
        .await
        .unwrap();
    let url = format!("ws://localhost:{}/ws", port.unwrap());
    let (mut socket, _) = tokio_tungstenite::client_async(url, io).await.unwrap();
    socket.send(Message::text("hi")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("hi"));
    let plain = ask_tcp(port, "GET /ws", "").await;
    assert!(plain.starts_with("HTTP/1.1 400 "), "{plain}");
}

//! Connections to the server: taken, bounded in what they may cost, and ended in order.
//!
//! A head must come within [`HEAD_PATIENCE`] and fit into [`HEAD_BYTES`], so that a client that sends it byte by byte or
//! without an end holds one socket and nothing else. Idle connections cost a task of a few kilobytes.

use std::future::Future;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

/// How long the head of a request may take, from the first byte of the connection or the end of the last answer. Also the
/// life of a connection that does nothing.
const HEAD_PATIENCE: Duration = Duration::from_secs(75);
/// Longest head of a request: first line with the address, and all headers.
const HEAD_BYTES: usize = 64 * 1024;
/// Most headers of a request.
const HEADERS: usize = 100;
/// Pause when no connection can be taken, which is when there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` ends, then lets running requests end within `drain`.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()>,
    drain: Duration,
) {
    serve_with(listener, router, stop, drain, HEAD_PATIENCE).await;
}

async fn serve_with(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()>,
    drain: Duration,
    head_patience: Duration,
) {
    let (open, ending) = (TaskTracker::new(), CancellationToken::new());
    let mut stop = std::pin::pin!(stop);
    loop {
        let taken = tokio::select! {
            () = &mut stop => break,
            taken = listener.accept() => taken,
        };
        match taken {
            Ok((socket, _)) => {
                let (router, ending) = (router.clone(), ending.clone());
                open.spawn(talk(socket, router, ending, head_patience));
            }
            Err(error) => {
                tracing::warn!(%error, "no connection can be taken for a moment");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    ending.cancel();
    open.close();
    if tokio::time::timeout(drain, open.wait()).await.is_err() {
        tracing::warn!(
            connections = open.len(),
            "some requests did not end in time"
        );
    }
}

async fn talk(
    socket: TcpStream,
    router: Router,
    ending: CancellationToken,
    head_patience: Duration,
) {
    // Small answers must not wait for more to send.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let service =
        router.map_request(|request: Request<Incoming>| request.map(axum::body::Body::new));
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(head_patience)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(head_patience)
        .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
        .max_concurrent_streams(250);
    let connection = builder
        .serve_connection_with_upgrades(TokioIo::new(socket), TowerToHyperService::new(service));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection ended badly");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;

    use super::serve_with;

    struct Place {
        address: std::net::SocketAddr,
        stop: oneshot::Sender<()>,
        served: tokio::task::JoinHandle<()>,
    }

    async fn place(router: Router, patience: Duration) -> Place {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let served = tokio::spawn(serve_with(
            listener,
            router,
            stopped,
            Duration::from_secs(30),
            patience,
        ));
        Place {
            address,
            stop,
            served,
        }
    }

    async fn answer(address: std::net::SocketAddr, text: &[u8]) -> String {
        let mut socket = TcpStream::connect(address).await.unwrap();
        // A server that has heard enough may close before everything is sent.
        drop(socket.write_all(text).await);
        let mut out = Vec::new();
        drop(socket.read_to_end(&mut out).await);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[tokio::test]
    async fn heads_are_bounded_in_length_and_time() {
        let router = Router::new().route("/", get(|| async { "here" }));
        let place = place(router, Duration::from_millis(300)).await;
        let at = place.address;
        let good = answer(
            at,
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        )
        .await;
        assert!(
            good.starts_with("HTTP/1.1 200") && good.ends_with("here"),
            "{good}"
        );
        let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(200_000));
        let long = answer(at, long.as_bytes()).await;
        assert!(long.starts_with("HTTP/1.1 4") || long.is_empty(), "{long}");
        let many = "X: y\r\n".repeat(300);
        let many = answer(at, format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()).await;
        assert!(many.starts_with("HTTP/1.1 431"), "{many}");
        // A head without an end: the connection is closed, the test would hang otherwise.
        let slow = answer(at, b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ").await;
        assert!(!slow.starts_with("HTTP/1.1 200"), "{slow}");
        place.stop.send(()).unwrap();
        place.served.await.unwrap();
    }

    #[tokio::test]
    async fn a_stop_lets_requests_end_and_closes_idle_connections() {
        let (began, mut begun) = tokio::sync::mpsc::channel::<()>(1);
        let go = std::sync::Arc::new(tokio::sync::Notify::new());
        let wait = go.clone();
        let router = Router::new().route(
            "/",
            get(move || async move {
                began.send(()).await.unwrap();
                wait.notified().await;
                "done"
            }),
        );
        let place = place(router, Duration::from_secs(60)).await;
        let mut idle = TcpStream::connect(place.address).await.unwrap();
        let at = place.address;
        let asked =
            tokio::spawn(async move { answer(at, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await });
        begun.recv().await.unwrap();
        place.stop.send(()).unwrap();
        let mut nothing = Vec::new();
        idle.read_to_end(&mut nothing).await.unwrap();
        assert!(
            TcpStream::connect(at).await.is_err(),
            "nothing new is taken"
        );
        go.notify_one();
        assert!(asked.await.unwrap().ends_with("done"));
        place.served.await.unwrap();
    }
    /// A client that asks and asks and reads nothing: what it has asked for is not made before it reads.
    #[tokio::test]
    async fn who_does_not_read_is_not_answered_ahead() {
        const ASKED: usize = 500;
        let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = count.clone();
        let router = Router::new()
            .route(
                "/large",
                get(move || async move {
                    counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    vec![b'x'; 4 << 20]
                }),
            )
            .route("/", get(|| async { "here" }));
        let place = place(router, Duration::from_secs(60)).await;
        let mut greedy = TcpStream::connect(place.address).await.unwrap();
        let all = "GET /large HTTP/1.1\r\nHost: x\r\n\r\n".repeat(ASKED);
        greedy.write_all(all.as_bytes()).await.unwrap();
        for _ in 0..200 {
            let good = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            assert!(answer(place.address, good).await.ends_with("here"));
        }
        let made = count.load(std::sync::atomic::Ordering::Relaxed);
        assert!((1..20).contains(&made), "{made} of {ASKED} were made");
        drop(greedy);
        place.stop.send(()).unwrap();
        place.served.await.unwrap();
    }
}

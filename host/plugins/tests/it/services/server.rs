//! A provider to talk to: real sockets, on a free port.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use serde_json::json;
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, UnixListener},
};
use tokio_rustls::TlsAcceptor;

/// What was seen of requests.
#[derive(Default)]
pub(super) struct Seen {
    /// Connections taken.
    pub(super) connections: AtomicUsize,
    /// Requests begun.
    pub(super) begun: AtomicUsize,
    /// Requests whose client went away before they were answered.
    pub(super) dropped: AtomicUsize,
    /// Bodies that ended before their end.
    pub(super) broken: AtomicUsize,
}

impl Seen {
    pub(super) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
    pub(super) fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
    pub(super) fn broken(&self) -> usize {
        self.broken.load(Ordering::SeqCst)
    }
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A running server; ends with the test's runtime.
pub(super) struct Server {
    pub(super) port: u16,
    pub(super) seen: Arc<Seen>,
}

impl Server {
    pub(super) async fn start() -> Self {
        Self::serve(None).await
    }

    pub(super) async fn with_tls(acceptor: TlsAcceptor) -> Self {
        Self::serve(Some(acceptor)).await
    }

    async fn serve(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Seen::default());
        let of_loop = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, tls) = (Arc::clone(&of_loop), tls.clone());
                seen.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    match tls {
                        None => connection(stream, seen).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                connection(stream, seen).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, seen }
    }

    /// On a Unix socket.
    pub(super) fn at(path: &std::path::Path) {
        let listener = UnixListener::bind(path).unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(stream, Arc::default()));
            }
        });
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(super) fn tls_url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }
}

async fn connection<S>(stream: S, seen: Arc<Seen>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request| {
        let seen = Arc::clone(&seen);
        async move { Ok::<_, Infallible>(answer(request, seen).await) }
    });
    let served = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    // A client that goes away in the middle is what some tests are about.
    drop(served);
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into())
        .map_err(|e| match e {})
        .boxed_unsync()
}

/// Counts a request that was never answered.
struct Unanswered(Arc<Seen>, bool);

impl Drop for Unanswered {
    fn drop(&mut self) {
        if !self.1 {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn answer(request: Request<Incoming>, seen: Arc<Seen>) -> Response<Body> {
    seen.begun.fetch_add(1, Ordering::SeqCst);
    let mut guard = Unanswered(Arc::clone(&seen), false);
    let reply = reply(request, &seen).await;
    guard.1 = true;
    reply
}

async fn reply(request: Request<Incoming>, seen: &Seen) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let number = || query.parse::<usize>().unwrap_or_default();
    let response = Response::builder();
    match request.uri().path() {
        "/slow" => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            response.body(whole("late")).unwrap()
        }
        "/status" => response
            .status(u16::try_from(number()).unwrap())
            .header("retry-after", "7")
            .body(whole("as asked"))
            .unwrap(),
        "/redirect" | "/redirect307" => {
            let status = if request.uri().path() == "/redirect" {
                302
            } else {
                307
            };
            let reply = response.status(status).header("location", query);
            reply.body(whole("")).unwrap()
        }
        "/loop" => {
            let reply = response.status(302).header("location", "/loop");
            reply.body(whole("")).unwrap()
        }
        "/big" => response.body(stream(number(), false)).unwrap(),
        "/endless" => response.body(stream(usize::MAX, false)).unwrap(),
        "/trailers" => response
            .header("trailer", "grpc-status")
            .body(stream(number(), true))
            .unwrap(),
        "/early" => {
            // As a server with manners: what is on its way is still read, so that the answer is not lost.
            let mut body = request.into_body();
            tokio::spawn(async move { while let Some(Ok(_)) = body.frame().await {} });
            response.status(413).body(whole("too much")).unwrap()
        }
        "/sink" => match request.into_body().collect().await {
            Ok(body) => {
                let trailers: Vec<(String, String)> = body
                    .trailers()
                    .into_iter()
                    .flatten()
                    .map(|(name, value)| {
                        let value = value.to_str().unwrap_or_default().to_owned();
                        (name.to_string(), value)
                    })
                    .collect();
                let bytes = body.to_bytes().len();
                response
                    .body(whole(
                        json!({"bytes": bytes, "trailers": trailers}).to_string(),
                    ))
                    .unwrap()
            }
            Err(error) => {
                seen.broken.fetch_add(1, Ordering::SeqCst);
                response.status(400).body(whole(error.to_string())).unwrap()
            }
        },
        _ => echo(request).await,
    }
}

async fn echo(request: Request<Incoming>) -> Response<Body> {
    let headers: Vec<(String, String)> = request
        .headers()
        .iter()
        .map(|(name, value)| {
            let value = value.to_str().unwrap_or_default().to_owned();
            (name.to_string(), value)
        })
        .collect();
    let told = json!({
        "method": request.method().as_str(), "uri": request.uri().to_string(),
        "version": format!("{:?}", request.version()), "headers": headers,
    });
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut told = told;
    told["body"] = json!(String::from_utf8_lossy(&body));
    Response::builder()
        .header("set-cookie", "a=1")
        .header("set-cookie", "b=2")
        .body(whole(told.to_string()))
        .unwrap()
}

/// So many bytes in pieces, maybe with a trailer behind.
fn stream(bytes: usize, has_trailer: bool) -> Body {
    const PIECE: usize = 64 << 10;
    let frames = futures_util::stream::unfold((bytes, has_trailer), async |(left, trailer)| {
        if left > 0 {
            let size = left.min(PIECE);
            let frame = Frame::data(Bytes::from(vec![b'y'; size]));
            return Some((Ok(frame), (left - size, trailer)));
        }
        if !trailer {
            return None;
        }
        let mut map = hyper::HeaderMap::new();
        map.insert("grpc-status", "0".parse().unwrap());
        Some((Ok(Frame::trailers(map)), (0, false)))
    });
    Body::new(StreamBody::new(frames))
}

/// A server that takes a request, and closes the connection without an answer, for the first `cuts` of them. After `partial` bytes
/// of an answer, if there are any. How many requests it saw.
pub(super) async fn cutting(cuts: usize, partial: &'static str) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            if stream.read(&mut buffer).await.unwrap_or(0) == 0 {
                continue;
            }
            let number = counted.fetch_add(1, Ordering::SeqCst);
            let answer = if number < cuts {
                partial
            } else {
                "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\ndone"
            };
            drop(stream.write_all(answer.as_bytes()).await);
        }
    });
    (port, requests)
}

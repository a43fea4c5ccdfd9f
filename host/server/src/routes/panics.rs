//! Panics in handlers: the request gets the answer of any other failure, the connection and all others live on.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use tower_http::catch_panic::{CatchPanicLayer, ResponseForPanic};

use crate::error::ApiError;

/// How many there were. Clones share the number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Panics(Arc<AtomicU64>);

impl Panics {
    /// Since the server started.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Catches those of what is inside of it.
    pub(super) fn layer(&self) -> CatchPanicLayer<Self> {
        CatchPanicLayer::custom(self.clone())
    }
}

impl ResponseForPanic for Panics {
    type ResponseBody = Body;

    fn response_for_panic(&mut self, panic: Box<dyn Any + Send + 'static>) -> Response {
        self.0.fetch_add(1, Ordering::Relaxed);
        let text = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let reason = format!("a handler panicked: {}", text.unwrap_or("no text"));
        ApiError::Internal(reason).into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::Panics;
    use crate::compat;

    async fn ask(connection: &mut TcpStream, path: &str) -> String {
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        // Every answer here has its body in the same packet as its end.
        while !text.contains("\r\n\r\n") || !(text.ends_with("fine") || text.ends_with("Error")) {
            let mut piece = [0; 4096];
            let read = tokio::time::timeout(Duration::from_secs(30), connection.read(&mut piece));
            let count = read.await.unwrap().unwrap();
            assert!(count > 0, "the connection ended after: {text}");
            text.push_str(std::str::from_utf8(piece.get(..count).unwrap()).unwrap());
        }
        text
    }

    #[tokio::test]
    async fn a_panic_is_one_answer_and_nothing_else() {
        #[expect(clippy::panic, reason = "it is what is tested")]
        async fn boom() -> &'static str {
            panic!("a bug")
        }
        let (panics, version) = (Panics::default(), compat::server_version("0.22.5"));
        let routes = Router::new()
            .route("/boom", get(boom))
            .route("/fine", get(async || "fine"));
        let app = super::super::around(routes, version, &panics);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move { axum::serve(listener, app).await });
        let mut other = TcpStream::connect(address).await.unwrap();
        assert!(ask(&mut other, "/fine").await.starts_with("HTTP/1.1 200"));
        let mut mine = TcpStream::connect(address).await.unwrap();
        for count in 1..=2 {
            let answer = ask(&mut mine, "/boom").await;
            assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
            assert!(
                answer.ends_with("\r\n\r\nInternal Server Error"),
                "{answer}"
            );
            // Such answers can be told from a proxy's, and found in the log.
            assert!(answer.contains("x-request-id: "), "{answer}");
            assert!(answer.contains("x-dstack-host-version: "), "{answer}");
            assert_eq!(panics.count(), count);
        }
        assert!(ask(&mut mine, "/fine").await.starts_with("HTTP/1.1 200"));
        assert!(ask(&mut other, "/fine").await.starts_with("HTTP/1.1 200"));
        serving.abort();
    }
}

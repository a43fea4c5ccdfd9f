//! HTTP, made by the host: one pool of connections, one policy for proxies and certificates, one place that records.
//!
//! Bodies too large for one message go and come in chunks: [`Request::send_streamed`], [`Request::open_body`].
//!
//! ```no_run
//! # fn f() -> Result<(), dstack_backend_sdk::BackendError> {
//! use dstack_backend_sdk::http::Request;
//! #[derive(serde::Deserialize)]
//! struct Servers { names: Vec<String> }
//! let servers: Servers = Request::get("https://api.acme.example/v1/servers")
//!     .bearer("token")
//!     .send()?
//!     .ok()?
//!     .json()?;
//! # drop(servers); Ok(()) }
//! ```

mod stream;

pub use stream::{BodyWriter, ReplyReader};

use super::{request, to_json};
use dstack_backend_types::{BackendError, ErrorKind, services as wire};
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt, time::Duration};

/// A request being made. The call's deadline bounds it.
#[derive(Clone)]
#[must_use = "a request does nothing until it is sent"]
pub struct Request {
    head: wire::HttpRequest,
    body: Result<Vec<u8>, BackendError>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers carry tokens, and so may the query.
        let url = self.head.url.split('?').next().unwrap_or_default();
        write!(f, "{} {url}", self.head.method)
    }
}

impl Request {
    /// A request with this method (`GET`, `PATCH`, …).
    pub fn new(method: &str, url: impl Into<String>) -> Self {
        let head = wire::HttpRequest {
            method: method.to_owned(),
            url: url.into(),
            is_idempotent: matches!(method, "GET" | "HEAD" | "PUT" | "DELETE"),
            ..wire::HttpRequest::default()
        };
        Self {
            head,
            body: Ok(Vec::new()),
        }
    }
    /// `GET`
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }
    /// `POST`
    pub fn post(url: impl Into<String>) -> Self {
        Self::new("POST", url)
    }
    /// `PUT`
    pub fn put(url: impl Into<String>) -> Self {
        Self::new("PUT", url)
    }
    /// `DELETE`
    pub fn delete(url: impl Into<String>) -> Self {
        Self::new("DELETE", url)
    }
    /// Adds a header.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.head.headers.push((name.to_owned(), value.into()));
        self
    }
    /// Adds a bearer token.
    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", format!("Bearer {token}"))
    }
    /// Sends this value as JSON.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Self {
        let mut this = self.header("content-type", "application/json");
        this.body = to_json(&value);
        this
    }
    /// Sends these bytes.
    pub fn body(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.body = Ok(bytes.into());
        self
    }
    /// Bounds this request alone.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.head.timeout_ms = u64::try_from(limit.as_millis()).ok();
        self
    }
    /// Whether the host may send it again after a lost connection; true for `GET`, `HEAD`, `PUT`, `DELETE` unless said.
    pub fn idempotent(mut self, is_idempotent: bool) -> Self {
        self.head.is_idempotent = is_idempotent;
        self
    }
    /// How many redirects are followed; none by default.
    pub fn redirects(mut self, count: u32) -> Self {
        self.head.redirects = count;
        self
    }
    /// Trusts only these certificate authorities (PEM).
    pub fn ca_pem(mut self, pem: impl Into<String>) -> Self {
        self.head.ca_pem = Some(pem.into());
        self
    }
    /// Shows this client certificate with its key (PEM).
    pub fn client_pem(mut self, pem: impl Into<String>) -> Self {
        self.head.client_pem = Some(pem.into());
        self
    }
    /// Connects to a Unix socket.
    pub fn unix_socket(mut self, path: impl Into<String>) -> Self {
        self.head.unix_socket = Some(path.into());
        self
    }
    /// Speaks HTTP/2 from the start.
    pub fn http2(mut self) -> Self {
        self.head.http2 = true;
        self
    }

    /// Adds a header behind the body, which then goes in chunks.
    pub fn trailer(mut self, name: &str, value: impl Into<String>) -> Self {
        self.head.trailers.push((name.to_owned(), value.into()));
        self
    }
    /// A longer reply is an error; 16 MiB unless said, 64 MiB at most.
    pub fn max_reply_bytes(mut self, limit: u64) -> Self {
        self.head.max_reply_bytes = Some(limit);
        self
    }

    /// Sends it and waits for the whole reply, whatever its status.
    ///
    /// # Errors
    /// `transport` if there is no reply, `timeout`, `cancelled`; `unsupported` if the host has no HTTP.
    pub fn send(self) -> Result<Response, BackendError> {
        exchange(&self.head, &self.body?)
    }

    /// Sends it and waits for the head of the reply; the body is read piece by piece.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_streamed(mut self) -> Result<ReplyReader, BackendError> {
        self.head.is_reply_streamed = true;
        exchange(&self.head, &self.body?).map(ReplyReader::new)
    }

    /// Sends the head; the body, of any size, is written piece by piece. Nothing is sent twice and no redirect followed.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn open_body(mut self) -> Result<BodyWriter, BackendError> {
        self.head.is_body_streamed = true;
        exchange(&self.head, &[]).map(|opened| BodyWriter::new(&opened))
    }
}

/// One message to the host, with a reply as its answer.
fn exchange<T: Serialize>(head: &T, body: &[u8]) -> Result<Response, BackendError> {
    let (head, body) = message(head, body)?;
    Ok(Response { head, body })
}

fn message<T: Serialize, A: DeserializeOwned>(
    head: &T,
    body: &[u8],
) -> Result<(A, Vec<u8>), BackendError> {
    let message = wire::frame(head, body).map_err(|e| BackendError::internal(e.to_string()))?;
    let reply = request(wire::HTTP, &message)?;
    let (head, body) = wire::unframe(reply.as_slice())
        .map_err(|e| BackendError::internal(format!("the host's answer is not understood: {e}")))?;
    Ok((head, body.to_vec()))
}

/// A reply, of any status.
#[derive(Clone)]
pub struct Response {
    head: wire::HttpReply,
    body: Vec<u8>,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Response({}, {} bytes)",
            self.head.status,
            self.body.len()
        )
    }
}

impl Response {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.head.status
    }
    /// The first header of this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.headers.iter();
        headers
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
    /// All headers, in order; names in lower case.
    pub fn headers(&self) -> &[(String, String)] {
        &self.head.headers
    }
    /// What came behind the body. Of a reply that is read piece by piece see [`ReplyReader::trailers`].
    pub fn trailers(&self) -> &[(String, String)] {
        &self.head.trailers
    }
    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
    /// The body as text; what is not UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
    /// The body as JSON.
    ///
    /// # Errors
    /// `internal` if it is not of this shape.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, BackendError> {
        serde_json::from_slice(&self.body).map_err(|e| {
            BackendError::internal(format!(
                "a reply with status {} is not understood: {e}",
                self.head.status
            ))
        })
    }
    /// Itself if its status is 2xx.
    ///
    /// # Errors
    /// By status: 401 and 403 `auth`, 404 and 410 `not_found`, 429 `rate_limited`, 5xx `transport`, else `internal`; the
    /// message holds the beginning of the body.
    pub fn ok(self) -> Result<Self, BackendError> {
        let kind = match self.head.status {
            200..=299 => return Ok(self),
            401 | 403 => ErrorKind::Auth,
            404 | 410 => ErrorKind::NotFound,
            429 => ErrorKind::RateLimited,
            500..=599 => ErrorKind::Transport,
            _ => ErrorKind::Internal,
        };
        let text: String = self.text().chars().take(300).collect();
        let mut error = BackendError::new(
            kind,
            format!("status {}: {}", self.head.status, text.trim()),
        );
        error.retry_after_ms = self
            .header("retry-after")
            .and_then(|seconds| seconds.trim().parse::<u64>().ok())
            .map(|seconds| seconds.saturating_mul(1000));
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::{Request, Response};
    use dstack_backend_types::{ErrorKind, services::HttpReply};

    fn response(status: u16) -> Response {
        let head = HttpReply {
            status,
            headers: vec![("retry-after".to_owned(), "3".to_owned())],
            ..HttpReply::default()
        };
        Response {
            head,
            body: b"{\"a\":1}".to_vec(),
        }
    }

    #[test]
    fn a_status_becomes_a_kind() {
        assert!(response(204).ok().is_ok());
        for (status, kind) in [
            (401, ErrorKind::Auth),
            (404, ErrorKind::NotFound),
            (429, ErrorKind::RateLimited),
            (502, ErrorKind::Transport),
            (400, ErrorKind::Internal),
        ] {
            let error = response(status).ok().unwrap_err();
            assert_eq!(
                (error.kind, error.retry_after_ms),
                (kind, Some(3000)),
                "{status}"
            );
        }
    }

    #[test]
    fn nothing_secret_is_printed() {
        let request = Request::get("https://a.example/x?token=hush")
            .bearer("hush")
            .body("hush");
        assert!(!format!("{request:?}").contains("hush"));
    }

    #[test]
    fn without_a_host_it_says_so() {
        assert_eq!(
            Request::get("https://a.example").send().unwrap_err().kind,
            ErrorKind::Unsupported
        );
    }
}

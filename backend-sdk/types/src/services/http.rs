//! HTTP as a host service: one message for a whole request, or several for bodies in chunks.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The head of a request. The body follows it, unless [`is_body_streamed`](Self::is_body_streamed).
///
/// Limits: 64 MiB of body in one message, 64 MiB of reply; more goes in chunks. A request that was cancelled or whose call
/// passed its deadline ends at once.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpRequest {
    /// `GET`, `POST` and so on.
    pub method: String,
    /// Absolute URL.
    pub url: String,
    /// In order; a name may stand more than once.
    pub headers: Vec<(String, String)>,
    /// For the whole request, redirects and repetitions included; `None` leaves it to the call's deadline. Of a reply that is
    /// streamed, only until its head is there.
    pub timeout_ms: Option<u64>,
    /// How many redirects are followed; `0` none. Credentials go to the same host, scheme and port only.
    pub redirects: u32,
    /// Whether the host may send it again after a connection was lost.
    pub is_idempotent: bool,
    /// PEM of the only certificate authorities to trust.
    pub ca_pem: Option<String>,
    /// PEM of the client's certificate and key.
    pub client_pem: Option<String>,
    /// Connect to this Unix socket; the URL then only names host and path.
    pub unix_socket: Option<String>,
    /// Speak HTTP/2 from the start. Without it, TLS servers choose.
    pub http2: bool,
    /// Sent behind the body, which then goes in chunks.
    pub trailers: Vec<(String, String)>,
    /// A longer reply is an error; `None` is 16 MiB, and 64 MiB the most. Streamed replies have no limit.
    pub max_reply_bytes: Option<u64>,
    /// The reply's body is not in the answer but read with [`HttpStreamOp::Read`].
    pub is_reply_streamed: bool,
    /// The body is not in this message but written with [`HttpStreamOp::Write`]; the answer is an [`HttpReply`] with status 0
    /// and a stream, and [`HttpStreamOp::Finish`] answers the true one. Such a request is sent once and follows no redirect.
    pub is_body_streamed: bool,
}

impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers carry tokens, and so may the query.
        let url = self.url.split(['?', '#']).next().unwrap_or_default();
        write!(f, "HttpRequest({} {url})", self.method)
    }
}

/// The head of a reply. The body follows it, unless it has a [`stream`](Self::stream).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpReply {
    /// The HTTP status; 0 for an answer that only opens a stream for the body.
    pub status: u16,
    /// In order; names in lower case. What is not UTF-8 is replaced.
    pub headers: Vec<(String, String)>,
    /// What came behind the body. Of a streamed reply they are in the last [`HttpChunk`].
    pub trailers: Vec<(String, String)>,
    /// Names the stream in [`HttpStreamOp`]s, until it is read to its end or closed or the call ends.
    pub stream: Option<u64>,
}

/// What is done with a stream. One operation at a time; a second one waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum HttpStreamOp {
    /// Sends the bytes that follow the head, at most 8 MiB. Waits while the server is behind. Answers [`HttpWritten`].
    Write {
        /// Which.
        stream: u64,
    },
    /// Ends the body and waits for the reply. Answers [`HttpReply`] with its body, or with the same stream for reading.
    Finish {
        /// Which.
        stream: u64,
        /// Sent behind the body.
        #[serde(default)]
        trailers: Vec<(String, String)>,
        /// The reply's body is not in the answer but read from the same stream.
        #[serde(default)]
        is_reply_streamed: bool,
    },
    /// Waits for the next bytes of the reply. Answers [`HttpChunk`] with the bytes.
    Read {
        /// Which.
        stream: u64,
        /// At most so many, 1 to 8 MiB; 0 is 1 MiB.
        #[serde(default)]
        max_bytes: u32,
    },
    /// Ends the request, whatever state it is in. Success if there is no such stream. Answers `null`.
    Close {
        /// Which.
        stream: u64,
    },
}

/// The head of a piece of a reply. The bytes follow it; there is at least one unless the reply has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpChunk {
    /// Whether this was the last; the stream is closed then.
    pub is_end: bool,
    /// What came behind the body; with the last chunk only.
    pub trailers: Vec<(String, String)>,
}

/// How a piece of a body went out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpWritten {
    /// The server has answered already, so the rest of the body is of no use: [`HttpStreamOp::Finish`] tells the reply.
    pub is_answered: bool,
}

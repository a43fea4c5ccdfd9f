//! Host service `http`: requests of backends, over one pool of connections for each set of TLS options.
//!
//! Proxies come from the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`), certificate authorities from the
//! system (`SSL_CERT_FILE`, `SSL_CERT_DIR`), unless a request brings its own. A request ends at once when its call does.

mod client;
mod exchange;
mod redact;
mod stream;
mod tape;

use crate::call::CallState;
use bytes::Bytes;
use client::Clients;
use dstack_backend_types::{
    BackendError, ErrorKind,
    services::{self as wire, HttpReply, HttpRequest, HttpStreamOp},
};
use exchange::{Exchange, collect};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use std::{path::PathBuf, time::Duration};
use stream::Streams;
use tape::Tape;
use tracing::Instrument;

/// The largest body in one message, either way.
const MAX_BODY_BYTES: usize = 64 << 20;
/// The longest reply if the request does not say.
const USUAL_REPLY_BYTES: u64 = 16 << 20;

/// How requests of backends are made.
#[derive(Debug, Clone, Default)]
pub struct HttpConfig {
    /// Which proxy they go through.
    pub proxy: HttpProxy,
    /// Writes exchanges down, or answers from what was written down.
    pub tape: Option<HttpTape>,
}

/// Which proxy requests go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpProxy {
    /// The one of the environment.
    #[default]
    Environment,
    /// None.
    None,
}

/// A file of exchanges: one JSON object a line, without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpTape {
    /// Appends every exchange. Bodies that come or go in chunks are kept in memory first.
    Record(PathBuf),
    /// Sends nothing: answers with what was recorded for the same method and URL, in order; the last answer again when there are
    /// no more.
    Replay(PathBuf),
}

/// The service. Lives as long as the host.
pub(crate) struct Http {
    clients: Clients,
    streams: Streams,
    tape: Option<Tape>,
}

/// Whether a message is about a stream.
#[derive(Deserialize)]
struct Head {
    op: Option<IgnoredAny>,
}

impl Http {
    pub(crate) fn new(config: &HttpConfig) -> Self {
        Self {
            clients: Clients::new(config.proxy),
            streams: Streams::default(),
            tape: config.tape.clone().map(Tape::new),
        }
    }

    /// A call is over: its streams are closed.
    pub(crate) fn release(&self, call: u64) {
        self.streams.release(call);
    }

    /// Answers one message of a call.
    pub(crate) async fn answer(
        &self,
        call: &CallState,
        message: &[u8],
    ) -> Result<Vec<u8>, BackendError> {
        let (head, _): (Head, _) = wire::unframe(message).map_err(super::bad)?;
        if head.op.is_some() {
            let (op, bytes): (HttpStreamOp, _) = wire::unframe(message).map_err(super::bad)?;
            return self.stream(call, op, bytes).await;
        }
        let (request, body): (HttpRequest, _) = wire::unframe(message).map_err(super::bad)?;
        check(&request, body)?;
        let span = tracing::info_span!(
            "http",
            backend = call.plugin,
            call = call.id,
            method = request.method,
            url = redact::url_for_people(&request.url),
            status = tracing::field::Empty,
        );
        self.begin(call, request, Bytes::copy_from_slice(body))
            .instrument(span)
            .await
    }

    async fn begin(
        &self,
        call: &CallState,
        request: HttpRequest,
        body: Bytes,
    ) -> Result<Vec<u8>, BackendError> {
        if request.is_body_streamed {
            let stream = match &self.tape {
                Some(_) => self.streams.buffer(call, request)?,
                None => {
                    let client = self.clients.of(&request).await?;
                    self.streams.open(call, request, &client)?
                }
            };
            let opened = HttpReply {
                stream: Some(stream),
                ..HttpReply::default()
            };
            return framed(&opened, &[]);
        }
        if request.is_reply_streamed && self.tape.is_none() {
            let exchange = Exchange::new(&self.clients, &request, body);
            let reply = within(&request, exchange.send()).await?;
            let (parts, body) = reply.into_parts();
            let mut head = exchange::head_of(&parts);
            head.stream = Some(self.streams.read_from(call, body)?);
            return framed(&head, &[]);
        }
        let is_streamed = request.is_reply_streamed;
        let (mut head, body) = self.whole(&request, body).await?;
        if is_streamed {
            // Recorded or replayed: the body is here already.
            let trailers = std::mem::take(&mut head.trailers);
            head.stream = Some(self.streams.read_kept(call, body, trailers)?);
            return framed(&head, &[]);
        }
        framed(&head, &body)
    }

    /// A request of the host itself.
    pub(super) async fn fetch(
        &self,
        request: &HttpRequest,
        body: Vec<u8>,
    ) -> Result<(HttpReply, Bytes), BackendError> {
        self.whole(request, body.into()).await
    }

    /// A whole exchange, by the network or by the tape.
    async fn whole(
        &self,
        request: &HttpRequest,
        body: Bytes,
    ) -> Result<(HttpReply, Bytes), BackendError> {
        if let Some(Tape::Replay(replay)) = &self.tape {
            return replay.answer(request, &body);
        }
        let exchange = Exchange::new(&self.clients, request, body.clone());
        let answer = within(request, exchange.send_and_collect(limit_of(request))).await;
        if let Some(Tape::Record(record)) = &self.tape {
            record.note(request, &body, &answer).await;
        }
        answer
    }

    async fn stream(
        &self,
        call: &CallState,
        op: HttpStreamOp,
        bytes: &[u8],
    ) -> Result<Vec<u8>, BackendError> {
        match op {
            HttpStreamOp::Write { stream } => {
                super::json(&self.streams.write(call, stream, bytes).await?)
            }
            HttpStreamOp::Read { stream, max_bytes } => {
                let (head, bytes) = self.streams.read(call, stream, max_bytes).await?;
                framed(&head, &bytes)
            }
            HttpStreamOp::Close { stream } => {
                self.streams.close(call, stream);
                super::json(&())
            }
            HttpStreamOp::Finish {
                stream,
                trailers,
                is_reply_streamed,
            } => {
                if let Some((mut request, body)) = self.streams.take_buffered(call, stream).await? {
                    request.is_body_streamed = false;
                    request.trailers.extend(trailers);
                    let (mut head, body) = self.whole(&request, body).await?;
                    if !is_reply_streamed {
                        self.streams.close(call, stream);
                        return framed(&head, &body);
                    }
                    let trailers = std::mem::take(&mut head.trailers);
                    self.streams.turn_kept(call, stream, body, trailers).await?;
                    head.stream = Some(stream);
                    return framed(&head, &[]);
                }
                let (reply, limit) = self.streams.finish(call, stream, trailers).await?;
                let (parts, body) = reply.into_parts();
                let mut head = exchange::head_of(&parts);
                if is_reply_streamed {
                    self.streams.turn(call, stream, body).await?;
                    head.stream = Some(stream);
                    return framed(&head, &[]);
                }
                let collected = collect(head, body, limit).await;
                self.streams.close(call, stream);
                let (head, body) = collected?;
                framed(&head, &body)
            }
        }
    }
}

fn check(request: &HttpRequest, body: &[u8]) -> Result<(), BackendError> {
    if body.len() > MAX_BODY_BYTES {
        return Err(BackendError::invalid(format!(
            "the body has {} bytes, at most {MAX_BODY_BYTES} go in one message; write it in chunks",
            body.len()
        )));
    }
    if request.is_body_streamed && !body.is_empty() {
        return Err(BackendError::invalid(
            "the body is to be written in chunks, but there is one already",
        ));
    }
    if request.is_body_streamed && matches!(request.method.as_str(), "GET" | "HEAD") {
        return Err(BackendError::invalid(format!(
            "a {} has no body in chunks",
            request.method
        )));
    }
    Ok(())
}

fn limit_of(request: &HttpRequest) -> usize {
    let limit = request.max_reply_bytes.unwrap_or(USUAL_REPLY_BYTES);
    usize::try_from(limit).map_or(MAX_BODY_BYTES, |limit| limit.min(MAX_BODY_BYTES))
}

/// Bounds a request by its own time limit; the call's bounds it anyway.
async fn within<T>(
    request: &HttpRequest,
    work: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    let Some(ms) = request.timeout_ms else {
        return work.await;
    };
    tokio::time::timeout(Duration::from_millis(ms), work)
        .await
        .unwrap_or_else(|_| Err(timed_out(request, ms)))
}

fn timed_out(request: &HttpRequest, ms: u64) -> BackendError {
    BackendError::new(
        ErrorKind::Timeout,
        format!(
            "{} {}: no answer within {ms} ms",
            request.method,
            redact::url_for_people(&request.url)
        ),
    )
}

fn framed<T: Serialize>(head: &T, body: &[u8]) -> Result<Vec<u8>, BackendError> {
    wire::frame(head, body).map_err(|e| BackendError::internal(e.to_string()))
}

//! Bodies that go and come in chunks.

use super::exchange::{self, Response};
use crate::call::CallState;
use bytes::{Bytes, BytesMut};
use dstack_backend_types::{
    BackendError, ErrorKind,
    services::{HttpChunk, HttpRequest, HttpWritten},
};
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::Frame;
use reqwest::{Body, Client};
use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};
use tracing::Instrument;

/// One call has no use for more at once.
const MAX_STREAMS_PER_CALL: usize = 64;
const MAX_CHUNK_BYTES: usize = 8 << 20;
const USUAL_CHUNK_BYTES: usize = 1 << 20;
/// Pieces on their way to the server.
const PIECES: usize = 2;

/// A piece of a body on its way to the server.
enum Piece {
    Data(Bytes),
    End(HeaderMap),
}

/// A body whose pieces come from a plugin. Without its end it is an error, so that the server never takes a part for the whole.
struct Pieces {
    pieces: mpsc::Receiver<Piece>,
    has_ended: bool,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let piece = std::task::ready!(self.pieces.poll_recv(cx));
        Poll::Ready(match piece {
            Some(Piece::Data(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Piece::End(trailers)) => {
                self.has_ended = true;
                (!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers)))
            }
            None => {
                self.has_ended = true;
                Some(Err(io::Error::other("the body was given up")))
            }
        })
    }
}

/// The running request of a body that is being written.
struct Writing {
    pieces: mpsc::Sender<Piece>,
    reply: AbortOnDropHandle<Result<Response, BackendError>>,
    /// Set when there is a reply, or none will come.
    answered: CancellationToken,
    limit: usize,
}

/// A reply that is being read.
struct Reading {
    /// `None` once its end was met.
    body: Option<Body>,
    /// Read from the network but not yet by the plugin.
    left: Bytes,
    trailers: Vec<(String, String)>,
}

enum State {
    Writing(Box<Writing>),
    /// Written into memory, for the tape.
    Buffering(Box<HttpRequest>, BytesMut),
    Reading(Reading),
    /// Between writing and reading.
    Finished,
}

struct Stream {
    call: u64,
    state: tokio::sync::Mutex<State>,
    /// Ends the watch for the call's cancellation.
    _watch: DropGuard,
}

type Known = Arc<Mutex<HashMap<u64, Arc<Stream>>>>;

/// The open streams of all calls.
#[derive(Default)]
pub(super) struct Streams {
    next: AtomicU64,
    known: Known,
}

fn lock(known: &Known) -> MutexGuard<'_, HashMap<u64, Arc<Stream>>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wrong(what: &str) -> BackendError {
    BackendError::invalid(format!("this stream cannot be {what} now"))
}

impl Streams {
    /// Closes the streams of a call.
    pub(super) fn release(&self, call: u64) {
        lock(&self.known).retain(|_, stream| stream.call != call);
    }

    /// Closes a stream, if it is the call's.
    pub(super) fn close(&self, call: &CallState, stream: u64) {
        let mut known = lock(&self.known);
        if known.get(&stream).is_some_and(|it| it.call == call.id) {
            known.remove(&stream);
        }
    }

    fn add(&self, call: &CallState, state: State) -> Result<u64, BackendError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let closed = CancellationToken::new();
        let stream = Stream {
            call: call.id,
            state: tokio::sync::Mutex::new(state),
            _watch: closed.clone().drop_guard(),
        };
        {
            let mut known = lock(&self.known);
            let of_call = known.values().filter(|it| it.call == call.id).count();
            if of_call >= MAX_STREAMS_PER_CALL {
                return Err(BackendError::invalid(format!(
                    "a call may have {MAX_STREAMS_PER_CALL} streams at once; close some"
                )));
            }
            known.insert(id, Arc::new(stream));
        }
        // A cancelled call may never ask again, but its connections end now.
        let (known, cancel) = (Arc::clone(&self.known), call.cancel.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => drop(lock(&known).remove(&id)),
                () = closed.cancelled() => {}
            }
        });
        Ok(id)
    }

    fn find(&self, call: &CallState, stream: u64) -> Result<Arc<Stream>, BackendError> {
        let found = lock(&self.known).get(&stream).cloned();
        found
            .filter(|it| it.call == call.id)
            .ok_or_else(|| BackendError::invalid(format!("this call has no stream {stream}")))
    }

    /// Begins a request whose body is to come.
    pub(super) fn open(
        &self,
        call: &CallState,
        head: HttpRequest,
        client: &Client,
    ) -> Result<u64, BackendError> {
        let (pieces, received) = mpsc::channel(PIECES);
        let mut request = exchange::request(&head, None)?;
        *request.body_mut() = Some(Body::wrap(Pieces {
            pieces: received,
            has_ended: false,
        }));
        let limit = super::limit_of(&head);
        let answered = CancellationToken::new();
        let guard = answered.clone().drop_guard();
        let client = client.clone();
        let work = async move {
            let _guard = guard;
            let sent = client.execute(request);
            let reply = match head.timeout_ms {
                None => sent.await,
                Some(ms) => tokio::time::timeout(Duration::from_millis(ms), sent)
                    .await
                    .map_err(|_| super::timed_out(&head, ms))?,
            };
            let reply = reply.map_err(|e| exchange::transport(&head, &e))?;
            tracing::Span::current().record("status", reply.status().as_u16());
            Ok(reply.into())
        };
        let reply = AbortOnDropHandle::new(tokio::spawn(work.in_current_span()));
        let writing = Writing {
            pieces,
            reply,
            answered,
            limit,
        };
        self.add(call, State::Writing(Box::new(writing)))
    }

    /// As [`open`](Self::open), but into memory.
    pub(super) fn buffer(&self, call: &CallState, head: HttpRequest) -> Result<u64, BackendError> {
        self.add(call, State::Buffering(Box::new(head), BytesMut::new()))
    }

    /// A reply whose body is to be read.
    pub(super) fn read_from(&self, call: &CallState, body: Body) -> Result<u64, BackendError> {
        self.add(call, reading(body))
    }

    /// A reply whose body is in memory.
    pub(super) fn read_kept(
        &self,
        call: &CallState,
        body: Bytes,
        trailers: Vec<(String, String)>,
    ) -> Result<u64, BackendError> {
        self.add(call, kept(body, trailers))
    }

    pub(super) async fn write(
        &self,
        call: &CallState,
        stream: u64,
        bytes: &[u8],
    ) -> Result<HttpWritten, BackendError> {
        if bytes.len() > MAX_CHUNK_BYTES {
            return Err(BackendError::invalid(format!(
                "the piece has {} bytes, at most {MAX_CHUNK_BYTES}",
                bytes.len()
            )));
        }
        let found = self.find(call, stream)?;
        let mut state = found.state.lock().await;
        match &mut *state {
            State::Writing(writing) => {
                let is_answered = if bytes.is_empty() {
                    writing.answered.is_cancelled()
                } else {
                    let piece = Piece::Data(Bytes::copy_from_slice(bytes));
                    tokio::select! {
                        biased;
                        () = writing.answered.cancelled() => true,
                        sent = writing.pieces.send(piece) => sent.is_err(),
                    }
                };
                Ok(HttpWritten { is_answered })
            }
            State::Buffering(_, body) => {
                if body.len() + bytes.len() > super::MAX_BODY_BYTES {
                    return Err(BackendError::invalid(format!(
                        "a body that is recorded has at most {} bytes",
                        super::MAX_BODY_BYTES
                    )));
                }
                body.extend_from_slice(bytes);
                Ok(HttpWritten::default())
            }
            _ => Err(wrong("written")),
        }
    }

    /// The request and body of a stream that was written into memory; `None` if it was not.
    pub(super) async fn take_buffered(
        &self,
        call: &CallState,
        stream: u64,
    ) -> Result<Option<(HttpRequest, Bytes)>, BackendError> {
        let found = self.find(call, stream)?;
        let mut state = found.state.lock().await;
        if !matches!(*state, State::Buffering(..)) {
            return Ok(None);
        }
        match std::mem::replace(&mut *state, State::Finished) {
            State::Buffering(head, body) => Ok(Some((*head, body.freeze()))),
            _ => Ok(None),
        }
    }

    /// Ends the body and waits for the reply; also the limit of its body.
    pub(super) async fn finish(
        &self,
        call: &CallState,
        stream: u64,
        trailers: Vec<(String, String)>,
    ) -> Result<(Response, usize), BackendError> {
        let found = self.find(call, stream)?;
        let trailers = exchange::headers(&trailers)?;
        let mut state = found.state.lock().await;
        let State::Writing(mut writing) = std::mem::replace(&mut *state, State::Finished) else {
            return Err(wrong("finished"));
        };
        let ended = writing.pieces.send(Piece::End(trailers));
        tokio::select! {
            biased;
            () = writing.answered.cancelled() => {}
            // Not taken: the reply, or the reason why there is none, is on its way.
            _ = ended => {}
        }
        let reply = (&mut writing.reply).await.unwrap_or_else(|error| {
            Err(BackendError::new(
                ErrorKind::Transport,
                format!("the request ended early: {error}"),
            ))
        });
        Ok((reply?, writing.limit))
    }

    /// Lets a finished stream be read.
    pub(super) async fn turn(
        &self,
        call: &CallState,
        stream: u64,
        body: Body,
    ) -> Result<(), BackendError> {
        *self.find(call, stream)?.state.lock().await = reading(body);
        Ok(())
    }

    /// As [`turn`](Self::turn), from memory.
    pub(super) async fn turn_kept(
        &self,
        call: &CallState,
        stream: u64,
        body: Bytes,
        trailers: Vec<(String, String)>,
    ) -> Result<(), BackendError> {
        *self.find(call, stream)?.state.lock().await = kept(body, trailers);
        Ok(())
    }

    /// The next bytes of a reply. The stream is closed at its end.
    pub(super) async fn read(
        &self,
        call: &CallState,
        stream: u64,
        max_bytes: u32,
    ) -> Result<(HttpChunk, Bytes), BackendError> {
        let max = match usize::try_from(max_bytes) {
            Ok(0) => USUAL_CHUNK_BYTES,
            Ok(max) => max.min(MAX_CHUNK_BYTES),
            Err(_) => MAX_CHUNK_BYTES,
        };
        let found = self.find(call, stream)?;
        let mut state = found.state.lock().await;
        let State::Reading(reading) = &mut *state else {
            return Err(wrong("read"));
        };
        if let Err(error) = reading.fill().await {
            self.close(call, stream);
            return Err(error);
        }
        let bytes = reading.left.split_to(max.min(reading.left.len()));
        let mut head = HttpChunk::default();
        if bytes.is_empty() {
            head.is_end = true;
            head.trailers = std::mem::take(&mut reading.trailers);
            self.close(call, stream);
        }
        Ok((head, bytes))
    }
}

fn reading(body: Body) -> State {
    State::Reading(Reading {
        body: Some(body),
        left: Bytes::new(),
        trailers: Vec::new(),
    })
}

fn kept(left: Bytes, trailers: Vec<(String, String)>) -> State {
    State::Reading(Reading {
        body: None,
        left,
        trailers,
    })
}

impl Reading {
    /// Waits until there are bytes or the body has ended. May be dropped at any point: nothing is lost.
    async fn fill(&mut self) -> Result<(), BackendError> {
        while self.left.is_empty() {
            let Some(body) = &mut self.body else {
                return Ok(());
            };
            match body.frame().await {
                None => self.body = None,
                Some(Err(error)) => return Err(exchange::broken_body(&error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.left = data,
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            self.trailers.extend(exchange::pairs(&trailers));
                        }
                    }
                },
            }
        }
        Ok(())
    }
}

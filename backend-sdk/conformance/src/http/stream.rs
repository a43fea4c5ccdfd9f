//! Bodies that come or go in chunks. The suite keeps them in memory; only the messages are those of a stream.

use std::collections::HashMap;
use std::sync::Mutex;

use dstack_backend_types::BackendError;
use dstack_backend_types::services as wire;

use super::{Answer, exchange, framed};
use crate::host::{Call, lock};

/// Chunks are at most this large.
const MAX_CHUNK_BYTES: usize = 8 << 20;
const USUAL_CHUNK_BYTES: usize = 1 << 20;

enum State {
    Writing(Box<wire::HttpRequest>, Vec<u8>),
    Reading(Vec<u8>, usize),
}

struct Stream {
    call: u64,
    state: State,
}

/// The open streams of a check.
#[derive(Default)]
pub(crate) struct Streams {
    open: Mutex<(u64, HashMap<u64, Stream>)>,
}

fn unknown() -> BackendError {
    BackendError::invalid("no such stream, or it is not in that state")
}

fn bad(error: impl std::fmt::Display) -> BackendError {
    BackendError::internal(error.to_string())
}

impl Streams {
    fn add(&self, call: &Call, state: State) -> u64 {
        let mut open = lock(&self.open);
        open.0 += 1;
        let number = open.0;
        let stream = Stream {
            call: call.id,
            state,
        };
        open.1.insert(number, stream);
        number
    }

    pub(super) fn open_body(
        &self,
        call: &Call,
        head: wire::HttpRequest,
    ) -> Result<Vec<u8>, BackendError> {
        let stream = self.add(call, State::Writing(Box::new(head), Vec::new()));
        let head = wire::HttpReply {
            stream: Some(stream),
            ..wire::HttpReply::default()
        };
        wire::frame(&head, &[]).map_err(bad)
    }

    pub(super) fn open_reply(&self, call: &Call, answer: Answer) -> Result<Vec<u8>, BackendError> {
        let stream = self.add(call, State::Reading(answer.body, 0));
        let head = wire::HttpReply {
            status: answer.status,
            headers: answer.headers,
            stream: Some(stream),
            ..wire::HttpReply::default()
        };
        wire::frame(&head, &[]).map_err(bad)
    }

    pub(super) fn answer(
        &self,
        call: &Call,
        op: &wire::HttpStreamOp,
        bytes: &[u8],
    ) -> Result<Vec<u8>, BackendError> {
        match op {
            wire::HttpStreamOp::Write { stream } => {
                let mut open = lock(&self.open);
                match open.1.get_mut(stream).map(|stream| &mut stream.state) {
                    Some(State::Writing(_, body)) => body.extend_from_slice(bytes),
                    _ => return Err(unknown()),
                }
                wire::frame(&wire::HttpWritten::default(), &[]).map_err(bad)
            }
            wire::HttpStreamOp::Finish { stream, .. } => {
                let taken = lock(&self.open).1.remove(stream);
                let Some(State::Writing(head, body)) = taken.map(|stream| stream.state) else {
                    return Err(unknown());
                };
                let answer = exchange(call, &head, &body)?;
                if head.is_reply_streamed {
                    return self.open_reply(call, answer);
                }
                framed(&answer)
            }
            wire::HttpStreamOp::Read { stream, max_bytes } => {
                let most = match usize::try_from(*max_bytes).unwrap_or_default() {
                    0 => USUAL_CHUNK_BYTES,
                    most => most.min(MAX_CHUNK_BYTES),
                };
                let mut open = lock(&self.open);
                let Some(State::Reading(body, at)) =
                    open.1.get_mut(stream).map(|stream| &mut stream.state)
                else {
                    return Err(unknown());
                };
                let chunk: Vec<u8> = body.iter().skip(*at).take(most).copied().collect();
                *at += chunk.len();
                let is_end = *at >= body.len();
                if is_end {
                    open.1.remove(stream);
                }
                let head = wire::HttpChunk {
                    is_end,
                    ..wire::HttpChunk::default()
                };
                wire::frame(&head, &chunk).map_err(bad)
            }
            wire::HttpStreamOp::Close { stream } => {
                lock(&self.open).1.remove(stream);
                serde_json::to_vec(&()).map_err(bad)
            }
        }
    }

    /// A call has ended, and with it its streams.
    pub(crate) fn end_of(&self, call: u64) {
        lock(&self.open).1.retain(|_, stream| stream.call != call);
    }
}

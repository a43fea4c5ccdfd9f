//! Bodies that go and come piece by piece.

use super::{Response, exchange, message};
use crate::host::{from_json, request};
use dstack_backend_types::{BackendError, services as wire};
use std::fmt;

/// Ends the request when dropped.
struct Stream(u64);

impl Drop for Stream {
    fn drop(&mut self) {
        let close = wire::HttpStreamOp::Close { stream: self.0 };
        let Ok(message) = wire::frame(&close, &[]) else {
            return;
        };
        if let Err(error) = request(wire::HTTP, &message) {
            // The end of the call closes it as well.
            tracing::debug!(%error, "a stream was not closed");
        }
    }
}

/// A reply whose body is read piece by piece. Dropping it ends the request.
pub struct ReplyReader {
    response: Response,
    /// `None` once the end was read.
    stream: Option<Stream>,
    trailers: Vec<(String, String)>,
}

impl fmt::Debug for ReplyReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplyReader({})", self.response.status())
    }
}

impl ReplyReader {
    pub(super) fn new(response: Response) -> Self {
        Self {
            stream: response.head.stream.map(Stream),
            trailers: Vec::new(),
            response,
        }
    }

    /// Status and headers; its body is empty.
    pub fn response(&self) -> &Response {
        &self.response
    }

    /// The next bytes, at least one and at most 1 MiB; `None` at the end.
    ///
    /// # Errors
    /// `transport` if the connection is lost, `cancelled`.
    pub fn read(&mut self) -> Result<Option<Vec<u8>>, BackendError> {
        let Some(stream) = &self.stream else {
            return Ok(None);
        };
        let read = wire::HttpStreamOp::Read {
            stream: stream.0,
            max_bytes: 0,
        };
        let (head, bytes): (wire::HttpChunk, _) = message(&read, &[])?;
        if head.is_end {
            self.trailers = head.trailers;
            // The host has closed it.
            std::mem::forget(self.stream.take());
        }
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    /// What came behind the body, once its end was read.
    pub fn trailers(&self) -> &[(String, String)] {
        &self.trailers
    }

    /// The rest as one [`Response`], for error bodies and such.
    ///
    /// # Errors
    /// As [`read`](Self::read); `internal` if it is more than `limit` bytes.
    pub fn collect(mut self, limit: usize) -> Result<Response, BackendError> {
        let mut body = Vec::new();
        while let Some(bytes) = self.read()? {
            body.extend_from_slice(&bytes);
            if body.len() > limit {
                return Err(BackendError::internal(format!(
                    "the reply is longer than {limit} bytes"
                )));
            }
        }
        let mut response = self.response.clone();
        response.body = body;
        response.head.trailers = std::mem::take(&mut self.trailers);
        Ok(response)
    }
}

/// A body that is written piece by piece. Dropping it unfinished ends the request.
pub struct BodyWriter {
    stream: Stream,
}

impl fmt::Debug for BodyWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyWriter")
    }
}

impl BodyWriter {
    pub(super) fn new(opened: &Response) -> Self {
        // Every host that knows of streams gives one; 0 never is one.
        Self {
            stream: Stream(opened.head.stream.unwrap_or_default()),
        }
    }

    /// Sends these bytes, at most 8 MiB. `false` if the server has answered already and wants no more.
    ///
    /// # Errors
    /// `transport` if the connection is lost, `cancelled`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<bool, BackendError> {
        let write = wire::HttpStreamOp::Write {
            stream: self.stream.0,
        };
        let framed =
            wire::frame(&write, bytes).map_err(|e| BackendError::internal(e.to_string()))?;
        let written: wire::HttpWritten = from_json(request(wire::HTTP, &framed)?.as_slice())?;
        Ok(!written.is_answered)
    }

    /// Ends the body and waits for the reply.
    ///
    /// # Errors
    /// As [`Request::send`](super::Request::send).
    pub fn finish(self) -> Result<Response, BackendError> {
        self.finish_with(Vec::new())
    }

    /// As [`finish`](Self::finish), with headers behind the body.
    ///
    /// # Errors
    /// As [`Request::send`](super::Request::send).
    pub fn finish_with(self, trailers: Vec<(String, String)>) -> Result<Response, BackendError> {
        self.end(trailers, false)
    }

    /// Ends the body and waits for the head of the reply, whose body is read piece by piece.
    ///
    /// # Errors
    /// As [`Request::send`](super::Request::send).
    pub fn finish_streamed(self) -> Result<ReplyReader, BackendError> {
        let response = self.end(Vec::new(), true)?;
        if response.head.stream == Some(self.stream.0) {
            // The reader closes it from now on.
            std::mem::forget(self.stream);
        }
        Ok(ReplyReader::new(response))
    }

    fn end(
        &self,
        trailers: Vec<(String, String)>,
        is_reply_streamed: bool,
    ) -> Result<Response, BackendError> {
        let finish = wire::HttpStreamOp::Finish {
            stream: self.stream.0,
            trailers,
            is_reply_streamed,
        };
        exchange(&finish, &[])
    }
}

#[cfg(test)]
mod tests {
    use crate::http::Request;
    use dstack_backend_types::ErrorKind;

    #[test]
    fn without_a_host_it_says_so() {
        for error in [
            Request::get("https://a.example").send_streamed().map(drop),
            Request::post("https://a.example").open_body().map(drop),
        ] {
            assert_eq!(error.unwrap_err().kind, ErrorKind::Unsupported);
        }
    }
}

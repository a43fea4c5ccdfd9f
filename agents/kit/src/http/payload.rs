//! Bodies of replies: bytes known before, or bytes that are made while they are sent.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc;

/// Size of the pieces in which a body is made.
const PIECE: usize = 128 * 1024;
/// Pieces that wait for the network. With them a slow reader bounds the memory of a large reply.
const WAITING: usize = 2;

/// Body of a reply.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Known(Full<Bytes>),
    Made(mpsc::Receiver<io::Result<Bytes>>),
}

impl Default for Body {
    fn default() -> Self {
        Self::from(Bytes::new())
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(Kind::Known(Full::new(bytes)))
    }
}

impl Body {
    /// A body that `write` makes on a thread of its own while it is sent. An error of `write` breaks the connection, so
    /// that the reader does not take a part for the whole.
    ///
    /// Must be called within a Tokio runtime.
    pub fn made_by(write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static) -> Self {
        let (to, from) = mpsc::channel(WAITING);
        tokio::task::spawn_blocking(move || {
            let mut pieces = Pieces {
                made: Vec::with_capacity(PIECE),
                to: to.clone(),
            };
            let written = write(&mut pieces).and_then(|()| pieces.flush());
            if let Err(err) = written {
                tracing::debug!(error = %err, "a reply was not sent to its end");
                // If the reader has gone there is nobody to tell.
                drop(to.blocking_send(Err(err)));
            }
        });
        Self(Kind::Made(from))
    }
}

/// Gathers what is written and hands it over to the connection piece by piece.
struct Pieces {
    made: Vec<u8>,
    to: mpsc::Sender<io::Result<Bytes>>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE - self.made.len());
        self.made
            .extend_from_slice(bytes.get(..taken).unwrap_or_default());
        if self.made.len() == PIECE {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.made.is_empty() {
            return Ok(());
        }
        // Handed over as it is: logs are large, and each copy of them costs.
        let piece = std::mem::replace(&mut self.made, Vec::with_capacity(PIECE));
        self.to
            .blocking_send(Ok(Bytes::from(piece)))
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.get_mut().0 {
            Kind::Known(full) => Pin::new(full)
                .poll_frame(context)
                .map_err(|never| match never {}),
            Kind::Made(from) => from
                .poll_recv(context)
                .map(|piece| piece.map(|piece| piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Known(full) => full.is_end_stream(),
            Kind::Made(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Known(full) => full.size_hint(),
            Kind::Made(_) => SizeHint::default(),
        }
    }
}

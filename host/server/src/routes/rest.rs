//! The unread rest of request bodies. An answer that does not wait for the body, say of an unknown path, must not cost
//! the client its connection: what is on its way is read and thrown away, within bounds.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::{Stream, StreamExt as _};
use http_body_util::BodyExt as _;

/// Longer rests end the connection instead.
const MOST: usize = 1024 * 1024;
/// So do slower ones.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a body may take for each [`PIECE`] of it, or for its end: a client that sends byte by byte must not hold a
/// request for ever.
const PAUSE: Duration = Duration::from_secs(30);
/// Bytes; slower than this within a pause is no client's line.
const PIECE: usize = 1024;

/// Lets handlers leave bodies unread, and ends those that stand still.
pub(super) async fn read_to_the_end(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let body = if axum::body::HttpBody::is_end_stream(&body) {
        body
    } else {
        Body::from_stream(Kept::new(body, PAUSE))
    };
    next.run(Request::from_parts(head, body)).await
}

/// A body that is read to its end even if nobody wants it.
struct Kept {
    body: Option<BodyDataStream>,
    length: Duration,
    pause: Pin<Box<tokio::time::Sleep>>,
    /// Bytes since the pause began.
    come: usize,
}

impl Kept {
    fn new(body: Body, length: Duration) -> Self {
        Self {
            body: Some(body.into_data_stream()),
            length,
            pause: Box::pin(tokio::time::sleep(length)),
            come: 0,
        }
    }
}

impl Stream for Kept {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self {
            body,
            length,
            pause,
            come,
        } = &mut *self;
        let Some(reader) = body else {
            return Poll::Ready(None);
        };
        let polled = reader.poll_next_unpin(cx);
        match &polled {
            Poll::Ready(Some(Ok(piece))) => {
                *come += piece.len();
                if *come >= PIECE {
                    *come = 0;
                    pause.as_mut().reset(tokio::time::Instant::now() + *length);
                }
            }
            Poll::Ready(None | Some(Err(_))) => *body = None,
            Poll::Pending => {}
        }
        let waits = matches!(polled, Poll::Pending | Poll::Ready(Some(Ok(_))));
        if waits && pause.as_mut().poll(cx).is_ready() {
            *body = None;
            let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
            return Poll::Ready(Some(Err(axum::Error::new(late))));
        }
        polled
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let (Some(body), Ok(runtime)) = (self.body.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        runtime.spawn(async move {
            let rest = http_body_util::Limited::new(Body::from_stream(body), MOST).collect();
            // Too long, too slow or broken: the connection ends, as it would have without us.
            drop(tokio::time::timeout(PATIENCE, rest).await);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::{Body, Bytes};
    use futures_util::stream;
    use http_body_util::BodyExt as _;

    use super::Kept;

    async fn read(pieces: Vec<usize>, between: Duration, pause: Duration) -> Result<usize, String> {
        let body = stream::unfold(pieces.into_iter(), move |mut rest| async move {
            let size = rest.next()?;
            tokio::time::sleep(between).await;
            let piece = Ok::<_, std::io::Error>(Bytes::from(vec![0; size]));
            Some((piece, rest))
        });
        let kept = Kept::new(Body::from_stream(body), pause);
        let whole = Body::from_stream(kept).collect().await;
        whole
            .map(|it| it.to_bytes().len())
            .map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_body_that_drips_or_stands_still_is_given_up() {
        let (short, long) = (Duration::from_millis(1), Duration::from_secs(3600));
        // Without an end this test would hang.
        let still = read(vec![10, 10], long, Duration::from_millis(50)).await;
        assert!(still.is_err(), "{still:?}");
        let drips = read(vec![1; 1_000_000], short, Duration::from_millis(50)).await;
        assert!(drips.is_err(), "{drips:?}");
        assert_eq!(read(vec![1; 200], short, long).await, Ok(200));
        assert_eq!(
            read(vec![2000; 100], short, Duration::from_secs(60)).await,
            Ok(200_000)
        );
    }
}

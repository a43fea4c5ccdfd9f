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

/// Longest pause within a body; a client that sends byte by byte must not hold a request for ever.
const PAUSE: Duration = Duration::from_secs(30);

/// Lets handlers leave bodies unread, and ends those that stand still.
pub(super) async fn read_to_the_end(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let body = if axum::body::HttpBody::is_end_stream(&body) {
        body
    } else {
        Body::from_stream(Kept {
            body: Some(body.into_data_stream()),
            pause: Box::pin(tokio::time::sleep(PAUSE)),
        })
    };
    next.run(Request::from_parts(head, body)).await
}

/// A body that is read to its end even if nobody wants it.
struct Kept {
    body: Option<BodyDataStream>,
    pause: Pin<Box<tokio::time::Sleep>>,
}

impl Stream for Kept {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { body, pause } = &mut *self;
        let Some(reader) = body else {
            return Poll::Ready(None);
        };
        let polled = reader.poll_next_unpin(cx);
        match polled {
            Poll::Ready(Some(Ok(_))) => pause.as_mut().reset(tokio::time::Instant::now() + PAUSE),
            Poll::Ready(None | Some(Err(_))) => *body = None,
            Poll::Pending if pause.as_mut().poll(cx).is_ready() => {
                *body = None;
                let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
                return Poll::Ready(Some(Err(axum::Error::new(late))));
            }
            Poll::Pending => {}
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

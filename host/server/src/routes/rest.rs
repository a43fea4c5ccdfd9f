//! The unread rest of request bodies. An answer that does not wait for the body, say of an unknown path, must not cost
//! the client its connection: what is on its way is read and thrown away, within bounds.

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

/// Lets handlers leave bodies unread.
pub(super) async fn read_to_the_end(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let body = if axum::body::HttpBody::is_end_stream(&body) {
        body
    } else {
        Body::from_stream(Kept(Some(body.into_data_stream())))
    };
    next.run(Request::from_parts(head, body)).await
}

/// A body that is read to its end even if nobody wants it.
struct Kept(Option<BodyDataStream>);

impl Stream for Kept {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(body) = &mut self.0 else {
            return Poll::Ready(None);
        };
        let polled = body.poll_next_unpin(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.0 = None;
        }
        polled
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let (Some(body), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current())
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

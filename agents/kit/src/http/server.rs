//! Accepts connections and answers them until told to stop.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio_util::task::TaskTracker;

use super::listen::Stream;
use super::peer::{self, Ends};
use super::{HttpError, Listener, Reply, Router};
use crate::stop::Stop;

/// How long requests in flight may take after a stop was requested.
pub const GRACE: Duration = Duration::from_secs(5);
/// Pause after a failed accept, which mostly means that the process has too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Answers requests until `stop` is requested, then lets those in flight end for at most [`GRACE`], unless the stop is
/// forced. A handler that panics answers 500.
pub async fn serve<S: Send + Sync + 'static>(listener: Listener, router: Router<S>, stop: &Stop) {
    let router = Arc::new(router);
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.requested() => break,
        };
        match accepted {
            Ok(Stream::Tcp { io, guard }) => {
                let (router, stop) = (Arc::clone(&router), stop.clone());
                connections.spawn(async move {
                    if is_let_in(guard).await {
                        answer(io, router, stop).await;
                    }
                });
            }
            Ok(Stream::Unix(io)) => {
                connections.spawn(answer(io, Arc::clone(&router), stop.clone()));
            }
            Err(err) => {
                tracing::warn!(error = %err, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    tokio::select! {
        () = connections.wait() => {}
        () = stop.forced() => {}
        () = tokio::time::sleep(GRACE) => tracing::warn!("requests in flight were cut off"),
    }
}

async fn is_let_in(guard: Option<Ends>) -> bool {
    let Some(ends) = guard else { return true };
    let asked = tokio::task::spawn_blocking(move || peer::may_be_in_container(ends)).await;
    let is_refused = asked.unwrap_or(true);
    if is_refused {
        tracing::warn!(peer = %ends.peer, "a connection out of a container was refused");
    }
    !is_refused
}

async fn answer<I, S>(io: I, router: Arc<Router<S>>, stop: Stop)
where
    I: Read + Write + Unpin + Send + 'static,
    S: Send + Sync + 'static,
{
    let service = service_fn(move |request| {
        let router = Arc::clone(&router);
        async move {
            let reply = AssertUnwindSafe(router.handle(request))
                .catch_unwind()
                .await;
            let reply = reply.unwrap_or_else(|_| {
                tracing::error!("a request handler panicked");
                Reply::from(HttpError::internal(""))
            });
            Ok::<_, Infallible>(reply.into_response())
        }
    });
    let connection = http1::Builder::new()
        .serve_connection(io, service)
        .with_upgrades();
    tokio::pin!(connection);
    let mut is_stopping = false;
    loop {
        tokio::select! {
            result = &mut connection => {
                if let Err(err) = result {
                    tracing::debug!(error = %err, "a connection broke");
                }
                return;
            }
            () = stop.requested(), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = stop.forced() => return,
        }
    }
}

//! One HTTP request over a Unix socket: to the Docker engine and to a shim.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use std::{io, path::Path, time::Duration};

use super::unix_path;

const MAX_REPLY_BYTES: usize = 4 << 20;

/// Status and body of the answer.
pub(super) async fn request(
    socket: &Path,
    method: &str,
    path: &str,
    body: &str,
    limit: Duration,
) -> io::Result<(u16, Bytes)> {
    let exchange = async {
        let stream = unix_path::connect(socket).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_owned())))
            .map_err(io::Error::other)?;
        let answer = async {
            let reply = sender
                .send_request(request)
                .await
                .map_err(io::Error::other)?;
            let status = reply.status().as_u16();
            let body = Limited::new(reply.into_body(), MAX_REPLY_BYTES)
                .collect()
                .await
                .map_err(io::Error::other)?;
            Ok((status, body.to_bytes()))
        };
        tokio::pin!(answer, connection);
        tokio::select! {
            answer = &mut answer => answer,
            // Closed behind an answer, maybe, that has come as a whole.
            ended = &mut connection => answer.await.map_err(|e| ended.err().map_or(e, io::Error::other)),
        }
    };
    tokio::time::timeout(limit, exchange)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

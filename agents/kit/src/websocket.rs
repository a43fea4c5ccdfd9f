//! Turns a request into a WebSocket connection.

use http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
pub use tokio_tungstenite::WebSocketStream;
pub use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::http::{Body, HttpError, Reply, Request};

/// The server's end of a WebSocket connection.
pub type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Answers `request` with the switch to WebSocket and runs `talk` once the switch is made.
///
/// Any origin is accepted. `talk` runs as a task of its own and is not waited for when the server stops.
///
/// # Errors
/// 400 if the request does not ask for a WebSocket of version 13.
pub fn upgrade<F, Fut>(mut request: Request, talk: F) -> Result<Reply, HttpError>
where
    F: FnOnce(Socket) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let headers = request.headers();
    let key = headers.get(SEC_WEBSOCKET_KEY).cloned();
    let is_version_13 = headers
        .get(SEC_WEBSOCKET_VERSION)
        .is_some_and(|v| v == "13");
    let (Some(key), true, true, true) = (
        key,
        is_version_13,
        has_token(headers, &CONNECTION, "upgrade"),
        has_token(headers, &UPGRADE, "websocket"),
    ) else {
        return Err(HttpError::bad_request(
            "a WebSocket of version 13 was expected",
        ));
    };
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
        .map_err(|err| HttpError::internal(err.to_string()))?;
    let upgraded = hyper::upgrade::on(request.raw_mut());
    tokio::spawn(async move {
        match upgraded.await {
            Ok(io) => {
                let io = TokioIo::new(io);
                talk(WebSocketStream::from_raw_socket(io, Role::Server, None).await).await;
            }
            Err(err) => tracing::debug!(error = %err, "the switch to WebSocket failed"),
        }
    });
    let mut response = Response::new(Body::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(Reply::raw(response))
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| part.trim().eq_ignore_ascii_case(token))
}

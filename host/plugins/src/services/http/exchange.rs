//! One request with its redirects and repetitions.

use super::{client::Clients, redact};
use bytes::{Bytes, BytesMut};
use dstack_backend_types::{
    BackendError, ErrorKind,
    services::{HttpReply, HttpRequest},
};
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, response::Parts};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use reqwest::{Body, Request, Url};
use std::{borrow::Cow, convert::Infallible, error::Error, time::Duration};

pub(super) type Response = http::Response<Body>;

/// Waits before a request is sent again after a connection was lost; their number is that of repetitions.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// Why there is no reply, and whether the connection was at fault.
struct Failure {
    error: BackendError,
    is_lost: bool,
}

pub(super) struct Exchange<'a> {
    clients: &'a Clients,
    head: &'a HttpRequest,
    body: Bytes,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(clients: &'a Clients, head: &'a HttpRequest, body: Bytes) -> Self {
        Self {
            clients,
            head,
            body,
        }
    }

    /// The reply, its body still to be read.
    pub(super) async fn send(&self) -> Result<Response, BackendError> {
        let mut pauses = PAUSES.iter();
        loop {
            match self.follow().await {
                Ok(reply) => return Ok(reply),
                Err(failure) => self.pause(failure, &mut pauses).await?,
            }
        }
    }

    /// The whole reply.
    pub(super) async fn send_and_collect(
        &self,
        limit: usize,
    ) -> Result<(HttpReply, Bytes), BackendError> {
        let mut pauses = PAUSES.iter();
        loop {
            match self.follow_and_collect(limit).await {
                Ok(done) => return Ok(done),
                Err(failure) => self.pause(failure, &mut pauses).await?,
            }
        }
    }

    /// Waits for another attempt, if the connection was lost and one does no harm; else the failure is the answer.
    async fn pause(
        &self,
        failure: Failure,
        pauses: &mut std::slice::Iter<'_, Duration>,
    ) -> Result<(), BackendError> {
        match pauses.next() {
            Some(pause) if failure.is_lost && self.head.is_idempotent => {
                tracing::debug!(error = %failure.error, "sent again");
                tokio::time::sleep(*pause).await;
                Ok(())
            }
            _ => Err(failure.error),
        }
    }

    async fn follow_and_collect(&self, limit: usize) -> Result<(HttpReply, Bytes), Failure> {
        let (parts, body) = self.follow().await?.into_parts();
        collect_or_fail(head_of(&parts), body, limit).await
    }

    async fn follow(&self) -> Result<Response, Failure> {
        let mut head = Cow::Borrowed(self.head);
        let mut body = self.body.clone();
        let mut left = self.head.redirects;
        loop {
            let request = request(&head, Some(body.clone())).map_err(final_failure)?;
            let at = request.url().clone();
            let client = self.clients.of(&head).await.map_err(final_failure)?;
            let reply = client
                .execute(request)
                .await
                .map_err(|e| failure(&head, &e))?;
            tracing::Span::current().record("status", reply.status().as_u16());
            tracing::debug!(status = reply.status().as_u16(), "answered");
            let Some(to) = redirect(&reply, &at).filter(|_| self.head.redirects > 0) else {
                return Ok(reply.into());
            };
            if left == 0 {
                let error = BackendError::new(
                    ErrorKind::Transport,
                    format!(
                        "{}: more than {} redirects",
                        place(&head),
                        self.head.redirects
                    ),
                );
                return Err(final_failure(error));
            }
            left -= 1;
            if !matches!(to.scheme(), "http" | "https") {
                let error = BackendError::new(
                    ErrorKind::Transport,
                    format!("{}: redirected to {}:", place(&head), to.scheme()),
                );
                return Err(final_failure(error));
            }
            redirected(head.to_mut(), &mut body, reply.status(), &at, to);
        }
    }
}

/// Where a reply sends its reader.
fn redirect(reply: &reqwest::Response, at: &Url) -> Option<Url> {
    let status = reply.status().as_u16();
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let to = reply.headers().get(header::LOCATION)?.to_str().ok()?;
    at.join(to).ok()
}

/// Changes a request as its redirect asks. Credentials stay with the server that they were meant for.
fn redirected(head: &mut HttpRequest, body: &mut Bytes, status: StatusCode, at: &Url, to: Url) {
    let becomes_get = match status {
        StatusCode::SEE_OTHER => head.method != "HEAD",
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => head.method == "POST",
        _ => false,
    };
    if becomes_get {
        "GET".clone_into(&mut head.method);
        body.clear();
        head.trailers.clear();
        head.headers.retain(|(name, _)| {
            let name = name.to_ascii_lowercase();
            !name.starts_with("content-") && name != "transfer-encoding" && name != "trailer"
        });
    }
    if at.origin() != to.origin() {
        head.headers
            .retain(|(name, _)| !redact::is_secret(name) && !name.eq_ignore_ascii_case("host"));
        head.client_pem = None;
    }
    head.url = to.into();
}

/// The request as the client takes it; without a body yet if `body` is `None`.
pub(super) fn request(head: &HttpRequest, body: Option<Bytes>) -> Result<Request, BackendError> {
    let method = Method::from_bytes(head.method.as_bytes())
        .map_err(|_| BackendError::invalid(format!("{:?} is no method", head.method)))?;
    let url = Url::parse(&head.url)
        .map_err(|e| BackendError::invalid(format!("an address that makes no sense: {e}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(BackendError::invalid(format!(
            "{} is not an http or https address",
            redact::url_for_people(&head.url)
        )));
    }
    let mut request = Request::new(method, url);
    *request.headers_mut() = headers(&head.headers)?;
    let trailers = headers(&head.trailers)?;
    if !trailers.is_empty() && !request.headers().contains_key(header::TRAILER) {
        let names: Vec<&str> = trailers.keys().map(HeaderName::as_str).collect();
        let names = HeaderValue::from_str(&names.join(", "))
            .map_err(|e| BackendError::internal(e.to_string()))?;
        request.headers_mut().insert(header::TRAILER, names);
    }
    if let Some(bytes) = body {
        *request.body_mut() = match (bytes.is_empty(), trailers.is_empty()) {
            // Servers want a length of 0 where a body is usual.
            (true, true) if !matches!(head.method.as_str(), "POST" | "PUT" | "PATCH") => None,
            (_, true) => Some(Body::from(bytes)),
            (_, false) => {
                // A body that tells its length would go without its trailers.
                let frames = [Frame::data(bytes), Frame::trailers(trailers)];
                let frames = frames.map(Ok::<_, Infallible>);
                Some(Body::wrap(StreamBody::new(stream::iter(frames))))
            }
        };
    }
    Ok(request)
}

pub(super) fn headers(pairs: &[(String, String)]) -> Result<HeaderMap, BackendError> {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        let key = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| BackendError::invalid(format!("{name:?} is no header's name")))?;
        // The value is not told: it may be a credential.
        let mut text = HeaderValue::from_str(value).map_err(|_| {
            BackendError::invalid(format!(
                "the value of header {name} has characters that no header may have"
            ))
        })?;
        text.set_sensitive(redact::is_secret(name));
        map.append(key, text);
    }
    Ok(map)
}

pub(super) fn pairs(map: &HeaderMap) -> Vec<(String, String)> {
    map.iter()
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        })
        .collect()
}

pub(super) fn head_of(parts: &Parts) -> HttpReply {
    HttpReply {
        status: parts.status.as_u16(),
        headers: pairs(&parts.headers),
        ..HttpReply::default()
    }
}

/// Reads a body to its end.
pub(super) async fn collect(
    head: HttpReply,
    body: Body,
    limit: usize,
) -> Result<(HttpReply, Bytes), BackendError> {
    collect_or_fail(head, body, limit)
        .await
        .map_err(|failure| failure.error)
}

async fn collect_or_fail(
    mut head: HttpReply,
    mut body: Body,
    limit: usize,
) -> Result<(HttpReply, Bytes), Failure> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Failure {
            is_lost: true,
            error: broken_body(&e),
        })?;
        match frame.into_data() {
            Ok(data) => bytes.extend_from_slice(&data),
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    head.trailers.extend(pairs(&trailers));
                }
            }
        }
        if bytes.len() > limit {
            return Err(final_failure(BackendError::new(
                ErrorKind::Internal,
                format!(
                    "the reply with status {} has more than {limit} bytes; read it in chunks",
                    head.status
                ),
            )));
        }
    }
    Ok((head, bytes.freeze()))
}

pub(super) fn broken_body(error: &reqwest::Error) -> BackendError {
    BackendError::new(
        ErrorKind::Transport,
        format!("the reply was cut off: {}", reasons(error)),
    )
}

fn final_failure(error: BackendError) -> Failure {
    Failure {
        error,
        is_lost: false,
    }
}

fn failure(head: &HttpRequest, error: &reqwest::Error) -> Failure {
    Failure {
        // A connection that could not be made in time is the call's to try again, not ours.
        is_lost: !error.is_timeout() && !error.is_builder(),
        error: transport(head, error),
    }
}

/// Why no reply came.
pub(super) fn transport(head: &HttpRequest, error: &reqwest::Error) -> BackendError {
    let kind = match () {
        () if error.is_builder() => ErrorKind::Invalid,
        () if error.is_timeout() && !error.is_connect() => ErrorKind::Timeout,
        () => ErrorKind::Transport,
    };
    BackendError::new(kind, format!("{}: {}", place(head), reasons(error)))
}

fn place(head: &HttpRequest) -> String {
    format!("{} {}", head.method, redact::url_for_people(&head.url))
}

/// What led to an error, without the address, which may hold secrets.
fn reasons(error: &reqwest::Error) -> String {
    let mut reasons: Vec<String> = Vec::new();
    let mut source = error.source();
    while let Some(reason) = source {
        let text = reason.to_string();
        if reasons.last().is_none_or(|last| !last.contains(&text)) {
            reasons.push(text);
        }
        source = reason.source();
    }
    if reasons.is_empty() {
        return "no reply".to_owned();
    }
    reasons.join(": ")
}

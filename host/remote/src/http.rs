//! HTTP/1.1 over one stream: a request, its answer, the limits.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Carrier, Endpoint, RemoteError};

/// Error texts are shown to users; agents may send any length.
const MESSAGE_LIMIT: usize = 512;
/// No answer of an agent is larger: pulls are bounded by the runner at a fraction of this.
const BODY_LIMIT: usize = 256 * 1024 * 1024;

/// Speaks HTTP with one agent.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) carrier: Arc<dyn Carrier>,
    pub(crate) endpoint: Endpoint,
    pub(crate) timeout: Duration,
    pub(crate) upload_timeout: Duration,
}

/// What to send.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) body: Bytes,
    pub(crate) timeout: Duration,
}

/// A successful answer.
pub(crate) struct Answer {
    at: String,
    is_json: bool,
    body: Bytes,
}

impl Http {
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RemoteError> {
        self.call(self.plain(Method::GET, path)).await?.json()
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
    ) -> Result<Answer, RemoteError> {
        let body = serde_json::to_vec(body)
            .map_err(|e| RemoteError::Invalid(format!("cannot write the body of {path}: {e}")))?;
        let mut call = self.plain(Method::POST, path);
        call.content_type = Some("application/json");
        call.body = Bytes::from(body);
        self.call(call).await
    }

    pub(crate) fn plain<'a>(&self, method: Method, path: &'a str) -> Call<'a> {
        let timeout = self.timeout;
        Call {
            method,
            path,
            content_type: None,
            body: Bytes::new(),
            timeout,
        }
    }

    /// Opens a stream, sends, reads the whole answer. Connecting has its own limit in the carrier.
    pub(crate) async fn call(&self, call: Call<'_>) -> Result<Answer, RemoteError> {
        let stream = self.carrier.open(&self.endpoint).await?;
        let at = format!("{} {}{}", self.carrier.name(), self.endpoint, call.path);
        let limit = call.timeout;
        match tokio::time::timeout(limit, exchange(&at, stream, call)).await {
            Ok(answer) => answer,
            Err(_) => {
                self.carrier.suspect();
                Err(RemoteError::TimedOut { at, limit })
            }
        }
    }
}

async fn exchange(
    at: &str,
    stream: Box<dyn crate::Stream>,
    call: Call<'_>,
) -> Result<Answer, RemoteError> {
    let broken = |e: hyper::Error| RemoteError::Unreachable {
        at: at.to_owned(),
        reason: format!("the connection broke: {e}"),
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let request = request(call)?;
    // The connection makes progress only while it is polled, beside the request it carries.
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(broken)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, BODY_LIMIT)
            .collect()
            .await
            .map_err(|e| RemoteError::Unreachable {
                at: at.to_owned(),
                reason: format!("the answer broke off: {e}"),
            })?;
        Ok((head, body.to_bytes()))
    };
    tokio::pin!(exchange);
    let mut connection = std::pin::pin!(connection);
    let mut is_open = true;
    let (head, body) = loop {
        tokio::select! {
            done = &mut exchange => break done?,
            ended = &mut connection, if is_open => {
                is_open = false;
                if let Err(error) = ended { tracing::debug!(%error, at, "agent connection ended"); }
            }
        }
    };
    if head.status.as_u16() >= StatusCode::BAD_REQUEST.as_u16() {
        let message = cut(String::from_utf8_lossy(&body).trim_end(), MESSAGE_LIMIT).to_owned();
        return Err(RemoteError::Status {
            at: at.to_owned(),
            status: head.status.as_u16(),
            message,
        });
    }
    let is_json = head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .is_some_and(|v| {
            v.split(';')
                .next()
                .is_some_and(|t| t.trim() == "application/json")
        });
    Ok(Answer {
        at: at.to_owned(),
        is_json,
        body,
    })
}

fn request(call: Call<'_>) -> Result<Request<Full<Bytes>>, RemoteError> {
    let mut request = Request::builder()
        .method(call.method)
        .uri(call.path)
        .header(header::HOST, "localhost")
        .header(header::CONNECTION, "close");
    if let Some(content_type) = call.content_type {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    request
        .body(Full::new(call.body))
        .map_err(|e| RemoteError::Invalid(format!("cannot call {}: {e}", call.path)))
}

impl Answer {
    /// The result; an agent says "there is none" by another content type.
    pub(crate) fn json<T: DeserializeOwned>(self) -> Result<T, RemoteError> {
        let at = self.at.clone();
        self.maybe_json()?.ok_or_else(|| RemoteError::BadBody {
            at,
            reason: "JSON expected".to_owned(),
        })
    }

    pub(crate) fn maybe_json<T: DeserializeOwned>(self) -> Result<Option<T>, RemoteError> {
        if !self.is_json {
            return Ok(None);
        }
        serde_json::from_slice(&self.body)
            .map(Some)
            .map_err(|e| RemoteError::BadBody {
                at: self.at,
                reason: e.to_string(),
            })
    }

    pub(crate) fn text(self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The longest start of `text` that fits into `limit` bytes.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or(text)
}

//! Replies: JSON, text, nothing, or an upgrade.

use std::io::{self, Write};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::{Body, HttpError};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A reply of a handler.
///
/// Clients decide by the content type alone whether there is a result, so [`Reply::json`] and [`Reply::empty`] are
/// different things even when the result is small.
#[derive(Debug)]
pub struct Reply(Response<Body>);

impl Reply {
    /// 200 with `value` as JSON and a newline.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(mut bytes) => {
                bytes.push(b'\n');
                Self::with(StatusCode::OK, JSON, bytes)
            }
            Err(err) => Self::from(HttpError::internal(err.to_string())),
        }
    }

    /// 200 with `bytes`, which are JSON and a newline.
    pub fn json_text(bytes: Vec<u8>) -> Self {
        Self::with(StatusCode::OK, JSON, bytes)
    }

    /// 200 with JSON that `write` makes while it is sent; for what is too large to be held as a whole. An error breaks
    /// the connection.
    pub fn json_made_by(
        write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let mut response = Response::new(Body::made_by(write));
        response.headers_mut().insert(CONTENT_TYPE, JSON);
        Self(response)
    }

    /// 200 without a result: text of one newline.
    pub fn empty() -> Self {
        Self::text("\n")
    }

    /// 200 with `text`, sent as it is.
    pub fn text(text: impl Into<String>) -> Self {
        Self::with(StatusCode::OK, TEXT, text.into().into_bytes())
    }

    /// A reply made by hand, for example an upgrade.
    pub fn raw(response: Response<Body>) -> Self {
        Self(response)
    }

    /// The reply as hyper wants it.
    pub fn into_response(self) -> Response<Body> {
        self.0
    }

    /// The same, as the last one on its connection.
    pub(super) fn closing(mut self) -> Self {
        let close = HeaderValue::from_static("close");
        self.0.headers_mut().insert(CONNECTION, close);
        self
    }

    fn with(status: StatusCode, content_type: HeaderValue, bytes: Vec<u8>) -> Self {
        let mut response = Response::new(Body::from(Bytes::from(bytes)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        Self(response)
    }
}

impl From<HttpError> for Reply {
    fn from(error: HttpError) -> Self {
        Self::with(
            error.status,
            TEXT,
            format!("{}\n", error.text()).into_bytes(),
        )
    }
}

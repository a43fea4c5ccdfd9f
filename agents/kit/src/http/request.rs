//! A request as a handler sees it.

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use super::{HttpError, body};

/// A request together with what the router found in its path.
#[derive(Debug)]
pub struct Request {
    pub(crate) inner: http::Request<Incoming>,
    pub(crate) params: Vec<(&'static str, String)>,
}

impl Request {
    /// The part of the path that stands at `{name}` in the route; empty if the route has no such part.
    pub fn param(&self, name: &str) -> &str {
        self.params
            .iter()
            .find(|(known, _)| *known == name)
            .map_or("", |(_, value)| value)
    }

    /// The first value of a query parameter, percent-decoded; `+` is a blank.
    pub fn query(&self, name: &str) -> Option<String> {
        let query = self.inner.uri().query()?;
        query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(key, true) == name).then(|| percent_decode(value, true))
        })
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        self.inner.headers()
    }

    /// Reads the body as JSON by the rules of both APIs: at most 1 MiB, `null` is an empty object, unknown fields are
    /// ignored.
    ///
    /// # Errors
    /// 400, 413 and 415 with the APIs' texts.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, HttpError> {
        body::read_json(self.inner).await
    }

    /// The body for reading piece by piece, without a limit.
    pub fn into_body(self) -> Incoming {
        self.inner.into_body()
    }

    /// The whole body, refused when it is larger than `limit` bytes.
    ///
    /// # Errors
    /// 413 if it is too large, 400 if the connection broke.
    pub async fn bytes(self, limit: usize) -> Result<Bytes, HttpError> {
        body::read_limited(self.inner.into_body(), limit).await
    }

    /// The request as hyper gave it, for upgrades.
    pub fn raw_mut(&mut self) -> &mut http::Request<Incoming> {
        &mut self.inner
    }
}

/// Decodes `%41`; bytes that are not UTF-8 become replacement characters, broken escapes stay.
pub(super) fn percent_decode(text: &str, plus_is_blank: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'+' && plus_is_blank {
            out.push(b' ');
            continue;
        }
        let mut ahead = bytes.clone();
        match (byte, ahead.next().and_then(hex), ahead.next().and_then(hex)) {
            (b'%', Some(high), Some(low)) => {
                out.push(high * 16 + low);
                bytes = ahead;
            }
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

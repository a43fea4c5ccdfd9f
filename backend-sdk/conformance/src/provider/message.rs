//! What comes in and what goes out.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::route::Pattern;

/// A request to a fake provider.
#[derive(Clone, Default)]
pub struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) params: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers and bodies may hold credentials.
        write!(f, "{} {}", self.method, self.path)
    }
}

impl Request {
    /// `GET`, `POST` and so on.
    pub fn method(&self) -> &str {
        &self.method
    }
    /// The path without the query, as it came.
    pub fn path(&self) -> &str {
        &self.path
    }
    /// Whether the request fits a pattern of [`FakeProvider::route`](super::FakeProvider::route).
    pub fn is(&self, pattern: &str) -> bool {
        Pattern::new(pattern)
            .params_of(&self.method, &self.path)
            .is_some()
    }
    /// What stands for `{name}` of the route, decoded; empty if the route has no such name.
    pub fn param(&self, name: &str) -> &str {
        first(&self.params, |known| known == name).unwrap_or_default()
    }
    /// A value of the query, decoded.
    pub fn query(&self, name: &str) -> Option<&str> {
        first(&self.query, |known| known == name)
    }
    /// The first header of this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        first(&self.headers, |known| known.eq_ignore_ascii_case(name))
    }
    /// The host that the backend asked for; the suite sends every request here, whatever its host.
    pub fn asked_host(&self) -> &str {
        self.header(crate::http::ASKED_HOST)
            .or_else(|| self.header("host"))
            .unwrap_or_default()
    }
    /// The token of `Authorization: Bearer …`.
    pub fn bearer(&self) -> Option<&str> {
        self.header("authorization")?.strip_prefix("Bearer ")
    }
    /// User and password of `Authorization: Basic …`.
    pub fn basic(&self) -> Option<(String, String)> {
        let coded = self.header("authorization")?.strip_prefix("Basic ")?;
        let plain = base64::engine::general_purpose::STANDARD
            .decode(coded)
            .ok()?;
        let plain = String::from_utf8(plain).ok()?;
        let (user, password) = plain.split_once(':')?;
        Some((user.to_owned(), password.to_owned()))
    }
    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
    /// The body as JSON; `null` if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
    /// The body as a value of this type.
    ///
    /// # Errors
    /// The reply to send: 400 with the reason.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Reply> {
        serde_json::from_slice(&self.body).map_err(|error| Reply::text(400, &error.to_string()))
    }
    /// A value of a body like `a=1&b=2`, decoded.
    pub fn form(&self, name: &str) -> Option<String> {
        pairs(&String::from_utf8_lossy(&self.body))
            .into_iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    }
}

fn first(pairs: &[(String, String)], fits: impl Fn(&str) -> bool) -> Option<&str> {
    pairs
        .iter()
        .find(|(name, _)| fits(name))
        .map(|(_, value)| value.as_str())
}

/// Names and values of a query.
pub(super) fn pairs(text: &str) -> Vec<(String, String)> {
    let decoded = |part: &str| {
        let spaced = part.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        })
        .collect()
}

/// A reply of a fake provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) after: Duration,
}

impl Reply {
    /// Without a body.
    #[must_use]
    pub fn empty(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }
    /// With a JSON body. What cannot be written as JSON becomes a 500 that says so.
    #[must_use]
    pub fn json<T: Serialize + ?Sized>(status: u16, body: &T) -> Self {
        match serde_json::to_vec(body) {
            Ok(body) => Self {
                status,
                body,
                ..Self::default()
            }
            .header("content-type", "application/json"),
            Err(error) => Self::text(500, &format!("the fake provider's own reply: {error}")),
        }
    }
    /// With a body of plain text.
    #[must_use]
    pub fn text(status: u16, body: &str) -> Self {
        Self::bytes(status, body).header("content-type", "text/plain; charset=utf-8")
    }
    /// With any body.
    #[must_use]
    pub fn bytes(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            body: body.into(),
            ..Self::default()
        }
    }
    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
    /// Sends it only after this time.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.after = wait;
        self
    }
}

//! One request to a REST API.

use std::{fmt, time::Duration};

use dstack_backend_types::{BackendError, ErrorKind};
use serde::{Serialize, de::DeserializeOwned};

use super::{Rest, Unsigned, redact, url};
use crate::{
    host,
    http::{Request, Response},
};

/// Pause before the second attempt; each further one is four times as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// A longer pause is not waited for here: the host gets the error with the time to wait, and has a thread free.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A request being made; nothing is sent before one of `fetch`, `found`, `done`, `gone`, `all`, `send`.
///
/// Every error names method and path. What may be repeated is tried again after a lost connection, a status 5xx or 429, with
/// growing pauses, or the pause that the API asks for.
#[must_use = "a request does nothing until it is sent"]
#[derive(Clone)]
pub struct RestCall<'r> {
    pub(super) rest: &'r Rest,
    method: String,
    pub(super) path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: Result<Vec<u8>, BackendError>,
    is_idempotent: bool,
    timeout: Duration,
}

impl fmt::Debug for RestCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl<'r> RestCall<'r> {
    pub(super) fn new(rest: &'r Rest, method: &str, path: String) -> Self {
        Self {
            rest,
            method: method.to_owned(),
            path,
            query: Vec::new(),
            headers: Vec::new(),
            body: Ok(Vec::new()),
            is_idempotent: matches!(method, "GET" | "HEAD" | "PUT" | "DELETE"),
            timeout: rest.timeout,
        }
    }

    /// Adds a pair to the query, encoded.
    pub fn query(mut self, key: &str, value: impl ToString) -> Self {
        self.query.push((key.to_owned(), value.to_string()));
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Sends this value as JSON.
    pub fn json<T: Serialize + ?Sized>(mut self, value: &T) -> Self {
        self.body = host::to_json(&value);
        self.header("content-type", "application/json")
    }

    /// Sends these pairs as a form.
    pub fn form<K: AsRef<str>, V: AsRef<str>>(mut self, pairs: &[(K, V)]) -> Self {
        self.body = Ok(url::query(pairs).into_bytes());
        self.header("content-type", "application/x-www-form-urlencoded")
    }

    /// Sends these bytes.
    pub fn body(mut self, content_type: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.body = Ok(bytes.into());
        self.header("content-type", content_type)
    }

    /// Whether it may be sent twice: true for `GET`, `HEAD`, `PUT` and `DELETE` unless said.
    pub fn idempotent(mut self, is_idempotent: bool) -> Self {
        self.is_idempotent = is_idempotent;
        self
    }

    /// Sends `key` along, by which the API knows a repeated request; the `provider_ref` is a good one.
    pub fn idempotency_key(self, header: &str, key: &str) -> Self {
        self.header(header, key).idempotent(true)
    }

    /// How long one attempt may take.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Sends it and reads the reply's JSON.
    ///
    /// # Errors
    /// By the [`ErrorMap`](super::ErrorMap); `transport` without a reply; `internal` with the path of the field if the reply
    /// is not of this shape; `cancelled`.
    pub fn fetch<T: DeserializeOwned>(self) -> Result<T, BackendError> {
        let response = self.send()?;
        self.read(response.body())
    }

    /// As [`fetch`](Self::fetch); `None` if there is no such thing.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch), without `not_found`.
    pub fn found<T: DeserializeOwned>(self) -> Result<Option<T>, BackendError> {
        match self.fetch() {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends it; what is in the reply does not matter.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub fn done(self) -> Result<(), BackendError> {
        self.send().map(drop)
    }

    /// As [`done`](Self::done), for deletions: what is not there is a success.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch), without `not_found`.
    pub fn gone(self) -> Result<(), BackendError> {
        match self.done() {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Sends it and returns the successful reply as it is.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub fn send(&self) -> Result<Response, BackendError> {
        let mut attempt = 1;
        loop {
            let error = match self.send_once() {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let Some(pause) = self.pause(attempt, &error) else {
                return Err(error);
            };
            tracing::debug!(request = %self.name(), attempt, %error, "the request is tried again");
            host::sleep(pause)?;
            attempt += 1;
        }
    }

    pub(super) fn without_query(mut self) -> Self {
        self.query.clear();
        self
    }

    /// What the errors of this request begin with: no query, since it may hold a token.
    pub(super) fn name(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }

    pub(super) fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, BackendError> {
        // A reply without a body is null, so that `()` and `Option` can be asked for.
        let body = if body.is_empty() { b"null" } else { body };
        let reader = &mut serde_json::Deserializer::from_slice(body);
        serde_path_to_error::deserialize(reader).map_err(|error| {
            let path = error.path().to_string();
            let place = if path == "." {
                String::new()
            } else {
                format!(" at {path}")
            };
            BackendError::internal(format!(
                "{}: the reply is not understood{place}: {}",
                self.name(),
                redact::without_values(&error.into_inner().to_string())
            ))
        })
    }

    fn send_once(&self) -> Result<Response, BackendError> {
        let mut unsigned = Unsigned {
            method: self.method.clone(),
            url: self.url()?,
            headers: [self.rest.headers.as_slice(), &self.headers].concat(),
            body: self.body.clone()?,
        };
        self.rest.sign.sign(&mut unsigned)?;
        let mut request = Request::new(&unsigned.method, unsigned.url)
            .body(unsigned.body)
            .idempotent(self.is_idempotent)
            .timeout(self.timeout);
        for (name, value) in unsigned.headers {
            request = request.header(&name, value);
        }
        if let Some(customize) = &self.rest.customize {
            request = customize(request);
        }
        // After signing: a token may be new.
        let secrets = self.rest.sign.secrets();
        let answer = request
            .send()
            .and_then(|response| self.rest.errors.check(response, &secrets));
        answer.map_err(|mut error| {
            error.message = format!(
                "{}: {}",
                self.name(),
                redact::clean(&error.message, &secrets)
            );
            error
        })
    }

    fn url(&self) -> Result<String, BackendError> {
        let mut url = url::join(&self.rest.base, &self.path).ok_or_else(|| {
            BackendError::internal(format!(
                "{}: not an address of {}",
                self.name(),
                self.rest.base
            ))
        })?;
        if !self.query.is_empty() {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(&url::query(&self.query));
        }
        Ok(url)
    }

    /// How long to wait before the next attempt; `None` if there is none.
    fn pause(&self, attempt: u32, error: &BackendError) -> Option<Duration> {
        let may_repeat = match error.kind {
            // Refused unseen, so nothing has happened.
            ErrorKind::RateLimited => true,
            ErrorKind::Transport | ErrorKind::Timeout => self.is_idempotent,
            _ => false,
        };
        if !may_repeat || attempt >= self.rest.attempts {
            return None;
        }
        let pause = match error.retry_after_ms {
            Some(ms) => Duration::from_millis(ms),
            None => FIRST_PAUSE.saturating_mul(4_u32.saturating_pow(attempt - 1)),
        };
        if pause > LONGEST_PAUSE {
            return None;
        }
        // Up to a quarter longer, so that many callers do not come back at once.
        let chance = host::random(1).map_or(0, |bytes| bytes.first().copied().unwrap_or_default());
        Some(pause + pause.mul_f64(f64::from(chance) / 1024.0))
    }
}

//! From what an API answers to the kind of error that the host acts on.

use dstack_backend_types::{BackendError, ErrorKind};
use jiff::{Timestamp, fmt::rfc2822};
use serde_json::Value;

use super::redact::clean;
use crate::{host, http::Response};

/// Where the usual APIs put a code and a text.
const CODES: &[&str] = &["/error/code", "/code", "/error/type", "/error"];
const MESSAGES: &[&str] = &[
    "/error/message",
    "/message",
    "/error_description",
    "/detail",
    "/error",
];

/// Which answers are which kind of error. The first rule that fits wins; then the usual meaning of the status holds:
///
/// | status | kind |
/// |---|---|
/// | 400, 422 | `invalid` |
/// | 401, 403 | `auth` |
/// | 402 | `quota` |
/// | 404, 410 | `not_found` |
/// | 429 | `rate_limited` |
/// | 408, 500 to 599 | `transport` |
/// | others | `internal` |
#[derive(Debug, Clone, Default)]
pub struct ErrorMap {
    rules: Vec<(Rule, ErrorKind)>,
    codes_at: Vec<String>,
    messages_at: Vec<String>,
    failure_at: Option<String>,
    auth_fields: Vec<String>,
    read: Option<fn(&[u8]) -> Value>,
}

#[derive(Debug, Clone)]
enum Rule {
    Judge(fn(u16, &str) -> Option<ErrorKind>),
    Status(u16),
    Code(String),
    StatusAndCode(u16, String),
    Text(String),
}

impl ErrorMap {
    /// The usual meanings only.
    pub fn new() -> Self {
        Self::default()
    }

    /// A status means this kind.
    #[must_use]
    pub fn status(self, status: u16, kind: ErrorKind) -> Self {
        self.rule(Rule::Status(status), kind)
    }

    /// A code in the body means this kind, whatever the status.
    #[must_use]
    pub fn code(self, code: impl Into<String>, kind: ErrorKind) -> Self {
        self.rule(Rule::Code(code.into()), kind)
    }

    /// A status together with a code in the body means this kind.
    #[must_use]
    pub fn status_and_code(self, status: u16, code: impl Into<String>, kind: ErrorKind) -> Self {
        self.rule(Rule::StatusAndCode(status, code.into()), kind)
    }

    /// Words in the body, in any case, mean this kind. For APIs without codes.
    #[must_use]
    pub fn text(self, words: &str, kind: ErrorKind) -> Self {
        self.rule(Rule::Text(words.to_lowercase()), kind)
    }

    /// A function says which kind a status with a code is; `None` leaves it to the other rules. For APIs whose codes follow a
    /// pattern, e.g. all that end in `NotFound`.
    #[must_use]
    pub fn judged(self, judge: fn(status: u16, code: &str) -> Option<ErrorKind>) -> Self {
        let mut this = self;
        this.rules.push((Rule::Judge(judge), ErrorKind::Internal));
        this
    }

    /// How the body of an error is read that is no JSON, e.g. XML: into a value with `code` and `message`.
    #[must_use]
    pub fn read_by(mut self, read: fn(body: &[u8]) -> Value) -> Self {
        self.read = Some(read);
        self
    }

    /// JSON pointer of the code in a body, tried before the usual places.
    #[must_use]
    pub fn code_at(mut self, pointer: &str) -> Self {
        self.codes_at.push(pointer.to_owned());
        self
    }

    /// JSON pointer of the text for people in a body, tried before the usual places.
    #[must_use]
    pub fn message_at(mut self, pointer: &str) -> Self {
        self.messages_at.push(pointer.to_owned());
        self
    }

    /// JSON pointer of something that stands in a body with status 2xx only if it is an error all the same, e.g.
    /// `/errors/0` of GraphQL.
    #[must_use]
    pub fn failure_at(mut self, pointer: &str) -> Self {
        self.failure_at = Some(pointer.to_owned());
        self
    }

    /// Paths of the configuration's credentials, named by errors of kind `auth`; `creds` unless said.
    #[must_use]
    pub fn auth_fields<I: IntoIterator<Item = S>, S: Into<String>>(mut self, fields: I) -> Self {
        self.auth_fields = fields.into_iter().map(Into::into).collect();
        self
    }

    fn rule(mut self, rule: Rule, kind: ErrorKind) -> Self {
        self.rules.push((rule, kind));
        self
    }

    /// The reply itself, if it is a success.
    pub(super) fn check(
        &self,
        response: Response,
        secrets: &[String],
    ) -> Result<Response, BackendError> {
        let is_success = (200..300).contains(&response.status());
        if is_success && self.failure_at.is_none() {
            return Ok(response);
        }
        let body: Value = match (serde_json::from_slice(response.body()), self.read) {
            (Ok(body), _) => body,
            (Err(_), Some(read)) => read(response.body()),
            (Err(_), None) => Value::Null,
        };
        let failed = |at: &String| body.pointer(at).is_some_and(|found| !found.is_null());
        if is_success && !self.failure_at.as_ref().is_some_and(failed) {
            return Ok(response);
        }
        Err(self.error(&response, &body, secrets))
    }

    fn error(&self, response: &Response, body: &Value, secrets: &[String]) -> BackendError {
        let status = response.status();
        let code = first(body, &self.codes_at, CODES);
        let text = response.text();
        let kind = self.kind(status, code.as_deref(), &text);
        let message = first(body, &self.messages_at, MESSAGES).unwrap_or(text);
        let message = clean(&message, secrets);
        let mut error = match kind {
            ErrorKind::Auth if self.auth_fields.is_empty() => BackendError::auth("", ["creds"]),
            ErrorKind::Auth => BackendError::auth("", &self.auth_fields),
            other => BackendError::new(other, ""),
        };
        error.message = match (&code, message.is_empty()) {
            (Some(code), false) if *code != message => {
                format!("status {status} ({}): {message}", clean(code, secrets))
            }
            (_, false) => format!("status {status}: {message}"),
            (_, true) => format!("status {status}"),
        };
        error.details.insert("status".to_owned(), status.into());
        if let Some(code) = code {
            error
                .details
                .insert("code".to_owned(), clean(&code, secrets).into());
        }
        error.retry_after_ms = response
            .header("retry-after")
            .and_then(|text| retry_after_ms(text, host::now));
        error
    }

    fn kind(&self, status: u16, code: Option<&str>, text: &str) -> ErrorKind {
        let text = text.to_lowercase();
        let judge = |(rule, kind): &(Rule, ErrorKind)| {
            let fits = match rule {
                Rule::Judge(judge) => return judge(status, code.unwrap_or_default()),
                Rule::Status(asked) => *asked == status,
                Rule::Code(asked) => code == Some(asked),
                Rule::StatusAndCode(asked, asked_code) => {
                    *asked == status && code == Some(asked_code.as_str())
                }
                Rule::Text(words) => text.contains(words.as_str()),
            };
            fits.then_some(*kind)
        };
        if let Some(kind) = self.rules.iter().find_map(judge) {
            return kind;
        }
        match status {
            400 | 422 => ErrorKind::Invalid,
            401 | 403 => ErrorKind::Auth,
            402 => ErrorKind::Quota,
            404 | 410 => ErrorKind::NotFound,
            429 => ErrorKind::RateLimited,
            408 | 500..=599 => ErrorKind::Transport,
            _ => ErrorKind::Internal,
        }
    }
}

/// The first text or number at one of the places.
fn first(body: &Value, own: &[String], usual: &[&str]) -> Option<String> {
    let places = own.iter().map(String::as_str).chain(usual.iter().copied());
    places
        .filter_map(|place| body.pointer(place))
        .find_map(|found| match found {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        })
}

/// `Retry-After` in milliseconds: seconds, or a date.
fn retry_after_ms(text: &str, now: impl FnOnce() -> Timestamp) -> Option<u64> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(seconds.saturating_mul(1000));
    }
    let until = rfc2822::parse(text).ok()?.timestamp();
    let ms = until
        .as_millisecond()
        .saturating_sub(now().as_millisecond());
    Some(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{ErrorMap, retry_after_ms};
    use dstack_backend_types::ErrorKind;
    use jiff::Timestamp;

    #[test]
    fn a_function_judges_codes_before_the_usual_meaning_of_the_status() {
        let missing = |_: u16, code: &str| code.ends_with("Gone").then_some(ErrorKind::NotFound);
        let map = ErrorMap::new().judged(missing);
        assert_eq!(map.kind(400, Some("Disk.Gone"), ""), ErrorKind::NotFound);
        assert_eq!(map.kind(400, Some("Disk.Full"), ""), ErrorKind::Invalid);
        assert_eq!(map.kind(401, None, ""), ErrorKind::Auth);
    }

    #[test]
    fn the_time_to_wait_is_read_in_both_forms() {
        let now = || -> Timestamp { "1994-11-06T08:49:30Z".parse().unwrap() };
        assert_eq!(retry_after_ms(" 3 ", now), Some(3000));
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(retry_after_ms(date, now), Some(7000));
        let past = "Sun, 06 Nov 1994 08:00:00 GMT";
        assert_eq!(retry_after_ms(past, now), Some(0));
        assert_eq!(retry_after_ms("soon", now), None);
    }
}

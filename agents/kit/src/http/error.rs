//! Errors as both APIs tell them: a status and one line of text.

use http::StatusCode;

/// A refusal: the status is the error code, the text is shown to users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {message}")]
pub struct HttpError {
    /// Status of the reply.
    pub status: StatusCode,
    /// Text of the reply; if empty, the status's own words are sent.
    pub message: String,
}

impl HttpError {
    /// A refusal with `status` and `message`.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    /// 400: the request is wrong.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 404 with its usual text.
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "")
    }

    /// 409: not now.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// 500: our fault.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// The text that is sent, without the newline.
    pub fn text(&self) -> &str {
        if self.message.is_empty() {
            self.status.canonical_reason().unwrap_or_default()
        } else {
            &self.message
        }
    }
}

//! How files and answers of providers are fetched: whoever uses the library brings its HTTP client.

use std::fmt;

/// One request.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// Absolute.
    pub url: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// None is no body.
    pub body: Option<Vec<u8>>,
}

impl Request {
    /// Asks for what is at an address.
    pub fn get(url: impl Into<String>) -> Self {
        Self {
            method: "GET",
            url: url.into(),
            headers: Vec::new(),
            body: None,
        }
    }

    /// Sends JSON.
    pub fn post_json(url: impl Into<String>, body: &serde_json::Value) -> Self {
        let mut request = Self::get(url).header("Content-Type", "application/json");
        request.method = "POST";
        request.body = Some(body.to_string().into_bytes());
        request
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

impl fmt::Debug for Request {
    // Headers carry credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.url)
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// All of it.
    pub body: Vec<u8>,
}

/// The server did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WebError(pub String);

/// An HTTP client that waits.
pub trait Web: Send + Sync {
    /// Sends a request and waits for the whole answer, of whatever status. Redirects are followed.
    ///
    /// # Errors
    /// If there is no answer.
    fn send(&self, request: &Request) -> Result<Reply, WebError>;
}

/// No network at all.
#[derive(Debug, Clone, Copy)]
pub struct NoWeb;

impl Web for NoWeb {
    fn send(&self, request: &Request) -> Result<Reply, WebError> {
        Err(WebError(format!("no network is used here: {request:?}")))
    }
}

//! Ways to log in.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use dstack_backend_types::{BackendError, Secret};
use jiff::Timestamp;

use crate::host;

/// A token is renewed this long before it ends, so that it does not end on its way.
const EARLY: Duration = Duration::from_secs(60);

/// A request before it is signed. Signing adds headers, or changes the address.
#[derive(Clone)]
pub struct Unsigned {
    /// `GET`, `POST` and so on.
    pub method: String,
    /// The whole address, with the query.
    pub url: String,
    /// Headers so far.
    pub headers: Vec<(String, String)>,
    /// The body, byte by byte what will be sent.
    pub body: Vec<u8>,
}

impl fmt::Debug for Unsigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.split('?').next().unwrap_or_default();
        write!(f, "{} {url}", self.method)
    }
}

impl Unsigned {
    /// Adds a header.
    pub fn header(&mut self, name: &str, value: impl Into<String>) {
        self.headers.push((name.to_owned(), value.into()));
    }
}

/// Makes a request one of ours: a signature, a token. Pure code, or asks the provider through the host.
///
/// ```
/// use dstack_backend_sdk::rest::{Rest, Sign, Unsigned};
/// use dstack_backend_sdk::{BackendError, Secret};
///
/// struct TwoKeys { id: String, key: Secret<String> }
///
/// impl Sign for TwoKeys {
///     fn sign(&self, request: &mut Unsigned) -> Result<(), BackendError> {
///         request.header("x-key-id", &self.id);
///         request.header("x-key", self.key.expose());
///         Ok(())
///     }
///     fn secrets(&self) -> Vec<String> {
///         vec![self.key.expose().clone()]
///     }
/// }
/// let _api = Rest::new("https://api.acme.example").signed(TwoKeys { id: "a".into(), key: Secret::new("b".into()) });
/// ```
pub trait Sign: Send + Sync + 'static {
    /// Signs a request; called for every attempt, since signatures carry the time.
    ///
    /// # Errors
    /// Whatever prevents it; an `auth` error names the fields at fault.
    fn sign(&self, request: &mut Unsigned) -> Result<(), BackendError>;

    /// Words that must stand in no message.
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }
}

/// No login.
pub(super) struct Nobody;

impl Sign for Nobody {
    fn sign(&self, _request: &mut Unsigned) -> Result<(), BackendError> {
        Ok(())
    }
}

/// The same header in every request.
pub(super) struct Fixed {
    name: String,
    value: Secret<String>,
    secrets: Vec<Secret<String>>,
}

impl Fixed {
    pub(super) fn bearer(token: &Secret<String>) -> Self {
        let value = format!("Bearer {}", token.expose());
        Self::new("authorization", value, vec![token.clone()])
    }

    pub(super) fn basic(user: &str, password: &Secret<String>) -> Self {
        let pair = STANDARD.encode(format!("{user}:{}", password.expose()));
        let value = format!("Basic {pair}");
        Self::new(
            "authorization",
            value,
            vec![password.clone(), Secret::new(pair)],
        )
    }

    pub(super) fn header(name: &str, key: &Secret<String>) -> Self {
        Self::new(name, key.expose().clone(), vec![key.clone()])
    }

    fn new(name: &str, value: String, secrets: Vec<Secret<String>>) -> Self {
        Self {
            name: name.to_owned(),
            value: Secret::new(value),
            secrets,
        }
    }
}

impl Sign for Fixed {
    fn sign(&self, request: &mut Unsigned) -> Result<(), BackendError> {
        request.header(&self.name, self.value.expose());
        Ok(())
    }

    fn secrets(&self) -> Vec<String> {
        let exposed = self.secrets.iter().map(|secret| secret.expose().clone());
        exposed.collect()
    }
}

/// A bearer token that ends: fetched when it is needed, kept until a minute before its end.
///
/// ```
/// use std::time::Duration;
/// use dstack_backend_sdk::rest::{Refreshing, Rest};
/// use dstack_backend_sdk::Secret;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Token { access_token: Secret<String>, expires_in: u64 }
///
/// let login = Rest::new("https://login.acme.example");
/// let api = Rest::new("https://api.acme.example").signed(Refreshing::new(move || {
///     let token: Token = login.post("/token").form(&[("grant_type", "client_credentials")]).fetch()?;
///     Ok((token.access_token, Duration::from_secs(token.expires_in)))
/// }));
/// # drop(api);
/// ```
pub struct Refreshing<F> {
    fetch: F,
    kept: Mutex<Option<(Secret<String>, Timestamp)>>,
}

impl<F> fmt::Debug for Refreshing<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refreshing(***)")
    }
}

impl<F> Refreshing<F>
where
    F: Fn() -> Result<(Secret<String>, Duration), BackendError> + Send + Sync + 'static,
{
    /// `fetch` returns a token and how long it is good.
    pub fn new(fetch: F) -> Self {
        Self {
            fetch,
            kept: Mutex::new(None),
        }
    }

    fn token(&self) -> Result<Secret<String>, BackendError> {
        let now = host::now();
        if let Some((token, until)) = self.kept().as_ref()
            && now < *until
        {
            return Ok(token.clone());
        }
        // Fetched without the lock: two calls at once may both ask, none waits for the other's network.
        let (token, lasts) = (self.fetch)()?;
        let until = now.saturating_add(lasts.saturating_sub(EARLY)).ok();
        *self.kept() = until.map(|until| (token.clone(), until));
        Ok(token)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Option<(Secret<String>, Timestamp)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> Sign for Refreshing<F>
where
    F: Fn() -> Result<(Secret<String>, Duration), BackendError> + Send + Sync + 'static,
{
    fn sign(&self, request: &mut Unsigned) -> Result<(), BackendError> {
        let token = self.token()?;
        request.header("authorization", format!("Bearer {}", token.expose()));
        Ok(())
    }

    fn secrets(&self) -> Vec<String> {
        let kept = self.kept();
        kept.iter()
            .map(|(token, _)| token.expose().clone())
            .collect()
    }
}

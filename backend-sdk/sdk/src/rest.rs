//! A REST API in few lines: base address, login, JSON, paging, errors, retries, waiting.
//!
//! | part | what it spares |
//! |---|---|
//! | [`Rest`] | address, headers and login of every request; secrets are cut out of every message |
//! | [`RestCall`] | JSON both ways, the path of a field that is not understood, retries of what may be repeated |
//! | [`ErrorMap`] | from a status or a code in the body to the kind that the host acts on |
//! | [`Paging`] | all items of a list that comes in pages |
//! | [`Sign`] | own ways to log in; [`SigV4`], [`Refreshing`] and, as feature `rs256`, `Rs256Key` are ready |
//! | [`wait_until`] | looking again and again, with the host's clock, until a deadline |
//!
//! ```
//! use dstack_backend_sdk::rest::{ErrorMap, Paging, Rest};
//! use dstack_backend_sdk::{BackendError, ErrorKind, Secret};
//! use serde::Deserialize;
//!
//! #[derive(Deserialize)]
//! struct Server { id: String }
//!
//! fn api(token: &Secret<String>) -> Rest {
//!     Rest::new("https://api.acme.example/v1").bearer(token).errors(
//!         ErrorMap::new()
//!             .code("sold_out", ErrorKind::NoCapacity)
//!             .code("limit_exceeded", ErrorKind::Quota)
//!             .auth_fields(["creds.api_key"]),
//!     )
//! }
//!
//! fn servers(api: &Rest) -> Result<Vec<Server>, BackendError> {
//!     api.get("/servers").query("region", "north").all("/servers", &Paging::cursor("after", "/next"))
//! }
//!
//! fn server(api: &Rest, id: &str) -> Result<Option<Server>, BackendError> {
//!     api.get(format!("/servers/{id}")).found()
//! }
//!
//! fn delete(api: &Rest, id: &str) -> Result<(), BackendError> {
//!     api.delete(format!("/servers/{id}")).gone() // what is not there is deleted
//! }
//! ```

mod auth;
mod call;
mod errors;
mod paging;
mod redact;
#[cfg(feature = "rs256")]
mod rs256;
mod sigv4;
#[cfg(test)]
mod tests;
mod url;
mod wait;

use std::{fmt, sync::Arc, time::Duration};

use dstack_backend_types::Secret;

use crate::http::Request;

pub use auth::{Refreshing, Sign, Unsigned};
pub use call::RestCall;
pub use errors::ErrorMap;
pub use paging::Paging;
#[cfg(feature = "rs256")]
pub use rs256::Rs256Key;
pub use sigv4::SigV4;
pub use url::encode;
pub use wait::wait_until;

pub(crate) use redact::without_values;

/// How often a request is tried at most, unless said.
const ATTEMPTS: u32 = 3;
/// How long one attempt may take, unless said.
const TIMEOUT: Duration = Duration::from_secs(30);

type Customize = dyn Fn(Request) -> Request + Send + Sync;

/// The client of one REST API. Cheap to clone, made once for each configuration; makes no connection by itself.
#[derive(Clone)]
pub struct Rest {
    base: String,
    headers: Vec<(String, String)>,
    sign: Arc<dyn Sign>,
    errors: Arc<ErrorMap>,
    customize: Option<Arc<Customize>>,
    attempts: u32,
    timeout: Duration,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rest({})", self.base)
    }
}

impl Rest {
    /// A client without login. Paths of calls are put behind `base`, whose last `/` does not matter.
    pub fn new(base: impl Into<String>) -> Self {
        let base: String = base.into();
        Self {
            base: base.trim_end_matches('/').to_owned(),
            headers: Vec::new(),
            sign: Arc::new(auth::Nobody),
            errors: Arc::new(ErrorMap::new()),
            customize: None,
            attempts: ATTEMPTS,
            timeout: TIMEOUT,
        }
    }

    /// Logs in by `Authorization: Bearer`.
    #[must_use]
    pub fn bearer(self, token: &Secret<String>) -> Self {
        self.signed(auth::Fixed::bearer(token))
    }

    /// Logs in by `Authorization: Basic`.
    #[must_use]
    pub fn basic(self, user: &str, password: &Secret<String>) -> Self {
        self.signed(auth::Fixed::basic(user, password))
    }

    /// Logs in by a key in a header of its own, e.g. `x-api-key`.
    #[must_use]
    pub fn key_header(self, name: &str, key: &Secret<String>) -> Self {
        self.signed(auth::Fixed::header(name, key))
    }

    /// Logs in by something that is made for each request: a signature, a token that expires.
    #[must_use]
    pub fn signed(mut self, sign: impl Sign) -> Self {
        self.sign = Arc::new(sign);
        self
    }

    /// Adds a header to every request.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Says which kind of error the API's answers are.
    #[must_use]
    pub fn errors(mut self, errors: ErrorMap) -> Self {
        self.errors = Arc::new(errors);
        self
    }

    /// Sets options of every request that this client does not know, e.g. a certificate authority.
    #[must_use]
    pub fn customize(
        mut self,
        change: impl Fn(Request) -> Request + Send + Sync + 'static,
    ) -> Self {
        self.customize = Some(Arc::new(change));
        self
    }

    /// How often a request is tried at most, at least once; 3 unless said.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// How long one attempt may take; 30 seconds unless said. The call's deadline bounds all attempts.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// A request with this method. `path` begins with `/`; words from outside go through [`encode`]. A whole address is
    /// taken too, if it is one of this API, e.g. of a next page.
    pub fn call(&self, method: &str, path: impl Into<String>) -> RestCall<'_> {
        RestCall::new(self, method, path.into())
    }

    /// `GET`: tried again if need be.
    pub fn get(&self, path: impl Into<String>) -> RestCall<'_> {
        self.call("GET", path)
    }

    /// `POST`: tried again only if the API was too busy to look at it, unless [`RestCall::idempotent`].
    pub fn post(&self, path: impl Into<String>) -> RestCall<'_> {
        self.call("POST", path)
    }

    /// `PUT`: tried again if need be.
    pub fn put(&self, path: impl Into<String>) -> RestCall<'_> {
        self.call("PUT", path)
    }

    /// `PATCH`: tried again only if the API was too busy to look at it, unless [`RestCall::idempotent`].
    pub fn patch(&self, path: impl Into<String>) -> RestCall<'_> {
        self.call("PATCH", path)
    }

    /// `DELETE`: tried again if need be.
    pub fn delete(&self, path: impl Into<String>) -> RestCall<'_> {
        self.call("DELETE", path)
    }
}

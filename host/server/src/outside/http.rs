//! One HTTP client for all providers: a pool of connections, limits, and another try where that helps.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{Request, StatusCode};
use bytes::{Bytes, BytesMut};
use reqwest::{Client, redirect};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::OutsideError;

/// One try, with the whole answer.
const PATIENCE: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(5);
/// Pauses before the second and the third try.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(800)];
/// Bytes of an answer; pages of logs and small objects are far below.
const MOST: usize = 64 << 20;
/// Bytes of a provider's text in an error.
const MESSAGE: usize = 300;
const IDLE: Duration = Duration::from_secs(30);
const IDLE_PER_HOST: usize = 4;

/// The client; clones share its connections.
#[derive(Debug, Clone)]
pub(crate) struct Http(Client);

/// An answer of any status.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) at: String,
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Http {
    /// With the system's authorities.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub(crate) async fn new() -> Result<Self, OutsideError> {
        let broken = |why: String| OutsideError::NoAccess(format!("no HTTP client: {why}"));
        let roots = tokio::task::spawn_blocking(roots)
            .await
            .map_err(|error| broken(error.to_string()))?;
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| broken(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(redirect::Policy::none())
            .user_agent(concat!("dstack/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .build()
            .map_err(|error| broken(error.to_string()))?;
        Ok(Self(client))
    }

    /// Sends a request; tries again where nothing was answered, too much was asked, or the provider has a fault.
    ///
    /// # Errors
    /// [`OutsideError::Unreachable`]: no answer, or none but of that kind.
    pub(crate) async fn send(&self, request: &Request<Bytes>) -> Result<Reply, OutsideError> {
        let mut pauses = PAUSES.iter();
        loop {
            let tried = self.once(request, PATIENCE).await;
            let again = match &tried {
                Ok(reply) => {
                    reply.status.is_server_error() || reply.status == StatusCode::TOO_MANY_REQUESTS
                }
                Err(_) => true,
            };
            match pauses.next() {
                Some(pause) if again => tokio::time::sleep(*pause).await,
                _ => return tried,
            }
        }
    }

    /// Sends a request once.
    ///
    /// # Errors
    /// [`OutsideError::Unreachable`]: no answer.
    pub(crate) async fn once(
        &self,
        request: &Request<Bytes>,
        patience: Duration,
    ) -> Result<Reply, OutsideError> {
        let at = host(request);
        let silent = |why: String| OutsideError::Unreachable {
            at: at.clone(),
            why,
        };
        let ready =
            reqwest::Request::try_from(request.clone()).map_err(|error| silent(told(error)))?;
        let exchange = async {
            let mut answer = self.0.execute(ready).await?;
            let (status, mut body) = (answer.status(), BytesMut::new());
            while let Some(piece) = answer.chunk().await? {
                if body.len() + piece.len() > MOST {
                    return Ok(None);
                }
                body.extend_from_slice(&piece);
            }
            Ok::<_, reqwest::Error>(Some((status, body.freeze())))
        };
        match tokio::time::timeout(patience, exchange).await {
            Ok(Ok(Some((status, body)))) => Ok(Reply { at, status, body }),
            Ok(Ok(None)) => Err(OutsideError::Odd {
                at,
                why: format!("more than {MOST} bytes"),
            }),
            Ok(Err(error)) => Err(silent(told(error))),
            Err(_) => Err(silent(format!("no answer within {} s", patience.as_secs()))),
        }
    }
}

impl Reply {
    /// The answer as an error. 429 and 5xx say that there is nobody to ask just now.
    pub(crate) fn refused(&self, code: &str, message: &str) -> OutsideError {
        let message: String = message.chars().take(MESSAGE).collect();
        if self.status.is_server_error() || self.status == StatusCode::TOO_MANY_REQUESTS {
            return OutsideError::Unreachable {
                at: self.at.clone(),
                why: format!("it answers {} {code} {message}", self.status.as_u16()),
            };
        }
        OutsideError::Refused {
            at: self.at.clone(),
            status: self.status.as_u16(),
            code: code.to_owned(),
            message,
        }
    }

    /// Reads the answer as JSON.
    ///
    /// # Errors
    /// [`OutsideError::Odd`].
    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, OutsideError> {
        serde_json::from_slice(&self.body).map_err(|error| OutsideError::Odd {
            at: self.at.clone(),
            why: error.to_string(),
        })
    }

    /// The text, cut for an error.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body)
            .chars()
            .take(MESSAGE)
            .collect()
    }
}

fn host(request: &Request<Bytes>) -> String {
    let authority = request.uri().authority();
    authority.map_or_else(String::new, ToString::to_string)
}

/// The reason at the bottom, without the address: a query may hold secrets.
fn told(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    text
}

fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "certificate authorities of this system");
    }
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        tracing::warn!("this system has no certificate authorities; install ca-certificates");
    }
    roots
}

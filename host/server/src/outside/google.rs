//! Google Cloud: tokens of the server's own account.
//!
//! In the order of every Google program: the key file that a variable names, the login that `gcloud` left, the metadata of the
//! machine. Source: "How Application Default Credentials works" and "Using OAuth 2.0 for server to server applications".

mod jwt;

use std::path::Path;
use std::time::Duration;

use axum::http::Request;
use bytes::Bytes;
use dstack_backend_types::Secret;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::OutsideError;
use super::http::{Http, Reply};
use crate::settings::GoogleAccess;
use jwt::ServiceAccount;

/// Tokens are fetched anew when they hold for less than this.
const MARGIN: SignedDuration = SignedDuration::from_secs(120);
/// Machines of other clouds do not answer at all.
const METADATA: Duration = Duration::from_secs(2);
const TOKENS: &str = "https://oauth2.googleapis.com/token";

/// Fetches tokens and keeps them for as long as they hold.
#[derive(Debug)]
pub(crate) struct Google {
    http: Http,
    access: GoogleAccess,
    known: Mutex<Option<(Secret<String>, Timestamp)>>,
}

/// What a key file holds.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Login {
    ServiceAccount(ServiceAccount),
    AuthorizedUser(User),
    #[serde(other)]
    Other,
}

/// A person's login.
#[derive(Deserialize)]
struct User {
    client_id: String,
    client_secret: Secret<String>,
    refresh_token: Secret<String>,
    token_uri: Option<String>,
}

#[derive(Deserialize)]
struct Token {
    access_token: Secret<String>,
    expires_in: i64,
}

/// The shape of errors of Google's APIs.
#[derive(Default, Deserialize)]
struct Refusal {
    error: Option<RefusalInside>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RefusalInside {
    Api {
        #[serde(default)]
        status: String,
        #[serde(default)]
        message: String,
    },
    Login(String),
}

impl Google {
    pub(crate) fn new(http: Http, access: GoogleAccess) -> Self {
        Self {
            http,
            access,
            known: Mutex::default(),
        }
    }

    /// Sends a request with a token; a token that is refused is fetched anew, once.
    ///
    /// # Errors
    /// No login, no answer, or a refusal.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Reply, OutsideError> {
        let mut reply = self.with_token(request.clone()).await?;
        if reply.status.as_u16() == 401 {
            *self.known.lock().await = None;
            reply = self.with_token(request).await?;
        }
        succeeded(reply)
    }

    async fn with_token(&self, mut request: Request<Bytes>) -> Result<Reply, OutsideError> {
        let token = self.token().await?;
        let value = super::aws::header(&format!("Bearer {}", token.expose()))?;
        request.headers_mut().insert("authorization", value);
        self.http.send(&request).await
    }

    async fn token(&self) -> Result<Secret<String>, OutsideError> {
        // Held while fetching, so that many do not ask at once.
        let mut known = self.known.lock().await;
        let now = Timestamp::now();
        if let Some((token, until)) = known.as_ref()
            && *until > now.saturating_add(MARGIN).unwrap_or(Timestamp::MAX)
        {
            return Ok(token.clone());
        }
        let token = self.fetch(now).await?;
        let life = SignedDuration::from_secs(token.expires_in);
        let until = now.saturating_add(life).unwrap_or(now);
        *known = Some((token.access_token.clone(), until));
        Ok(token.access_token)
    }

    async fn fetch(&self, now: Timestamp) -> Result<Token, OutsideError> {
        let file = match &self.access.key_file {
            Some(file) => Some(file.as_path()),
            None => Some(self.access.login_file.as_path()).filter(|file| file.exists()),
        };
        let Some(file) = file else {
            return self.of_machine().await;
        };
        let (url, form) = match login(file)? {
            Login::ServiceAccount(account) => {
                let url = account.token_uri.clone();
                let assertion = account.assertion(url.as_deref().unwrap_or(TOKENS), now)?;
                let kind = "urn:ietf:params:oauth:grant-type:jwt-bearer";
                (
                    url,
                    vec![
                        ("grant_type", kind.to_owned()),
                        ("assertion", assertion.into_inner()),
                    ],
                )
            }
            Login::AuthorizedUser(user) => (
                user.token_uri,
                vec![
                    ("grant_type", "refresh_token".to_owned()),
                    ("client_id", user.client_id),
                    ("client_secret", user.client_secret.into_inner()),
                    ("refresh_token", user.refresh_token.into_inner()),
                ],
            ),
            Login::Other => {
                return Err(OutsideError::NoAccess(format!(
                    "{} is neither the key of a service account nor a login of gcloud",
                    file.display()
                )));
            }
        };
        let form: Vec<String> = form
            .iter()
            .map(|(name, value)| format!("{name}={}", super::aws::encoded(value)))
            .collect();
        let request = Request::post(url.as_deref().unwrap_or(TOKENS))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Bytes::from(form.join("&")))
            .map_err(|error| OutsideError::NoAccess(error.to_string()))?;
        succeeded(self.http.send(&request).await?)?.json()
    }

    async fn of_machine(&self) -> Result<Token, OutsideError> {
        let none = || {
            OutsideError::NoAccess(
                "no Google credentials: GOOGLE_APPLICATION_CREDENTIALS names no file, gcloud has left no login, \
                 and this machine has no service account"
                    .to_owned(),
            )
        };
        let url = format!(
            "http://{}/computeMetadata/v1/instance/service-accounts/default/token",
            self.access.metadata_host
        );
        let request = Request::get(url)
            .header("metadata-flavor", "Google")
            .body(Bytes::new())
            .map_err(|error| OutsideError::NoAccess(error.to_string()))?;
        let Ok(reply) = self.http.once(&request, METADATA).await else {
            return Err(none());
        };
        if !reply.status.is_success() {
            return Err(none());
        }
        reply.json()
    }
}

fn login(file: &Path) -> Result<Login, OutsideError> {
    let bad = |why: String| OutsideError::NoAccess(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| bad(error.to_string()))?;
    // The error could quote what is in the file.
    serde_json::from_str(&text).map_err(|_| bad("no key file of Google".to_owned()))
}

/// The answer, or what it says went wrong.
///
/// # Errors
/// Every status that is no success.
pub(crate) fn succeeded(reply: Reply) -> Result<Reply, OutsideError> {
    if reply.status.is_success() {
        return Ok(reply);
    }
    let refusal: Refusal = serde_json::from_slice(&reply.body).unwrap_or_default();
    Err(match refusal.error {
        Some(RefusalInside::Api { status, message }) => reply.refused(&status, &message),
        Some(RefusalInside::Login(code)) => reply.refused(&code, "the login is refused"),
        None => reply.refused("", &reply.text()),
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use axum::http::{HeaderMap, Request};
    use axum::routing::{get, post};
    use axum::{Json, Router};
    use bytes::Bytes;
    use serde_json::json;

    use super::{Google, Http};
    use crate::settings::GoogleAccess;

    async fn served() -> String {
        let token = |word: &'static str| Json(json!({"access_token": word, "expires_in": 3600}));
        let router = Router::new()
            .route(
                "/token",
                post(move |body: String| async move {
                    assert!(body.contains("refresh_token=re%2Ffresh"), "{body}");
                    token("of-a-person")
                }),
            )
            .route(
                "/computeMetadata/v1/instance/service-accounts/default/token",
                get(move |headers: HeaderMap| async move {
                    assert_eq!(headers["metadata-flavor"], "Google");
                    token("of-the-machine")
                }),
            )
            .route(
                "/who",
                get(|headers: HeaderMap| async move {
                    headers["authorization"].to_str().unwrap().to_owned()
                }),
            );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, router).await });
        host
    }

    async fn who(host: &str, login_file: &Path) -> String {
        let access = GoogleAccess {
            key_file: None,
            login_file: PathBuf::from(login_file),
            metadata_host: host.to_owned(),
            storage_emulator: None,
        };
        let google = Google::new(Http::new().await.unwrap(), access);
        let request = Request::get(format!("http://{host}/who")).body(Bytes::new());
        let reply = google.send(request.unwrap()).await.unwrap();
        reply.text()
    }

    #[tokio::test]
    async fn a_login_of_gcloud_comes_before_the_machine() {
        let host = served().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("login.json");
        assert_eq!(who(&host, &file).await, "Bearer of-the-machine");
        let login = json!({"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "re/fresh", "token_uri": format!("http://{host}/token")});
        std::fs::write(&file, login.to_string()).unwrap();
        assert_eq!(who(&host, &file).await, "Bearer of-a-person");
    }
}

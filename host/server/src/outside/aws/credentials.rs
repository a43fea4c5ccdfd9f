//! Where the server's own AWS keys come from, in the order of every AWS program: variables, a role taken with a token, files,
//! the container's agent, the machine's metadata.

use std::path::Path;
use std::time::Duration;

use axum::http::Request;
use bytes::Bytes;
use dstack_backend_types::Secret;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::{domain, encoded, files, header, tag};
use crate::outside::OutsideError;
use crate::outside::http::{Http, Reply};
use crate::settings::AwsAccess;

/// Keys are fetched anew when they hold for less than this.
const MARGIN: SignedDuration = SignedDuration::from_secs(300);
/// Machines without a metadata service do not answer at all.
const METADATA: Duration = Duration::from_secs(2);

/// A pair of keys, for a time or for good.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) key: String,
    pub(crate) secret: Secret<String>,
    pub(crate) token: Option<Secret<String>>,
    pub(crate) until: Option<Timestamp>,
}

/// Fetches keys and keeps them for as long as they hold.
#[derive(Debug)]
pub(super) struct Source {
    http: Http,
    access: AwsAccess,
    region: String,
    known: Mutex<Option<Credentials>>,
}

/// What a container's agent and a machine's metadata answer.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: Option<Timestamp>,
}

impl From<Answer> for Credentials {
    fn from(it: Answer) -> Self {
        Self {
            key: it.access_key_id,
            secret: Secret::new(it.secret_access_key),
            token: it.token.map(Secret::new),
            until: it.expiration,
        }
    }
}

impl Source {
    pub(super) fn new(http: Http, access: AwsAccess, region: String) -> Self {
        Self {
            http,
            access,
            region,
            known: Mutex::default(),
        }
    }

    /// Keys that hold for some minutes.
    pub(super) async fn get(&self) -> Result<Credentials, OutsideError> {
        // Held while fetching, so that many do not ask at once.
        let mut known = self.known.lock().await;
        let soon = Timestamp::now()
            .saturating_add(MARGIN)
            .unwrap_or(Timestamp::MAX);
        if let Some(keys) = known.as_ref()
            && keys.until.is_none_or(|until| until > soon)
        {
            return Ok(keys.clone());
        }
        let keys = self.fetch().await?;
        *known = Some(keys.clone());
        Ok(keys)
    }

    /// Forgets the keys: they are refused.
    pub(super) async fn forget(&self) {
        *self.known.lock().await = None;
    }

    async fn fetch(&self) -> Result<Credentials, OutsideError> {
        let access = &self.access;
        if let Some((key, secret)) = &access.keys {
            return Ok(Credentials {
                key: key.clone(),
                secret: secret.clone(),
                token: access.session_token.clone(),
                until: None,
            });
        }
        if let Some((role, file)) = &access.web_identity {
            return self.role(role, file).await;
        }
        if let Some(keys) = files::keys(access) {
            return Ok(keys);
        }
        if let Some(url) = &access.container_url {
            return self.container(url).await;
        }
        if let Some(url) = &access.metadata_url
            && let Some(keys) = self.machine(url).await?
        {
            return Ok(keys);
        }
        Err(OutsideError::NoAccess(
            "no AWS credentials: neither variables, nor files, nor a role of this machine have any"
                .to_owned(),
        ))
    }

    async fn role(&self, role: &str, file: &Path) -> Result<Credentials, OutsideError> {
        let token = read(file)?;
        let own = format!("https://sts.{}.{}", self.region, domain(&self.region));
        let endpoint = self.access.endpoints.sts.as_ref().unwrap_or(&own);
        // In the body, since addresses are written down by proxies.
        let form = format!(
            "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleSessionName=dstack-server&RoleArn={}&WebIdentityToken={}",
            encoded(role),
            encoded(token.trim()),
        );
        let url = format!("{}/", endpoint.trim_end_matches('/'));
        let kind = ("content-type", "application/x-www-form-urlencoded");
        let mut asked = request("POST", &url, &[kind])?;
        *asked.body_mut() = Bytes::from(form);
        let reply = self.http.send(&asked).await?;
        if !reply.status.is_success() {
            let code = tag(&reply.body, "Code").unwrap_or_default();
            return Err(reply.refused(&code, &tag(&reply.body, "Message").unwrap_or_default()));
        }
        let part = |name: &str| {
            tag(&reply.body, name).ok_or_else(|| OutsideError::Odd {
                at: reply.at.clone(),
                why: format!("no {name}"),
            })
        };
        Ok(Credentials {
            key: part("AccessKeyId")?,
            secret: Secret::new(part("SecretAccessKey")?),
            token: Some(Secret::new(part("SessionToken")?)),
            until: part("Expiration")?.parse().ok(),
        })
    }

    async fn container(&self, url: &str) -> Result<Credentials, OutsideError> {
        let token = match &self.access.container_token_file {
            Some(file) => Some(Secret::new(read(file)?.trim().to_owned())),
            None => self.access.container_token.clone(),
        };
        let token = token
            .as_ref()
            .map(|it| ("authorization", it.expose().as_str()));
        let reply = self
            .http
            .send(&request("GET", url, token.as_slice())?)
            .await?;
        answer(&reply)
    }

    /// None where there is no metadata service, or no role.
    async fn machine(&self, url: &str) -> Result<Option<Credentials>, OutsideError> {
        let lifetime = ("x-aws-ec2-metadata-token-ttl-seconds", "300");
        let asked = request("PUT", &format!("{url}/latest/api/token"), &[lifetime])?;
        let Ok(token) = self.http.once(&asked, METADATA).await else {
            return Ok(None);
        };
        if !token.status.is_success() {
            return Ok(None);
        }
        let token = String::from_utf8_lossy(&token.body).trim().to_owned();
        let head = [("x-aws-ec2-metadata-token", token.as_str())];
        let roles = format!("{url}/latest/meta-data/iam/security-credentials/");
        let reply = self
            .http
            .once(&request("GET", &roles, &head)?, METADATA)
            .await?;
        let names = String::from_utf8_lossy(&reply.body).into_owned();
        let Some(role) = names.lines().next().filter(|_| reply.status.is_success()) else {
            return Ok(None);
        };
        let reply = self
            .http
            .once(
                &request("GET", &format!("{roles}{}", role.trim()), &head)?,
                METADATA,
            )
            .await?;
        answer(&reply).map(Some)
    }
}

fn answer(reply: &Reply) -> Result<Credentials, OutsideError> {
    if reply.status.is_success() {
        reply.json::<Answer>().map(Credentials::from)
    } else {
        Err(reply.refused("", "no credentials"))
    }
}

fn read(path: &Path) -> Result<String, OutsideError> {
    std::fs::read_to_string(path).map_err(|error| {
        OutsideError::NoAccess(format!("{} cannot be read: {error}", path.display()))
    })
}

fn request(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
) -> Result<Request<Bytes>, OutsideError> {
    let mut request = Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, header(value)?);
    }
    request
        .body(Bytes::new())
        .map_err(|error| OutsideError::NoAccess(format!("{url} is no address: {error}")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::{HeaderMap, StatusCode};
    use axum::routing::{get, put};
    use axum::{Json, Router};
    use dstack_test_support::moto::Moto;
    use serde_json::json;

    use super::Source;
    use crate::outside::http::Http;
    use crate::settings::{AwsAccess, Settings};

    fn access(home: &Path, vars: &[(&str, &str)]) -> AwsAccess {
        let mut all = BTreeMap::from([("HOME".to_owned(), home.display().to_string())]);
        for (name, value) in vars {
            all.insert((*name).to_owned(), (*value).to_owned());
        }
        Settings::from_env(&all).unwrap().outside.aws
    }

    async fn source(access: AwsAccess) -> Source {
        Source::new(Http::new().await.unwrap(), access, "eu-west-1".to_owned())
    }

    async fn served(router: Router) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    #[tokio::test]
    async fn files_have_sections() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        let text = "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key=B\n\n[ other ]\n; no\nAWS_ACCESS_KEY_ID=C\naws_secret_access_key = D=\naws_session_token = E\n";
        std::fs::write(home.path().join(".aws/credentials"), text).unwrap();
        let text = "[default]\nregion = eu-north-1\n[profile other]\nregion = us-west-2\n";
        std::fs::write(home.path().join(".aws/config"), text).unwrap();
        let first = access(home.path(), &[]);
        assert_eq!(super::files::region(&first).unwrap(), "eu-north-1");
        let keys = source(first).await.get().await.unwrap();
        assert_eq!((keys.key.as_str(), keys.token), ("A", None));
        let other = access(home.path(), &[("AWS_PROFILE", "other")]);
        assert_eq!(super::files::region(&other).unwrap(), "us-west-2");
        let keys = source(other).await.get().await.unwrap();
        assert_eq!(keys.secret.expose(), "D=");
        assert_eq!(keys.token.unwrap().expose(), "E");
    }

    #[tokio::test]
    async fn keys_of_a_container_are_kept_while_they_hold() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let answer = move |headers: HeaderMap| async move {
            assert_eq!(headers["authorization"], "word");
            // The first ones are nearly over.
            let year = if count.fetch_add(1, Ordering::Relaxed) == 0 {
                2001
            } else {
                2200
            };
            Json(
                json!({"AccessKeyId": "A", "SecretAccessKey": "B", "Token": "C", "Expiration": format!("{year}-01-01T00:00:00Z")}),
            )
        };
        let url = served(Router::new().route("/keys", get(answer))).await;
        let home = tempfile::tempdir().unwrap();
        let source = source(access(
            home.path(),
            &[
                ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &format!("{url}/keys")),
                ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "word"),
            ],
        ))
        .await;
        for _ in 0..5 {
            assert_eq!(source.get().await.unwrap().key, "A");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        source.forget().await;
        source.get().await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_machine_has_the_keys_of_its_role() {
        fn with_token(headers: &HeaderMap) -> StatusCode {
            if headers
                .get("x-aws-ec2-metadata-token")
                .is_some_and(|it| it == "word")
            {
                StatusCode::OK
            } else {
                StatusCode::UNAUTHORIZED
            }
        }
        let roles = "/latest/meta-data/iam/security-credentials/";
        let router = Router::new()
            .route("/latest/api/token", put(|| async { "word" }))
            .route(
                roles,
                get(|headers: HeaderMap| async move { (with_token(&headers), "server-role\n") }),
            )
            .route(
                &format!("{roles}server-role"),
                get(|headers: HeaderMap| async move {
                    let keys = json!({"AccessKeyId": "A", "SecretAccessKey": "B", "Token": "C", "Expiration": "2200-01-01T00:00:00Z"});
                    (with_token(&headers), Json(keys))
                }),
            );
        let url = served(router).await;
        let home = tempfile::tempdir().unwrap();
        let vars = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", url.as_str())];
        let source = source(access(home.path(), &vars)).await;
        assert_eq!(source.get().await.unwrap().token.unwrap().expose(), "C");
    }

    #[tokio::test]
    async fn a_role_is_taken_with_a_token() {
        let moto = Moto::start().unwrap();
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("token");
        std::fs::write(&file, "word\n").unwrap();
        let source = source(access(
            home.path(),
            &[
                ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/server"),
                ("AWS_WEB_IDENTITY_TOKEN_FILE", &file.display().to_string()),
                ("AWS_ENDPOINT_URL_STS", moto.url()),
            ],
        ))
        .await;
        let keys = source.get().await.unwrap();
        assert!(keys.key.starts_with("ASIA") && keys.token.is_some() && keys.until.is_some());
    }
}

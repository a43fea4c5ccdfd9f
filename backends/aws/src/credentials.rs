//! Keys to sign with: those of the configuration, or those of the server's surroundings.
//!
//! The chain is that of the AWS SDKs as far as it needs no files: variables of the environment, then the role of the container,
//! then the role of the machine (IMDSv2).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dstack_backend_sdk::http::Request;
use dstack_backend_sdk::rest::{SigV4, Sign, Unsigned};
use dstack_backend_sdk::{BackendError, Result, Secret, host};
use jiff::Timestamp;
use serde::Deserialize;

use crate::config::{AwsCreds, CredsKind};

/// Keys are fetched anew this long before they end.
const EARLY: Duration = Duration::from_secs(300);
/// The service of a machine or container answers at once, or is not there.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(2);
const CONTAINER_HOST: &str = "http://169.254.170.2";
const MACHINE_HOST: &str = "http://169.254.169.254";

const VARIABLES: [&str; 8] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
];

/// Keys, for good or for a time.
#[derive(Clone)]
struct Keys {
    id: String,
    secret: Secret<String>,
    token: Option<Secret<String>>,
    until: Option<Timestamp>,
}

/// What the services of containers and machines answer.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Temporary {
    access_key_id: String,
    secret_access_key: Secret<String>,
    token: Option<Secret<String>>,
    expiration: Option<Timestamp>,
}

impl From<Temporary> for Keys {
    fn from(found: Temporary) -> Self {
        Self {
            id: found.access_key_id,
            secret: found.secret_access_key,
            token: found.token,
            until: found.expiration,
        }
    }
}

/// The login of one configuration.
pub(crate) struct Login {
    creds: AwsCreds,
    kept: Mutex<Option<Keys>>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(***)")
    }
}

impl Login {
    pub(crate) fn new(creds: AwsCreds) -> Self {
        Self {
            creds,
            kept: Mutex::new(None),
        }
    }

    /// Fields of the configuration that are at fault if the keys are refused.
    pub(crate) fn fields(&self) -> &'static [&'static str] {
        match self.creds.kind {
            CredsKind::AccessKey => &["creds.access_key", "creds.secret_key"],
            CredsKind::Default => &["creds"],
        }
    }

    fn keys(&self) -> Result<Keys> {
        if let Some((access, secret)) = self.creds.own_keys()? {
            return Ok(Keys {
                id: access.expose().clone(),
                secret: secret.clone(),
                token: None,
                until: None,
            });
        }
        let now = host::now();
        if let Some(keys) = self.kept().as_ref()
            && keys.until.is_none_or(|until| now < until)
        {
            return Ok(keys.clone());
        }
        // Without the lock: nobody waits for another call's network.
        let mut keys = found()?;
        keys.until = keys.until.and_then(|until| until.checked_sub(EARLY).ok());
        *self.kept() = Some(keys.clone());
        Ok(keys)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Option<Keys>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Signs requests to one service in one region.
pub(crate) struct Signer {
    pub(crate) login: Arc<Login>,
    pub(crate) region: String,
    pub(crate) service: &'static str,
}

impl Signer {
    fn with(&self, keys: Keys) -> SigV4 {
        SigV4::new(keys.id, keys.secret, &self.region, self.service).session_token(keys.token)
    }
}

impl Sign for Signer {
    fn sign(&self, request: &mut Unsigned) -> Result<()> {
        self.with(self.login.keys()?).sign(request)
    }

    fn secrets(&self) -> Vec<String> {
        let keys = match self.login.creds.kind {
            CredsKind::AccessKey => self.login.keys().ok(),
            CredsKind::Default => self.login.kept().clone(),
        };
        keys.map_or_else(Vec::new, |keys| self.with(keys).secrets())
    }
}

/// The first of the chain that has keys.
fn found() -> Result<Keys> {
    let refused = |why: String| BackendError::auth(why, ["creds"]);
    let mut variables = host::environment(&VARIABLES)
        .map_err(|error| refused(format!("default credentials cannot be used: {error}")))?;
    variables.retain(|_, value| !value.expose().trim().is_empty());
    let text = |name: &str| variables.get(name).map(|value| value.expose().trim());
    if let (Some(id), Some(secret)) = (
        text("AWS_ACCESS_KEY_ID"),
        variables.get("AWS_SECRET_ACCESS_KEY"),
    ) {
        return Ok(Keys {
            id: id.to_owned(),
            secret: secret.clone(),
            token: variables.get("AWS_SESSION_TOKEN").cloned(),
            until: None,
        });
    }
    if let Some(keys) = of_container(&variables)? {
        return Ok(keys);
    }
    let is_off =
        text("AWS_EC2_METADATA_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"));
    let endpoint = text("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or(MACHINE_HOST);
    let why = if is_off {
        "AWS_EC2_METADATA_DISABLED is set".to_owned()
    } else {
        match of_machine(endpoint.trim_end_matches('/')) {
            Ok(keys) => return Ok(keys),
            Err(error) if error.kind == dstack_backend_sdk::ErrorKind::Cancelled => {
                return Err(error);
            }
            Err(error) => error.message,
        }
    };
    Err(refused(format!(
        "no default credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY on the server, or give the machine it runs on a role ({why})"
    )))
}

fn of_container(variables: &BTreeMap<String, Secret<String>>) -> Result<Option<Keys>> {
    let text = |name: &str| variables.get(name).map(|value| value.expose().trim());
    let url = match (
        text("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
        text("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
    ) {
        (Some(path), _) => format!("{CONTAINER_HOST}{path}"),
        (None, Some(url)) if is_allowed(url) => url.to_owned(),
        (None, Some(_)) => {
            return Err(BackendError::auth(
                "AWS_CONTAINER_CREDENTIALS_FULL_URI names neither this machine nor an address of https",
                ["creds"],
            ));
        }
        (None, None) => return Ok(None),
    };
    let mut request = Request::get(url).timeout(LOCAL_TIMEOUT);
    if let Some(token) = text("AWS_CONTAINER_AUTHORIZATION_TOKEN") {
        request = request.header("authorization", token);
    }
    let found: Temporary = request.send()?.ok()?.json()?;
    Ok(Some(found.into()))
}

/// Keys in the clear come from this machine only.
fn is_allowed(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else {
        return url.starts_with("https://");
    };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    matches!(
        host,
        "127.0.0.1" | "localhost" | "169.254.170.2" | "169.254.170.23"
    )
}

fn of_machine(endpoint: &str) -> Result<Keys> {
    const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
    let token = Request::put(format!("{endpoint}/latest/api/token"))
        .header("x-aws-ec2-metadata-token-ttl-seconds", "300")
        .timeout(LOCAL_TIMEOUT)
        .idempotent(false)
        .send()?
        .ok()?
        .text();
    let get = |path: &str| {
        Request::get(format!("{endpoint}{path}"))
            .header("x-aws-ec2-metadata-token", token.trim())
            .timeout(LOCAL_TIMEOUT)
            .send()?
            .ok()
    };
    let role = get(ROLES)?.text();
    let role = role.lines().next().unwrap_or_default().trim();
    let found: Temporary = get(&format!("{ROLES}{role}"))?.json()?;
    Ok(found.into())
}

#[cfg(test)]
mod tests {
    use super::{Login, is_allowed};
    use dstack_backend_sdk::ErrorKind;
    use dstack_backend_sdk::testing::{Host, Reply};
    use dstack_backend_sdk::types::services::ENVIRONMENT;
    use serde_json::json;

    fn login() -> Login {
        Login::new(serde_json::from_value(json!({"type": "default"})).unwrap())
    }

    #[test]
    fn variables_come_before_the_role_of_the_machine() {
        let host = Host::new(|_| Reply::cut());
        host.answer(
            ENVIRONMENT,
            &json!({"values": {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_SESSION_TOKEN": "t"}}),
        );
        let keys = login().keys().unwrap();
        assert_eq!(
            (keys.id.as_str(), keys.secret.expose().as_str()),
            ("id", "key")
        );
        assert_eq!(keys.token.unwrap().expose(), "t");
        assert!(host.requests().is_empty());
    }

    #[test]
    fn the_role_of_the_machine_is_asked_for_and_kept_until_it_ends() {
        let host = Host::new(|request| match request.path.as_str() {
            "/latest/api/token" => Reply {
                body: b"token".to_vec(),
                ..Reply::status(200)
            },
            "/latest/meta-data/iam/security-credentials/" => Reply {
                body: b"role\n".to_vec(),
                ..Reply::status(200)
            },
            "/latest/meta-data/iam/security-credentials/role" => Reply::json(
                200,
                &json!({"Code": "Success", "AccessKeyId": "id", "SecretAccessKey": "key", "Token": "t", "Expiration": "2026-01-01T00:20:00Z"}),
            ),
            _ => Reply::status(404),
        });
        host.answer(ENVIRONMENT, &json!({"values": {}}));
        let login = login();
        assert_eq!(login.keys().unwrap().id, "id");
        assert_eq!(
            host.requests()[1].header("x-aws-ec2-metadata-token"),
            Some("token")
        );
        login.keys().unwrap();
        assert_eq!(host.requests().len(), 3, "kept");
        dstack_backend_sdk::host::sleep(std::time::Duration::from_secs(16 * 60)).unwrap();
        login.keys().unwrap();
        assert_eq!(host.requests().len(), 6, "fetched anew before they end");
    }

    #[test]
    fn a_container_has_its_own_service() {
        let host = Host::new(|request| {
            assert_eq!(request.origin, "http://169.254.170.2");
            Reply::json(
                200,
                &json!({"AccessKeyId": "c", "SecretAccessKey": "key", "Token": "t"}),
            )
        });
        host.answer(
            ENVIRONMENT,
            &json!({"values": {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/x"}}),
        );
        assert_eq!(login().keys().unwrap().id, "c");
        assert_eq!(host.requests()[0].path, "/v2/x");
    }

    #[test]
    fn without_any_the_error_says_what_to_set() {
        let host = Host::new(|_| Reply::cut());
        host.answer(ENVIRONMENT, &json!({"values": {}}));
        let error = login().keys().err().unwrap();
        assert_eq!(error.kind, ErrorKind::Auth);
        assert!(error.message.contains("AWS_ACCESS_KEY_ID"), "{error}");
        assert_eq!(error.details["fields"], json!(["creds"]));
    }

    #[test]
    fn keys_in_the_clear_come_from_this_machine() {
        assert!(is_allowed("http://127.0.0.1:8080/x"));
        assert!(is_allowed("http://169.254.170.23/v1/credentials"));
        assert!(is_allowed("https://keys.example/x"));
        assert!(!is_allowed("http://keys.example/x"));
        assert!(!is_allowed("http://127.0.0.1.example/x"));
    }
}

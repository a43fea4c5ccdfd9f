//! The signed word of a service account, for which Google gives a token.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use dstack_backend_types::Secret;
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::rsa::KeyPair;
use ring::signature::RSA_PKCS1_SHA256;
use serde::Deserialize;
use serde_json::json;

use crate::outside::OutsideError;

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// The longest life that Google takes.
const LIFE_S: i64 = 3600;

/// The parts of a service account's key file that matter.
#[derive(Deserialize)]
pub(super) struct ServiceAccount {
    client_email: String,
    private_key: Secret<String>,
    private_key_id: Option<String>,
    pub(super) token_uri: Option<String>,
}

impl ServiceAccount {
    /// Signed for the place that gives tokens.
    ///
    /// # Errors
    /// The key is no RSA key; it is not in the text.
    pub(super) fn assertion(
        &self,
        audience: &str,
        now: Timestamp,
    ) -> Result<Secret<String>, OutsideError> {
        let key = key(self.private_key.expose())?;
        let mut head = json!({"alg": "RS256", "typ": "JWT"});
        if let Some(id) = &self.private_key_id {
            head["kid"] = id.as_str().into();
        }
        let issued = now.as_second();
        let claims = json!({
            "iss": self.client_email, "scope": SCOPE, "aud": audience,
            "iat": issued, "exp": issued + LIFE_S,
        });
        let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(&head), part(&claims));
        let mut signature = vec![0; key.public().modulus_len()];
        key.sign(
            &RSA_PKCS1_SHA256,
            &SystemRandom::new(),
            text.as_bytes(),
            &mut signature,
        )
        .map_err(|_| OutsideError::NoAccess("the service account's key cannot sign".to_owned()))?;
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Ok(Secret::new(format!("{text}.{signature}")))
    }
}

/// Reads PKCS#8 in PEM.
fn key(pem: &str) -> Result<KeyPair, OutsideError> {
    let bad = || OutsideError::NoAccess("the service account has no RSA key in PEM".to_owned());
    let (_, rest) = pem
        .split_once("-----BEGIN PRIVATE KEY-----")
        .ok_or_else(bad)?;
    let (body, _) = rest
        .split_once("-----END PRIVATE KEY-----")
        .ok_or_else(bad)?;
    let body: String = body.split_whitespace().collect();
    let der = STANDARD.decode(body).map_err(|_| bad())?;
    KeyPair::from_pkcs8(&der).map_err(|_| bad())
}

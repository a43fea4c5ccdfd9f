//! JSON Web Tokens signed by an RSA key, with which service accounts log in.

use std::fmt;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use dstack_backend_types::{BackendError, Secret};
use ring::{rand::SystemRandom, rsa::KeyPair, signature::RSA_PKCS1_SHA256};
use serde::Serialize;
use serde_json::json;

use crate::host::to_json;

/// A private RSA key. Feature `rs256`.
pub struct Rs256Key(KeyPair);

impl fmt::Debug for Rs256Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rs256Key(***)")
    }
}

impl Rs256Key {
    /// Reads a key in PEM: `PRIVATE KEY` (PKCS#8) or `RSA PRIVATE KEY` (PKCS#1), 2048 to 4096 bits.
    ///
    /// # Errors
    /// `invalid` if it is none; the text does not hold the key.
    pub fn from_pem(pem: &Secret<String>) -> Result<Self, BackendError> {
        let bad = |why: String| BackendError::invalid(format!("not an RSA key in PEM: {why}"));
        let pem = pem.expose();
        let (label, rest) = pem
            .split_once("-----BEGIN ")
            .and_then(|(_, rest)| rest.split_once("-----"))
            .ok_or_else(|| bad("no BEGIN line".to_owned()))?;
        let (body, _) = rest
            .split_once("-----END ")
            .ok_or_else(|| bad("no END line".to_owned()))?;
        let body: String = body.split_whitespace().collect();
        let der = STANDARD
            .decode(body)
            .map_err(|_| bad("not base64".to_owned()))?;
        let pair = match label {
            "PRIVATE KEY" => KeyPair::from_pkcs8(&der),
            "RSA PRIVATE KEY" => KeyPair::from_der(&der),
            other => return Err(bad(format!("it is a {}", other.to_lowercase()))),
        };
        pair.map(Self).map_err(|error| bad(error.to_string()))
    }

    /// A signed token with these claims; `key_id` tells which key of the account it is.
    ///
    /// # Errors
    /// `internal` if the claims cannot be written or the key cannot sign.
    pub fn token<C: Serialize>(
        &self,
        claims: &C,
        key_id: Option<&str>,
    ) -> Result<Secret<String>, BackendError> {
        let mut head = json!({"alg": "RS256", "typ": "JWT"});
        if let Some(key_id) = key_id {
            head["kid"] = key_id.into();
        }
        let part = |bytes: Vec<u8>| URL_SAFE_NO_PAD.encode(bytes);
        let text = format!("{}.{}", part(to_json(&head)?), part(to_json(claims)?));
        let mut signature = vec![0; self.0.public().modulus_len()];
        self.0
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                text.as_bytes(),
                &mut signature,
            )
            .map_err(|_| BackendError::internal("the RSA key cannot sign"))?;
        Ok(Secret::new(format!("{text}.{}", part(signature))))
    }
}

#[cfg(test)]
mod tests {
    use super::Rs256Key;
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use dstack_backend_types::Secret;
    use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents};
    use serde_json::json;

    /// Made for this test only.
    const PEM: &str = include_str!("rs256_test_key.pem");

    #[test]
    fn tokens_carry_claims_and_a_right_signature() {
        let key = Rs256Key::from_pem(&Secret::new(PEM.to_owned())).unwrap();
        let token = key.token(&json!({"iss": "me"}), Some("k1")).unwrap();
        let (text, signature) = token.expose().rsplit_once('.').unwrap();
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let (head, claims) = text.split_once('.').unwrap();
        assert_eq!(decode(head), br#"{"alg":"RS256","kid":"k1","typ":"JWT"}"#);
        assert_eq!(decode(claims), br#"{"iss":"me"}"#);
        let public: RsaPublicKeyComponents<Vec<u8>> = key.0.public().into();
        public
            .verify(
                &RSA_PKCS1_2048_8192_SHA256,
                text.as_bytes(),
                &decode(signature),
            )
            .unwrap();
    }

    #[test]
    fn what_is_no_key_is_refused_without_showing_it() {
        for bad in [
            "hush",
            "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----",
            "-----BEGIN EC PRIVATE KEY-----\nhush\n-----END EC PRIVATE KEY-----",
        ] {
            let error = Rs256Key::from_pem(&Secret::new(bad.to_owned())).unwrap_err();
            assert!(!error.message.contains("hush"), "{error}");
        }
    }
}

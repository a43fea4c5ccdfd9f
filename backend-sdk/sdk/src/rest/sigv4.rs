//! AWS Signature Version 4, which other clouds have taken over too.
//!
//! Source: "AWS Signature Version 4 for API requests" of the AWS General Reference.

use std::fmt::{self, Write};

use dstack_backend_types::{BackendError, Secret};
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::{Sign, Unsigned, encode, url};
use crate::host;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Signs requests by AWS Signature Version 4, in the header `Authorization`.
#[derive(Clone)]
pub struct SigV4 {
    access_key: String,
    secret_key: Secret<String>,
    session_token: Option<Secret<String>>,
    region: String,
    service: String,
}

impl fmt::Debug for SigV4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigV4({} {})", self.region, self.service)
    }
}

impl SigV4 {
    /// For one service (`ec2`) in one region.
    pub fn new(
        access_key: impl Into<String>,
        secret_key: Secret<String>,
        region: impl Into<String>,
        service: impl Into<String>,
    ) -> Self {
        Self {
            access_key: access_key.into(),
            secret_key,
            session_token: None,
            region: region.into(),
            service: service.into(),
        }
    }

    /// With the token of temporary credentials.
    #[must_use]
    pub fn session_token(mut self, token: Option<Secret<String>>) -> Self {
        self.session_token = token;
        self
    }

    fn sign_at(&self, request: &mut Unsigned, now: Timestamp) -> Result<(), BackendError> {
        let unsigned = request.url.clone();
        let parts = url::split(&unsigned)
            .ok_or_else(|| BackendError::invalid("a request to be signed needs a whole address"))?;
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let day = now.strftime("%Y%m%d").to_string();
        let body_hash = hex(&Sha256::digest(&request.body));
        request.header("x-amz-date", &time);
        if let Some(token) = &self.session_token {
            request.header("x-amz-security-token", token.expose());
        }
        let is_s3 = self.service == "s3";
        if is_s3 {
            request.header("x-amz-content-sha256", &body_hash);
        }

        let mut headers: Vec<(String, String)> = request
            .headers
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), blanks_joined(value)))
            .filter(|(name, _)| name == "content-type" || name.starts_with("x-amz-"))
            .chain([("host".to_owned(), parts.authority.to_ascii_lowercase())])
            .collect();
        headers.sort();
        let signed = headers
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>()
            .join(";");
        let mut canonical = format!(
            "{}\n{}\n{}\n",
            request.method,
            canonical_path(parts.path, is_s3),
            canonical_query(parts.query)
        );
        for (name, value) in &headers {
            // Writing to a string cannot fail.
            writeln!(canonical, "{name}:{value}").ok();
        }
        write!(canonical, "\n{signed}\n{body_hash}").ok();

        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let hash = hex(&Sha256::digest(canonical.as_bytes()));
        let text = format!("{ALGORITHM}\n{time}\n{scope}\n{hash}");
        let first = format!("AWS4{}", self.secret_key.expose()).into_bytes();
        let key = [day.as_str(), &self.region, &self.service, "aws4_request"]
            .into_iter()
            .try_fold(first, |key, word| mac(&key, word))?;
        let signature = hex(&mac(&key, &text)?);
        request.header(
            "authorization",
            format!(
                "{ALGORITHM} Credential={}/{scope}, SignedHeaders={signed}, Signature={signature}",
                self.access_key
            ),
        );
        Ok(())
    }
}

impl Sign for SigV4 {
    fn sign(&self, request: &mut Unsigned) -> Result<(), BackendError> {
        self.sign_at(request, host::now())
    }

    fn secrets(&self) -> Vec<String> {
        let token = self.session_token.iter();
        let mut all: Vec<String> = token
            .chain([&self.secret_key])
            .map(|secret| secret.expose().clone())
            .collect();
        // Half of a login, and a `Secret` in most configurations; replies that quote the request have it.
        all.push(self.access_key.clone());
        all
    }
}

fn mac(key: &[u8], text: &str) -> Result<Vec<u8>, BackendError> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key)
        .map_err(|error| BackendError::internal(format!("no signature: {error}")))?;
    mac.update(text.as_bytes());
    Ok(mac.finalize().into_bytes().to_vec())
}

/// The path is encoded once more, but not for S3, whose keys are signed as they are.
fn canonical_path(path: &str, is_s3: bool) -> String {
    if path.is_empty() {
        return "/".to_owned();
    }
    if is_s3 {
        return path.to_owned();
    }
    path.split('/').map(encode).collect::<Vec<_>>().join("/")
}

/// Pairs by name, then value; they are encoded already.
fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<(&str, &str)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    pairs.sort_unstable();
    let pairs = pairs
        .into_iter()
        .map(|(key, value)| format!("{key}={value}"));
    pairs.collect::<Vec<_>>().join("&")
}

fn blanks_joined(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{SigV4, Sign as _, Unsigned};
    use dstack_backend_types::Secret;

    /// The examples of the AWS General Reference; key pair and time are theirs.
    fn signature(service: &str, method: &str, url: &str, headers: &[(&str, &str)]) -> String {
        let key = Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned());
        let signer = SigV4::new("AKIDEXAMPLE", key, "us-east-1", service);
        let mut request = Unsigned {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            body: Vec::new(),
        };
        let now = "2015-08-30T12:36:00Z".parse().unwrap();
        signer.sign_at(&mut request, now).unwrap();
        let (_, value) = request.headers.pop().unwrap();
        value.rsplit_once('=').unwrap().1.to_owned()
    }

    #[test]
    fn signatures_are_those_of_the_reference() {
        let vanilla = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
        let url = "https://example.amazonaws.com/";
        assert_eq!(signature("service", "GET", url, &[]), vanilla);
        let post = "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b";
        assert_eq!(signature("service", "POST", url, &[]), post);
        let iam = "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7";
        let url = "https://iam.amazonaws.com/?Version=2010-05-08&Action=ListUsers";
        let form = "application/x-www-form-urlencoded;  charset=utf-8";
        assert_eq!(
            signature("iam", "GET", url, &[("Content-Type", form)]),
            iam,
            "pairs are ordered and blanks joined"
        );
    }

    #[test]
    fn nothing_secret_is_printed() {
        let signer = SigV4::new("id", Secret::new("hush".to_owned()), "r", "s");
        assert!(!format!("{signer:?}").contains("hush"));
        assert_eq!(signer.secrets(), ["hush", "id"]);
    }
}

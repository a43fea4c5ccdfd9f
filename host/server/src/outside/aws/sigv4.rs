//! AWS Signature Version 4, in the header `Authorization`.
//!
//! Source: "AWS Signature Version 4 for API requests" of the AWS General Reference. Backends have their own in the SDK, which
//! runs inside of plugins.

use std::fmt::Write as _;

use axum::http::Request;
use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::credentials::Credentials;
use super::{encoded_path, header};
use crate::outside::OutsideError;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Whose signature, for what.
pub(super) struct Signer<'a> {
    pub(super) credentials: &'a Credentials,
    pub(super) region: &'a str,
    pub(super) service: &'a str,
}

impl Signer<'_> {
    /// Signs a request: its method, address, body, and the headers `content-type` and `x-amz-…`.
    pub(super) fn sign(
        &self,
        request: &mut Request<Bytes>,
        now: Timestamp,
    ) -> Result<(), OutsideError> {
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let day = now.strftime("%Y%m%d").to_string();
        let body = hex(&Sha256::digest(request.body()));
        let mut added = vec![("x-amz-date", time.clone())];
        if let Some(token) = &self.credentials.token {
            added.push(("x-amz-security-token", token.expose().clone()));
        }
        if self.service == "s3" {
            added.push(("x-amz-content-sha256", body.clone()));
        }
        for (name, value) in added {
            request.headers_mut().insert(name, header(&value)?);
        }
        let (canonical, signed) = self.canonical(request, &body)?;
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let hash = hex(&Sha256::digest(canonical.as_bytes()));
        let text = format!("{ALGORITHM}\n{time}\n{scope}\n{hash}");
        let first = format!("AWS4{}", self.credentials.secret.expose()).into_bytes();
        let key = [day.as_str(), self.region, self.service, "aws4_request"]
            .into_iter()
            .try_fold(first, |key, word| mac(&key, word))?;
        let signature = hex(&mac(&key, &text)?);
        let value = format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={signed}, Signature={signature}",
            self.credentials.key
        );
        request
            .headers_mut()
            .insert("authorization", header(&value)?);
        Ok(())
    }

    /// The request as text, and the names of the headers in it.
    fn canonical(
        &self,
        request: &Request<Bytes>,
        body: &str,
    ) -> Result<(String, String), OutsideError> {
        let uri = request.uri();
        let host = uri
            .authority()
            .ok_or_else(|| OutsideError::NoAccess("an address without a host".to_owned()))?;
        let mut headers = vec![("host".to_owned(), host.as_str().to_ascii_lowercase())];
        for (name, value) in request.headers() {
            let name = name.as_str();
            if name == "content-type" || name.starts_with("x-amz-") {
                let value = String::from_utf8_lossy(value.as_bytes());
                let value: Vec<&str> = value.split_whitespace().collect();
                headers.push((name.to_owned(), value.join(" ")));
            }
        }
        headers.sort();
        // Keys of S3 are signed as they are, all other paths are encoded once more.
        let path = if self.service == "s3" {
            uri.path().to_owned()
        } else {
            encoded_path(uri.path())
        };
        let mut query: Vec<(&str, &str)> = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        query.sort_unstable();
        let query: Vec<String> = query
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut text = format!("{}\n{path}\n{}\n", request.method(), query.join("&"));
        for (name, value) in &headers {
            // Writing to a string cannot fail.
            writeln!(text, "{name}:{value}").ok();
        }
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        write!(text, "\n{names}\n{body}").ok();
        Ok((text, names))
    }
}

fn mac(key: &[u8], text: &str) -> Result<Vec<u8>, OutsideError> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key)
        .map_err(|error| OutsideError::NoAccess(format!("no signature: {error}")))?;
    mac.update(text.as_bytes());
    Ok(mac.finalize().into_bytes().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use bytes::Bytes;
    use dstack_backend_types::Secret;

    use super::{Credentials, Signer};

    /// The examples of the AWS General Reference; key pair and time are theirs.
    fn signature(service: &str, method: &str, url: &str, kind: Option<&str>) -> String {
        let credentials = Credentials {
            key: "AKIDEXAMPLE".to_owned(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned()),
            token: None,
            until: None,
        };
        let mut request = Request::builder().method(method).uri(url);
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let mut request = request.body(Bytes::new()).unwrap();
        let signer = Signer {
            credentials: &credentials,
            region: "us-east-1",
            service,
        };
        let now = "2015-08-30T12:36:00Z".parse().unwrap();
        signer.sign(&mut request, now).unwrap();
        let value = request.headers()["authorization"].to_str().unwrap();
        value.rsplit_once('=').unwrap().1.to_owned()
    }

    #[test]
    fn signatures_are_those_of_the_reference() {
        let url = "https://example.amazonaws.com/";
        assert_eq!(
            signature("service", "GET", url, None),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        );
        assert_eq!(
            signature("service", "POST", url, None),
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
        );
        assert_eq!(
            signature(
                "iam",
                "GET",
                "https://iam.amazonaws.com/?Version=2010-05-08&Action=ListUsers",
                Some("application/x-www-form-urlencoded;  charset=utf-8")
            ),
            "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
            "pairs are ordered and blanks joined"
        );
    }
}

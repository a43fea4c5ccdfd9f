//! AWS: signed requests with the server's own account.

mod credentials;
mod files;
mod sigv4;

use std::sync::Arc;

use axum::http::{HeaderValue, Request, Uri};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::OutsideError;
use super::http::{Http, Reply};
use crate::settings::AwsAccess;
pub(crate) use credentials::Credentials;
use credentials::Source;

/// What stays as it is in a path or a query of AWS.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// The same in a path of several words.
const KEPT_IN_PATHS: &AsciiSet = &KEPT.remove(b'/');

/// One service in one region.
#[derive(Debug)]
pub(crate) struct Aws {
    http: Http,
    source: Arc<Source>,
    region: String,
    service: &'static str,
    endpoint: String,
}

/// Text in a path of one word, or a query.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, KEPT).to_string()
}

/// Text in a path whose slashes stay.
pub(crate) fn encoded_path(text: &str) -> String {
    utf8_percent_encode(text, KEPT_IN_PATHS).to_string()
}

impl Aws {
    /// A service (`logs`, `s3`) at its own address, unless another one is set.
    ///
    /// # Errors
    /// No region is named anywhere.
    pub(crate) fn new(
        http: Http,
        access: &AwsAccess,
        service: &'static str,
        region: Option<&str>,
        endpoint: Option<&str>,
    ) -> Result<Self, OutsideError> {
        let named = region.map(str::to_owned).or_else(|| access.region.clone());
        let region = named.or_else(|| files::region(access)).ok_or_else(|| {
            OutsideError::NoAccess("no AWS region is set; AWS_REGION names one".to_owned())
        })?;
        let endpoint = endpoint.map_or_else(
            || format!("https://{service}.{region}.{}", domain(&region)),
            |url| url.trim_end_matches('/').to_owned(),
        );
        Ok(Self {
            source: Arc::new(Source::new(http.clone(), access.clone(), region.clone())),
            http,
            region,
            service,
            endpoint,
        })
    }

    /// The region.
    pub(crate) fn region(&self) -> &str {
        &self.region
    }

    /// A request to a path, which is encoded already.
    ///
    /// # Errors
    /// The address is none.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Bytes>, OutsideError> {
        let uri: Uri = format!("{}{path}", self.endpoint)
            .parse()
            .map_err(|error| OutsideError::NoAccess(format!("{}: {error}", self.endpoint)))?;
        Request::builder()
            .method(method)
            .uri(uri)
            .body(body)
            .map_err(|error| OutsideError::NoAccess(error.to_string()))
    }

    /// Signs and sends. A login that is over is fetched anew, once.
    ///
    /// # Errors
    /// No login, or no answer. An answer of any status is none.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Reply, OutsideError> {
        let first = self
            .signed(request.clone(), self.source.get().await?)
            .await?;
        if first.status.is_client_error() && is_expired(&first.body) {
            self.source.forget().await;
            return self.signed(request, self.source.get().await?).await;
        }
        Ok(first)
    }

    async fn signed(
        &self,
        mut request: Request<Bytes>,
        credentials: Credentials,
    ) -> Result<Reply, OutsideError> {
        let signer = sigv4::Signer {
            credentials: &credentials,
            region: &self.region,
            service: self.service,
        };
        signer.sign(&mut request, jiff::Timestamp::now())?;
        self.http.send(&request).await
    }
}

/// `amazonaws.com`, or that of China.
fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") {
        "amazonaws.com.cn"
    } else {
        "amazonaws.com"
    }
}

fn is_expired(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    text.contains("ExpiredToken")
}

/// The value of a header.
///
/// # Errors
/// It has characters that no header has.
pub(crate) fn header(text: &str) -> Result<HeaderValue, OutsideError> {
    HeaderValue::try_from(text)
        .map_err(|_| OutsideError::NoAccess("a value that no header can carry".to_owned()))
}

/// The text between two tags of XML: enough for the flat answers of STS and the errors of S3.
pub(crate) fn tag(body: &[u8], name: &str) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once(&format!("</{name}>"))?;
    Some(value.trim().to_owned())
}

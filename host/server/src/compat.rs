//! What older clients and the official client need to see. The only place that knows about them.

pub(crate) mod old;
pub(crate) mod version;
pub(crate) mod view;

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use dstack_api::error::ErrorCode;
use dstack_api::server_info::{API_VERSION_HEADER, CLIENT_HEADER, COMPATIBLE_VERSION};

use crate::error::ApiError;
use version::Version;

/// Who is asking, as far as headers tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Client {
    /// The API version it speaks; none means the newest.
    pub(crate) version: Option<Version>,
    /// Whether it is our own client, which knows every backend type.
    pub(crate) ours: bool,
}

impl Client {
    /// Whether it states a version below `major.minor.patch`.
    pub(crate) fn older_than(&self, release: [u64; 3]) -> bool {
        self.version
            .as_ref()
            .is_some_and(|version| version.release() < release)
    }

    fn from_headers(headers: &HeaderMap) -> Result<Self, ApiError> {
        let ours = headers.contains_key(CLIENT_HEADER);
        let Some(text) = headers.get(API_VERSION_HEADER) else {
            return Ok(Self {
                version: None,
                ours,
            });
        };
        let text = text.to_str().unwrap_or("?").trim();
        if text == "latest" {
            return Ok(Self {
                version: None,
                ours,
            });
        }
        let Some(version) = Version::parse(text) else {
            return Err(ApiError::Refused {
                code: None,
                msg: format!("Invalid version: {text}"),
            });
        };
        let newest = version.release() == [0, 0, 0];
        Ok(Self {
            version: (!newest).then_some(version),
            ours,
        })
    }
}

/// Refuses clients that are too new, and leaves a [`Client`] in the request's extensions.
pub(crate) async fn negotiate(server: Version, mut request: Request, next: Next) -> Response {
    let client = match Client::from_headers(request.headers()) {
        Ok(client) => client,
        Err(error) => return error.into_response(),
    };
    let path = request.uri().path();
    let checked = path.starts_with("/api/") && !path.starts_with("/api/docs");
    if checked
        && let Some(version) = &client.version
        && version.is_too_new_for(&server)
    {
        let msg = format!(
            "The client/CLI version ({version}) is incompatible with the server version ({server})."
        );
        return ApiError::Refused {
            code: Some(ErrorCode::Error),
            msg,
        }
        .into_response();
    }
    request.extensions_mut().insert(client);
    next.run(request).await
}

/// The version the server acts as; settings that are none mean the one it was built for.
pub(crate) fn server_version(setting: &str) -> Version {
    Version::parse(setting)
        .or_else(|| Version::parse(COMPATIBLE_VERSION))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use super::{Client, version::Version};

    fn client(version: &str) -> Result<Client, String> {
        let mut headers = HeaderMap::new();
        headers.insert("x-api-version", version.parse().unwrap());
        Client::from_headers(&headers).map_err(|error| error.to_string())
    }

    #[test]
    fn latest_and_zero_mean_the_newest() {
        assert_eq!(client("latest").unwrap().version, None);
        assert_eq!(client("0.0.0").unwrap().version, None);
        assert_eq!(client("0.0.0.dev1").unwrap().version, None);
        assert_eq!(client("abc").unwrap_err(), "Invalid version: abc");
        assert!(!client("latest").unwrap().older_than([0, 1, 0]));
        assert!(client("0.20.7").unwrap().older_than([0, 20, 8]));
        assert!(!client("0.20.8").unwrap().older_than([0, 20, 8]));
    }

    #[test]
    fn only_a_newer_major_or_minor_is_too_new() {
        let server = Version::parse("0.22.5").unwrap();
        for (client, too_new) in [
            ("0.23.0", true),
            ("0.22.99", false),
            ("1.0.0", true),
            ("0.21.9", false),
            ("0.22.5", false),
            ("0.22.5rc1", false),
        ] {
            assert_eq!(
                Version::parse(client).unwrap().is_too_new_for(&server),
                too_new,
                "{client}"
            );
        }
    }
}

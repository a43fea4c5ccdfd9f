//! Reading JSON bodies with the refusals that clients of the APIs know.

use bytes::Bytes;
use dstack_agent_protocol::MAX_JSON_BODY_BYTES;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::HttpError;

pub(super) async fn read_json<T: DeserializeOwned>(
    request: http::Request<Incoming>,
) -> Result<T, HttpError> {
    check_content_type(request.headers())?;
    let bytes = read_limited(request.into_body(), MAX_JSON_BODY_BYTES).await?;
    parse_json(&bytes)
}

pub(super) async fn read_limited(body: Incoming, limit: usize) -> Result<Bytes, HttpError> {
    let too_large = || {
        HttpError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "Request body must not be larger than 1MB",
        )
    };
    if body.size_hint().lower() > u64::try_from(limit).unwrap_or(u64::MAX) {
        return Err(too_large());
    }
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(err) if err.is::<LengthLimitError>() => Err(too_large()),
        Err(err) => Err(HttpError::bad_request(format!(
            "Request body could not be read: {err}"
        ))),
    }
}

/// A missing content type is fine; another than JSON is not.
pub(super) fn check_content_type(headers: &http::HeaderMap) -> Result<(), HttpError> {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return Ok(());
    };
    let value = value.to_str().unwrap_or_default();
    let media_type = value.split(';').next().unwrap_or_default().trim();
    if media_type.is_empty() || media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(HttpError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "Content-Type header is not application/json",
    ))
}

pub(super) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, HttpError> {
    let trimmed = bytes.trim_ascii();
    if trimmed.is_empty() {
        return Err(HttpError::bad_request("Request body must not be empty"));
    }
    let bytes = if trimmed == b"null" { b"{}" } else { bytes };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|err| {
        let field = err.path().to_string();
        let err = err.into_inner();
        let at = position(bytes, err.line(), err.column());
        HttpError::bad_request(match err.classify() {
            Category::Data if field == "." => {
                format!("Request body contains an invalid value (at position {at})")
            }
            Category::Data => format!(
                "Request body contains an invalid value for the \"{field}\" field (at position {at})"
            ),
            Category::Io | Category::Syntax | Category::Eof => {
                format!("Request body contains badly-formed JSON (at position {at})")
            }
        })
    })?;
    deserializer.end().map_err(|_| {
        HttpError::bad_request("Request body must only contain a single JSON object")
    })?;
    Ok(value)
}

/// Byte offset of a line and column, both counted from 1.
fn position(bytes: &[u8], line: usize, column: usize) -> usize {
    let before: usize = bytes
        .split_inclusive(|b| *b == b'\n')
        .take(line.saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    before + column
}

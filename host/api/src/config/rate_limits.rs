//! Limits for the requests to a service.

use std::collections::BTreeSet;

use dstack_backend_types::deserialize_by_value;
use dstack_backend_types::reading::{Failed, FromValue, Reader};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Value, json};

use super::object::config;
use super::schema::parts;

/// The most requests a second that still fit the proxies, which count a minute's in 63 bits.
const MAX_RPS: f64 = 9_223_372_036_854_775_807.0 / 60.0;
const MIN_RPS: f64 = 1.0 / 60.0;

config! {
    /// A limit for the requests below a path.
    pub struct RateLimit {
        /// Start of the path.
        pub prefix: String = default("/".to_owned(), prefix, prefix_schema),
        /// Who shares a limit.
        pub key: RateLimitKey = default(RateLimitKey::IpAddress {}),
        /// Requests a second, one a minute at least.
        pub rps: f64 = required(rps, parts::number(json!({"minimum": MIN_RPS, "maximum": MAX_RPS}))),
        /// Requests that may come at once on top.
        pub burst: i64 = default(0, |value, cx| cx.integer_in(value, 0, i64::MAX), parts::integer(0, i64::MAX)),
    }
}

/// Who shares a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RateLimitKey {
    /// Requests from one address.
    IpAddress {},
    /// Requests with the same value of a header.
    Header {
        /// Its name.
        header: String,
    },
}

impl FromValue for RateLimitKey {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let mut obj = cx.object(value)?;
        let read = match obj.tag("type", &["ip_address", "header"], cx)? {
            "header" => obj
                .required_with("header", cx, header)
                .map(|header| Self::Header { header }),
            _ => Ok(Self::IpAddress {}),
        };
        obj.finish(cx)?;
        read
    }
}

fn prefix_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": r"^/[^\s\\{}]*$", "maxLength": 4094})
}

fn header(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    let name = String::from_value(value, cx)?;
    let fits = (1..=500).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    match fits {
        true => Ok(name),
        false => Err(cx.fail("a header name has 1 to 500 letters, digits, `-` and `_`")),
    }
}

fn prefix(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    let prefix = String::from_value(value, cx)?;
    let safe = |c: char| !c.is_whitespace() && !matches!(c, '\\' | '{' | '}');
    let fits =
        prefix.starts_with('/') && prefix.chars().count() <= 4094 && prefix.chars().all(safe);
    match fits {
        true => Ok(prefix),
        false => Err(cx.fail(
            "a prefix starts with `/`, has up to 4094 characters and no spaces, backslashes or braces",
        )),
    }
}

fn rps(value: &Value, cx: &mut Reader) -> Result<f64, Failed> {
    match f64::from_value(value, cx)? {
        rps if (MIN_RPS..=MAX_RPS).contains(&rps) => Ok(rps),
        rps => Err(cx.fail(format!(
            "expected at least 1/60 (one request a minute), got {rps}"
        ))),
    }
}

/// The list of limits; each prefix once.
pub(super) fn rate_limits(value: &Value, cx: &mut Reader) -> Result<Vec<RateLimit>, Failed> {
    let list: Vec<RateLimit> = Vec::from_value(value, cx)?;
    let mut seen = BTreeSet::new();
    for limit in &list {
        if !seen.insert(&limit.prefix) {
            return Err(cx.fail(format!("the prefix {} occurs twice", limit.prefix)));
        }
    }
    Ok(list)
}

deserialize_by_value!(RateLimitKey);

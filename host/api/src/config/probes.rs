//! How to tell whether a replica is ready.

use std::collections::BTreeSet;

use dstack_backend_types::reading::{Failed, FromValue, Reader};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::duration;
use super::object::config;
use super::schema::{self, parts, rules, scalars};
use crate::jobs::{HttpHeader, HttpMethod, ProbeSpec, ProbeType};

config! {
    /// A request that a replica must answer well to be ready.
    #[derive(Eq)]
    pub struct ProbeConfig {
        /// Always `http`.
        #[serde(rename = "type")]
        pub kind: ProbeType = named("type", required),
        /// Path and query; unset means `/`.
        pub url: Option<String> = optional(url, url_schema),
        /// Unset means get.
        pub method: Option<HttpMethod> = optional,
        /// Headers to send, 16 at most.
        pub headers: Vec<HttpHeader> = default(Vec::new(), headers, headers_schema),
        /// Body to send, up to 2048 characters.
        pub body: Option<String> = optional(body, parts::text_of_length(1, 2048)),
        /// Seconds to wait for the answer; unset means 10.
        pub timeout: Option<u32> = optional(seconds, scalars::duration_from(1)),
        /// Seconds between two probes; unset means 15.
        pub interval: Option<u32> = optional(seconds, scalars::duration_from(1)),
        /// Successes in a row that make a replica ready; unset means 1.
        pub ready_after: Option<u32> = optional(super::task::at_least_one, parts::integer(1, i64::from(u32::MAX))),
        /// Whether to stop probing once it is ready; unset means no.
        pub until_ready: Option<bool> = optional,
    }
    check(ProbeConfig::check) rules(rules::probe)
}

impl FromValue for HttpHeader {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let mut obj = cx.object(value)?;
        let name = obj.required_with("name", cx, |value, cx| text(value, 256, cx));
        let value = obj.required_with("value", cx, |value, cx| text(value, 2048, cx));
        obj.finish(cx)?;
        Ok(Self {
            name: name?,
            value: value?,
        })
    }
}

fn url_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": r"^/[^\x00-\x1f\x7f-\x9f]*$", "maxLength": 2048})
}

fn headers_schema(generator: &mut SchemaGenerator) -> Schema {
    let items = schema::of::<HttpHeader>(generator);
    json_schema!({"type": "array", "items": items, "maxItems": 16})
}

fn seconds(value: &Value, cx: &mut Reader) -> Result<u32, Failed> {
    let seconds = duration::at_least(1)(value, cx)?;
    u32::try_from(seconds).map_err(|_| cx.fail("the duration is too long"))
}

fn text(value: &Value, max: usize, cx: &mut Reader) -> Result<String, Failed> {
    let text = String::from_value(value, cx)?;
    match text.chars().count() {
        count if (1..=max).contains(&count) => Ok(text),
        count => Err(cx.fail(format!("expected 1 to {max} characters, got {count}"))),
    }
}

fn body(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    text(value, 2048, cx)
}

fn url(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    let url = text(value, 2048, cx)?;
    if !url.starts_with('/') {
        return Err(cx.fail(format!("a probe's URL starts with `/`, got \"{url}\"")));
    }
    if url.chars().any(char::is_control) {
        return Err(cx.fail("a probe's URL has printable characters only"));
    }
    Ok(url)
}

fn headers(value: &Value, cx: &mut Reader) -> Result<Vec<HttpHeader>, Failed> {
    match Vec::from_value(value, cx)? {
        list if list.len() > 16 => Err(cx.fail(format!(
            "a probe has 16 headers at most, got {}",
            list.len()
        ))),
        list => Ok(list),
    }
}

impl ProbeConfig {
    fn check(&self, cx: &mut Reader) -> Result<(), Failed> {
        match self.method {
            Some(method @ (HttpMethod::Get | HttpMethod::Head)) if self.body.is_some() => {
                Err(cx.fail(format!("a probe with the method {method} has no body")))
            }
            _ => Ok(()),
        }
    }

    /// The probe with all defaults filled in.
    pub fn effective(&self) -> ProbeSpec {
        ProbeSpec {
            kind: self.kind,
            url: self.url.clone().unwrap_or_else(|| "/".to_owned()),
            method: self.method.unwrap_or(HttpMethod::Get),
            headers: self.headers.clone(),
            body: self.body.clone(),
            timeout: self.timeout.unwrap_or(10),
            interval: self.interval.unwrap_or(15),
            ready_after: self.ready_after.unwrap_or(1),
            until_ready: self.until_ready.unwrap_or(false),
        }
    }
}

impl ProbeSpec {
    /// What a chat model without probes is asked: one short completion.
    pub fn of_model(name: &str, prefix: &str) -> Self {
        // Written out, since peers compare probes as texts and expect these blanks and this order.
        let name = Value::from(name);
        let body = format!(
            r#"{{"model": {name}, "messages": [{{"role": "user", "content": "hi"}}], "max_tokens": 1}}"#
        );
        Self {
            kind: ProbeType::Http,
            url: format!("{}/chat/completions", prefix.trim_end_matches('/')),
            method: HttpMethod::Post,
            headers: vec![HttpHeader {
                name: "Content-Type".to_owned(),
                value: "application/json".to_owned(),
            }],
            body: Some(body),
            timeout: 30,
            interval: 15,
            ready_after: 1,
            until_ready: false,
        }
    }
}

/// The list of probes; no two are alike.
pub(super) fn probes(value: &Value, cx: &mut Reader) -> Result<Vec<ProbeConfig>, Failed> {
    let list: Vec<ProbeConfig> = Vec::from_value(value, cx)?;
    // Compared by what is written of them, so that a long list takes no longer than it must.
    let mut seen = BTreeSet::new();
    let mut is_new = |probe| seen.insert(serde_json::to_string(probe).unwrap_or_default());
    match list.iter().position(|probe| !is_new(probe)) {
        Some(i) => Err(cx.fail(format!("probe {i} is the same as an earlier one"))),
        None => Ok(list),
    }
}

//! Recorded answers against ours, by rule.

use std::collections::BTreeMap;

use serde_json::Value;
use uuid::Uuid;

/// Values that time or chance makes.
const FREE: &[&str] = &[
    "cost",
    "inactivity_secs",
    "last_processed_at",
    "fingerprint",
    "token",
    "_note",
];

/// Ids of the record, and what they are here.
#[derive(Debug, Clone, Default)]
pub(super) struct Ids(BTreeMap<String, String>);

impl Ids {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// A request with the ids and keys of this server.
    pub(super) fn ours(&self, request: &Value) -> Value {
        match request {
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| (key.clone(), self.ours(value)))
                .collect(),
            Value::Array(items) => items.iter().map(|item| self.ours(item)).collect(),
            Value::String(text) if text == "PRIVATE-KEY-PEM" => {
                pair().private.expose().as_str().into()
            }
            Value::String(text) if text.contains("AAAA-PUBLIC-KEY") => {
                pair().public.as_str().into()
            }
            Value::String(text) => self.0.get(text).unwrap_or(text).as_str().into(),
            other => other.clone(),
        }
    }

    fn same(&mut self, theirs: &str, ours: &str) -> bool {
        let known = self
            .0
            .entry(theirs.to_owned())
            .or_insert_with(|| ours.to_owned());
        known == ours
    }
}

/// One pair of keys for all requests.
fn pair() -> &'static dstack_remote::KeyPair {
    static PAIR: std::sync::OnceLock<dstack_remote::KeyPair> = std::sync::OnceLock::new();
    PAIR.get_or_init(|| dstack_remote::KeyPair::generate("user").unwrap())
}

fn is_id(text: &str) -> bool {
    text.len() == 36 && text.parse::<Uuid>().is_ok()
}

fn is_time(text: &str) -> bool {
    text.ends_with('Z') && text.len() >= 20 && text.parse::<jiff::Timestamp>().is_ok()
}

fn is_secret(text: &str) -> bool {
    text.starts_with("TOKEN-") || text.contains("AAAA-PUBLIC-KEY") || text == "PRIVATE-KEY-PEM"
}

/// Adds to `found` what differs at `at`.
pub(super) fn compare(
    theirs: &Value,
    ours: &Value,
    at: &str,
    ids: &mut Ids,
    found: &mut Vec<String>,
) {
    let key = at.rsplit('.').next().unwrap_or_default();
    if FREE.contains(&key) {
        return;
    }
    match (theirs, ours) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().filter(|key| !b.contains_key(*key)) {
                found.push(format!("{at}.{key} is missing"));
            }
            for key in b.keys().filter(|key| !a.contains_key(*key)) {
                found.push(format!("{at}.{key} is new"));
            }
            for (key, value) in a {
                if let Some(other) = b.get(key) {
                    compare(value, other, &format!("{at}.{key}"), ids, found);
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                found.push(format!("{at}: {} items became {}", a.len(), b.len()));
            }
            for (number, (a, b)) in a.iter().zip(b).enumerate() {
                compare(a, b, &format!("{at}[{number}]"), ids, found);
            }
        }
        (Value::String(a), Value::String(b)) if is_id(a) && is_id(b) => {
            if !ids.same(a, b) {
                found.push(format!("{at}: another id"));
            }
        }
        (Value::String(a), Value::String(b))
            if is_time(a) && is_time(b) || is_secret(a) && !b.is_empty() => {}
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{at}: {a} became {b}")),
    }
}

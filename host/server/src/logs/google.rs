//! Logs in Google Cloud Logging: one log of the project, `dstack-run-logs`; the label `stream` tells whose entry it is.
//!
//! Limits are from "Quotas and limits" of Cloud Logging. Reads are few there: 60 a minute unless raised.

use axum::http::Request;
use bytes::Bytes;
use dstack_api::logs::LogEvent;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::pieces::pieces;
use super::{Answer, Entries, LogError, LogKey, LogPage, LogQuery, LogStore, Reach};
use crate::outside::OutsideError;
use crate::outside::aws::encoded;
use crate::outside::google::Google;
use crate::outside::http::Http;
use crate::settings::GoogleAccess;

const NAME: &str = "Cloud Logging";
const LOG: &str = "dstack-run-logs";
/// Entries of one call, and bytes of their texts; 10 MB is the limit for all of it.
const MOST_ENTRIES: usize = 1000;
const MOST_BYTES: usize = 4 << 20;
/// Bytes of one text; 256 KB is the limit for an entry with everything.
const LONGEST: usize = 128 << 10;

/// The store of logs.
#[derive(Debug)]
pub(super) struct GoogleLogs {
    google: Google,
    project: String,
    endpoint: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    #[serde(default)]
    entries: Vec<Entry>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    timestamp: Timestamp,
    #[serde(default)]
    json_payload: Payload,
}

#[derive(Default, Deserialize)]
struct Payload {
    #[serde(default)]
    message: String,
}

impl GoogleLogs {
    pub(super) fn new(http: Http, access: &GoogleAccess, project: &str, endpoint: &str) -> Self {
        Self {
            google: Google::new(http, access.clone()),
            project: project.to_owned(),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
        }
    }

    /// Looks whether the project is there and lets us read and write.
    pub(super) async fn check(&self) -> Result<(), LogError> {
        let read = json!({
            "resourceNames": [format!("projects/{}", self.project)], "pageSize": 1,
            "filter": format!("logName = \"{}\"", self.log_name()),
        });
        self.call("entries:list", &read).await?;
        let entry = json!({"jsonPayload": {"message": ""}, "resource": {"type": "global"}});
        let write = json!({"logName": self.log_name(), "entries": [entry], "dryRun": true});
        self.call("entries:write", &write).await.map(drop)
    }

    fn log_name(&self) -> String {
        format!("projects/{}/logs/{LOG}", self.project)
    }

    async fn call(&self, method: &str, body: &Value) -> Result<Bytes, LogError> {
        let request = Request::post(format!("{}/v2/{method}", self.endpoint))
            .header("content-type", "application/json")
            .body(Bytes::from(body.to_string()))
            .map_err(|error| LogError::outside(NAME)(OutsideError::NoAccess(error.to_string())))?;
        let reply = self.google.send(request).await;
        Ok(reply.map_err(LogError::outside(NAME))?.body)
    }

    async fn append(&self, key: &LogKey, entries: Entries) -> Result<(), LogError> {
        let stream = key.joined("-");
        let id = format!("{}-{}", key.submission, key.producer.word());
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for entry in entries {
            let at = entry.at.to_string();
            for (place, text) in pieces(&entry.message, LONGEST).into_iter().enumerate() {
                if batch.len() >= MOST_ENTRIES || bytes + text.len() > MOST_BYTES {
                    self.put(&stream, std::mem::take(&mut batch)).await?;
                    bytes = 0;
                }
                bytes += text.len();
                batch.push(json!({
                    "timestamp": at, "jsonPayload": {"message": text},
                    // The same once more is one entry. Entries of one time are in the order of this.
                    "insertId": format!("{id}-{:016}-{place:04}", entry.at.as_microsecond()),
                }));
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.put(&stream, batch).await
    }

    async fn put(&self, stream: &str, entries: Vec<Value>) -> Result<(), LogError> {
        let body = json!({
            "logName": self.log_name(), "resource": {"type": "global"},
            "labels": {"stream": stream}, "entries": entries,
        });
        self.call("entries:write", &body).await.map(drop)
    }

    async fn poll(&self, key: &LogKey, query: LogQuery) -> Result<LogPage, LogError> {
        let stream = key.joined("-");
        let mut page = LogPage {
            external_url: Some(self.url(&stream)),
            ..LogPage::default()
        };
        if query.limit == 0 {
            return Ok(page);
        }
        let mut filter = format!(
            "logName = \"{}\" AND labels.stream = \"{stream}\"",
            self.log_name()
        );
        for (sign, time) in [(">", query.after), ("<", query.before)] {
            if let Some(time) = time {
                filter.push_str(&format!(" AND timestamp {sign} \"{time}\""));
            }
        }
        let mut body = json!({
            "resourceNames": [format!("projects/{}", self.project)], "filter": filter,
            "orderBy": if query.descending { "timestamp desc" } else { "timestamp asc" },
            "pageSize": query.limit,
        });
        if let Some(token) = &query.token {
            body["pageToken"] = token.as_str().into();
        }
        let answer = match self.call("entries:list", &body).await {
            Err(LogError::Outside { why, .. }) if why.contains("RESOURCE_EXHAUSTED") => {
                return Err(LogError::TooManyReads);
            }
            Err(LogError::Outside { why, .. })
                if query.token.is_some() && why.contains("INVALID_ARGUMENT") =>
            {
                return Err(LogError::ForeignToken(query.token.unwrap_or_default()));
            }
            other => other?,
        };
        let found: Found = serde_json::from_slice(&answer).map_err(|error| LogError::Outside {
            store: NAME,
            why: format!("an answer that is not understood: {error}"),
            is_gone: false,
        })?;
        page.logs = found
            .entries
            .iter()
            .map(|it| LogEvent::new(it.timestamp, it.json_payload.message.as_bytes()))
            .collect();
        let is_last = page.logs.is_empty();
        page.next_token = found
            .next_page_token
            .filter(|it| !is_last && !it.is_empty());
        Ok(page)
    }

    /// Where a person sees the log.
    fn url(&self, stream: &str) -> String {
        let query = format!(
            "logName=\"{}\" AND labels.stream=\"{stream}\"",
            self.log_name()
        );
        format!(
            "https://console.cloud.google.com/logs/query;query={}?project={}",
            encoded(&query),
            encoded(&self.project)
        )
    }
}

impl LogStore for GoogleLogs {
    fn append<'a>(&'a self, key: &'a LogKey, entries: Entries) -> Answer<'a, ()> {
        Box::pin(self.append(key, entries))
    }

    fn poll<'a>(&'a self, key: &'a LogKey, query: LogQuery) -> Answer<'a, LogPage> {
        Box::pin(self.poll(key, query))
    }

    /// Entries have ids there: the same once more is one, and reads are too few to ask.
    fn stored_until<'a>(&'a self, _key: &'a LogKey) -> Answer<'a, i64> {
        Box::pin(async { Ok(i64::MIN) })
    }

    fn check_token(&self, query: &LogQuery) -> Result<(), LogError> {
        query.check_opaque()
    }

    fn reach(&self) -> Reach {
        Reach::Outside
    }
}

#[cfg(test)]
mod tests;

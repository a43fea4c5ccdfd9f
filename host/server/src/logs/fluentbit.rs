//! Logs to Fluent Bit, which brings them wherever it is told to; read back from Elasticsearch or `OpenSearch`, or not at all.
//!
//! The tag is `<prefix>.<project>/<run>/<submission>/job`. A record has `message`, `@timestamp`, `stream` (the tag without the
//! prefix) and `seq`, the time in microseconds, by which records of one millisecond stay in order.

use axum::http::Request;
use bytes::Bytes;
use serde_json::{Map, Value};

use super::elastic::{Reader, sort_values};
use super::forward::{Forward, Record, bracketed};
use super::pieces::pieces;
use super::{Answer, Entries, LogError, LogKey, LogPage, LogQuery, LogStore, Reach};
use crate::outside::OutsideError;
use crate::outside::aws::encoded_path;
use crate::outside::http::Http;
use crate::settings::{FluentBit, FluentProtocol};

const NAME: &str = "Fluent Bit";
/// Records of one message, and bytes of their texts: far below what its inputs take unless told otherwise (4 MB, 6 MB).
const MOST_RECORDS: usize = 1000;
const MOST_BYTES: usize = 1 << 20;
/// Bytes of one text.
const LONGEST: usize = 256 << 10;

/// The store of logs.
#[derive(Debug)]
pub(super) struct FluentBitLogs {
    writer: Writer,
    prefix: String,
    reader: Option<Reader>,
}

#[derive(Debug)]
enum Writer {
    Forward(Forward),
    Http { http: Http, url: String },
}

impl FluentBitLogs {
    pub(super) fn new(http: Http, how: &FluentBit) -> Self {
        let writer = match how.protocol {
            FluentProtocol::Forward => Writer::Forward(Forward::new(&how.host, how.port)),
            FluentProtocol::Http => Writer::Http {
                http: http.clone(),
                url: format!("http://{}:{}", bracketed(&how.host), how.port),
            },
        };
        Self {
            writer,
            prefix: how.tag_prefix.clone(),
            reader: how.elastic.clone().map(|place| Reader::new(http, place)),
        }
    }

    /// Looks whether somebody listens, and whether the reader is let in.
    pub(super) async fn check(&self) -> Result<(), LogError> {
        if let Some(reader) = &self.reader {
            reader.check().await?;
        }
        match &self.writer {
            Writer::Forward(forward) => forward
                .check()
                .await
                .map_err(|error| gone(forward.address(), &error)),
            // It has no question that is no record.
            Writer::Http { .. } => Ok(()),
        }
    }

    async fn append(&self, key: &LogKey, entries: Entries) -> Result<(), LogError> {
        let stream = key.joined("/");
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for entry in entries {
            for text in pieces(&entry.message, LONGEST) {
                if batch.len() >= MOST_RECORDS || bytes + text.len() > MOST_BYTES {
                    self.send(&stream, &batch).await?;
                    (batch, bytes) = (Vec::new(), 0);
                }
                bytes += text.len();
                batch.push(Record {
                    at: entry.at,
                    seq: entry.at.as_microsecond(),
                    fields: vec![
                        ("message", text),
                        ("@timestamp", dstack_api::time::format(entry.at)),
                        ("stream", stream.clone()),
                    ],
                });
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.send(&stream, &batch).await
    }

    async fn send(&self, stream: &str, records: &[Record]) -> Result<(), LogError> {
        let tag = format!("{}.{stream}", self.prefix);
        match &self.writer {
            Writer::Forward(forward) => forward
                .send(&tag, records)
                .await
                .map_err(|error| gone(forward.address(), &error)),
            Writer::Http { http, url } => {
                post(http, &format!("{url}/{}", encoded_path(&tag)), records)
                    .await
                    .map_err(LogError::outside(NAME))
            }
        }
    }
}

async fn post(http: &Http, url: &str, records: &[Record]) -> Result<(), OutsideError> {
    let records: Vec<Value> = records.iter().map(json).collect();
    let request = Request::post(url)
        .header("content-type", "application/json")
        .body(Bytes::from(Value::from(records).to_string()))
        .map_err(|error| OutsideError::NoAccess(format!("{url}: {error}")))?;
    let reply = http.send(&request).await?;
    if reply.status.is_success() {
        return Ok(());
    }
    Err(reply.refused("", &reply.text()))
}

fn json(record: &Record) -> Value {
    let mut map = Map::new();
    for (name, value) in &record.fields {
        map.insert((*name).to_owned(), value.as_str().into());
    }
    map.insert("seq".to_owned(), record.seq.into());
    Value::Object(map)
}

fn gone(address: &str, error: &std::io::Error) -> LogError {
    LogError::Outside {
        store: NAME,
        why: format!("{address}: {error}"),
        is_gone: true,
    }
}

impl LogStore for FluentBitLogs {
    fn append<'a>(&'a self, key: &'a LogKey, entries: Entries) -> Answer<'a, ()> {
        Box::pin(self.append(key, entries))
    }

    /// Without a reader all logs are empty here; they are seen where Fluent Bit brings them.
    fn poll<'a>(&'a self, key: &'a LogKey, query: LogQuery) -> Answer<'a, LogPage> {
        Box::pin(async move {
            match &self.reader {
                Some(reader) => reader.poll(&key.joined("/"), query).await,
                None => Ok(LogPage::default()),
            }
        })
    }

    fn stored_until<'a>(&'a self, key: &'a LogKey) -> Answer<'a, i64> {
        Box::pin(async move {
            let Some(reader) = &self.reader else {
                return Ok(i64::MIN);
            };
            match reader.last(&key.joined("/")).await {
                // Records that stand there twice are better than none while the reader is down.
                Err(error @ LogError::Outside { is_gone: true, .. }) => {
                    tracing::warn!(%error, "what has been sent before is sent again");
                    Ok(i64::MIN)
                }
                other => other,
            }
        })
    }

    fn check_token(&self, query: &LogQuery) -> Result<(), LogError> {
        query
            .token
            .as_deref()
            .map_or(Ok(()), |token| sort_values(token).map(drop))
    }

    fn reach(&self) -> Reach {
        Reach::Outside
    }
}

#[cfg(test)]
mod tests;

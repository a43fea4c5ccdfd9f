//! Reads records of Fluent Bit from Elasticsearch or `OpenSearch`.

use axum::http::Request;
use bytes::Bytes;
use dstack_api::logs::LogEvent;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{LogError, LogPage, LogQuery};
use crate::outside::OutsideError;
use crate::outside::aws::{encoded, header};
use crate::outside::http::{Http, Reply};
use crate::settings::Elastic;

const NAME: &str = "Elasticsearch";

/// Finds records of a log.
#[derive(Debug)]
pub(super) struct Reader {
    http: Http,
    place: Elastic,
}

#[derive(Deserialize)]
struct Answer {
    hits: Hits,
}

#[derive(Deserialize)]
struct Hits {
    hits: Vec<Hit>,
}

#[derive(Deserialize)]
struct Hit {
    #[serde(rename = "_source")]
    record: Record,
    #[serde(default)]
    sort: Vec<Value>,
}

#[derive(Deserialize)]
struct Record {
    #[serde(rename = "@timestamp")]
    at: Timestamp,
    #[serde(default)]
    message: String,
    seq: Option<i64>,
}

impl Reader {
    pub(super) fn new(http: Http, place: Elastic) -> Self {
        Self { http, place }
    }

    /// Looks whether it is there and lets us in.
    pub(super) async fn check(&self) -> Result<(), LogError> {
        self.call("GET", "/", Bytes::new()).await.map(drop)
    }

    async fn call(&self, method: &str, path: &str, body: Bytes) -> Result<Reply, LogError> {
        let ask = async {
            let mut request = Request::builder()
                .method(method)
                .uri(format!("{}{path}", self.place.url))
                .header("content-type", "application/json");
            if let Some(key) = &self.place.api_key {
                request = request.header(
                    "authorization",
                    header(&format!("ApiKey {}", key.expose()))?,
                );
            }
            let request = request
                .body(body)
                .map_err(|error| OutsideError::NoAccess(error.to_string()))?;
            let reply = self.http.send(&request).await?;
            if reply.status.is_success() {
                return Ok(reply);
            }
            let told: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            let part = |name| told["error"][name].as_str().unwrap_or_default().to_owned();
            Err(reply.refused(&part("type"), &part("reason")))
        };
        ask.await.map_err(LogError::outside(NAME))
    }

    async fn search(&self, stream: &str, query: &LogQuery) -> Result<Vec<Hit>, LogError> {
        let order = if query.descending { "desc" } else { "asc" };
        let mut filter = vec![json!({"term": {"stream.keyword": stream}})];
        for (sign, time) in [("gt", query.after), ("lt", query.before)] {
            if let Some(time) = time {
                filter.push(json!({"range": {"@timestamp": {sign: time.to_string()}}}));
            }
        }
        let mut body = json!({
            "query": {"bool": {"filter": filter}},
            "size": query.limit,
            // Times are of milliseconds there; within one our own numbers decide.
            "sort": [
                {"@timestamp": {"order": order, "unmapped_type": "date"}},
                {"seq": {"order": order, "unmapped_type": "long"}},
            ],
        });
        if let Some(token) = &query.token {
            body["search_after"] = sort_values(token)?;
        }
        let path = format!(
            "/{}/_search?ignore_unavailable=true",
            encoded(&self.place.index)
        );
        let reply = self
            .call("POST", &path, Bytes::from(body.to_string()))
            .await?;
        let answer: Answer = reply.json().map_err(LogError::outside(NAME))?;
        Ok(answer.hits.hits)
    }

    pub(super) async fn poll(&self, stream: &str, query: LogQuery) -> Result<LogPage, LogError> {
        if query.limit == 0 {
            return Ok(LogPage::default());
        }
        let hits = self.search(stream, &query).await?;
        let next = hits.last().filter(|_| hits.len() == query.limit);
        Ok(LogPage {
            next_token: next.and_then(|hit| token(&hit.sort)),
            logs: hits
                .iter()
                .map(|hit| LogEvent::new(hit.record.at, hit.record.message.as_bytes()))
                .collect(),
            external_url: None,
        })
    }

    /// The number of the last record, which is its time in microseconds.
    pub(super) async fn last(&self, stream: &str) -> Result<i64, LogError> {
        let hits = self.search(stream, &LogQuery::LAST).await?;
        let last = hits.first().map(|hit| &hit.record);
        Ok(last.map_or(i64::MIN, |it| it.seq.unwrap_or(it.at.as_microsecond())))
    }
}

/// Milliseconds and number, or nothing where a record of another writer has none.
fn token(sort: &[Value]) -> Option<String> {
    let number = |place: usize| sort.get(place).and_then(Value::as_i64);
    let seq = number(1).map(|seq| seq.to_string()).unwrap_or_default();
    Some(format!("{}:{seq}", number(0)?))
}

/// What a token stands for.
pub(super) fn sort_values(token: &str) -> Result<Value, LogError> {
    let bad = || LogError::ForeignToken(token.chars().take(100).collect());
    let (time, seq) = token.split_once(':').ok_or_else(bad)?;
    let time: i64 = time.parse().map_err(|_| bad())?;
    let seq = if seq.is_empty() {
        Value::Null
    } else {
        seq.parse::<i64>().map_err(|_| bad())?.into()
    };
    Ok(json!([time, seq]))
}

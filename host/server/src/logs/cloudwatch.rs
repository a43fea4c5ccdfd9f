//! Logs in CloudWatch: one group, a stream for each log, named `<project>/<run>/<submission>/job`.
//!
//! Times are of milliseconds there. Limits are from "PutLogEvents" and "CloudWatch Logs quotas" of the API reference.

use bytes::Bytes;
use dstack_api::logs::LogEvent;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::pieces::pieces;
use super::{Answer, Entries, LogEntry, LogError, LogKey, LogPage, LogQuery, LogStore, Reach};
use crate::outside::OutsideError;
use crate::outside::aws::{Aws, encoded, header, tag};
use crate::outside::http::Http;
use crate::settings::AwsAccess;

const NAME: &str = "CloudWatch Logs";
/// Events of one call.
const MOST_EVENTS: usize = 10_000;
/// Bytes of one call; each event counts with its text and [`OVERHEAD`].
const MOST_BYTES: usize = 1_048_576;
const OVERHEAD: usize = 26;
/// Bytes of one event, with the overhead.
const LONGEST: usize = 262_144;
/// Milliseconds that the events of one call may lie apart.
const SPAN: i64 = 24 * 3600 * 1000;
/// Older and later events are refused; ten minutes less, in case that clocks differ.
const OLDEST: i64 = 14 * SPAN - 600_000;
const LATEST: i64 = 2 * 3600 * 1000 - 600_000;
/// A page may be empty though more follow.
const EMPTY_PAGES: usize = 10;
/// Events asked for at once where their number matters.
const OF_ONE_MOMENT: usize = 1000;

/// The store of logs.
#[derive(Debug)]
pub(super) struct CloudWatchLogs {
    aws: Aws,
    group: String,
}

/// An event as it is sent and received.
#[derive(Debug, PartialEq, Eq, serde::Serialize, Deserialize)]
struct Event {
    timestamp: i64,
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Events {
    events: Vec<Event>,
    next_forward_token: Option<String>,
    next_backward_token: Option<String>,
}

#[derive(Default, Deserialize)]
struct Refusal {
    #[serde(default, rename = "__type")]
    kind: String,
    #[serde(default, alias = "Message")]
    message: String,
}

impl CloudWatchLogs {
    /// In a region, which must be named somewhere.
    pub(super) fn new(
        http: Http,
        access: &AwsAccess,
        group: &str,
        region: Option<&str>,
    ) -> Result<Self, LogError> {
        let endpoint = access.endpoints.logs.as_deref();
        let aws = Aws::new(http, access, "logs", region, endpoint);
        Ok(Self {
            aws: aws.map_err(LogError::outside(NAME))?,
            group: group.to_owned(),
        })
    }

    /// Looks whether the group is there and lets us in.
    pub(super) async fn check_group(&self) -> Result<(), LogError> {
        let asked = json!({"logGroupName": self.group, "limit": 1});
        match self.call("DescribeLogStreams", &asked).await {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error) => Err(LogError::Outside {
                store: NAME,
                why: format!(
                    "there is no log group {} in {}",
                    self.group,
                    self.aws.region()
                ),
                is_gone: false,
            }),
            Err(error) => Err(LogError::outside(NAME)(error)),
        }
    }

    async fn call(&self, action: &str, body: &Value) -> Result<Bytes, OutsideError> {
        let body = Bytes::from(body.to_string());
        let mut request = self.aws.request("POST", "/", body)?;
        let headers = request.headers_mut();
        let target = format!("Logs_20140328.{action}");
        headers.insert("x-amz-target", header(&target)?);
        let kind = "application/x-amz-json-1.1";
        headers.insert("content-type", header(kind)?);
        let reply = self.aws.send(request).await?;
        if reply.status.is_success() {
            return Ok(reply.body);
        }
        let refusal: Refusal = serde_json::from_slice(&reply.body).unwrap_or_else(|_| Refusal {
            // Who checks logins may speak another way than the service behind.
            kind: tag(&reply.body, "Code").unwrap_or_default(),
            message: tag(&reply.body, "Message").unwrap_or_else(|| reply.text()),
        });
        let code = refusal.kind.rsplit('#').next().unwrap_or_default();
        Err(match reply.refused(code, &refusal.message) {
            // It is told with status 400, but says the same as 429.
            OutsideError::Refused { at, code, .. } if code == "ThrottlingException" => {
                OutsideError::Unreachable { at, why: code }
            }
            other => other,
        })
    }

    async fn put(&self, stream: &str, events: &[Event]) -> Result<(), LogError> {
        let body =
            json!({"logGroupName": self.group, "logStreamName": stream, "logEvents": events});
        let mut sent = self.call("PutLogEvents", &body).await;
        if sent.as_ref().is_err_and(is_missing) {
            self.make(stream).await?;
            sent = self.call("PutLogEvents", &body).await;
        }
        let answer = sent.map_err(LogError::outside(NAME))?;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        if let Some(rejected) = answer
            .get("rejectedLogEventsInfo")
            .filter(|it| !it.is_null())
        {
            tracing::warn!(stream, %rejected, "CloudWatch Logs has left out entries");
        }
        Ok(())
    }

    async fn make(&self, stream: &str) -> Result<(), LogError> {
        let body = json!({"logGroupName": self.group, "logStreamName": stream});
        match self.call("CreateLogStream", &body).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == "ResourceAlreadyExistsException" => Ok(()),
            Err(error) if is_missing(&error) => self.check_group().await,
            Err(error) => Err(LogError::outside(NAME)(error)),
        }
    }

    async fn append(&self, key: &LogKey, entries: Entries) -> Result<(), LogError> {
        let stream = key.joined("/");
        let now = Timestamp::now().as_millisecond();
        let (mut batch, mut left_out) = (Batch::default(), 0_usize);
        for event in entries.flat_map(events_of) {
            if now - event.timestamp > OLDEST || event.timestamp - now > LATEST {
                left_out += 1;
                continue;
            }
            if !batch.has_room(&event) {
                self.put(&stream, batch.take()).await?;
                batch = Batch::default();
            }
            batch.add(event);
        }
        if left_out > 0 {
            tracing::warn!(
                stream,
                left_out,
                "entries older than 14 days or later than 2 hours from now are not taken by CloudWatch Logs"
            );
        }
        if batch.events.is_empty() {
            return Ok(());
        }
        self.put(&stream, batch.take()).await
    }

    async fn poll(&self, key: &LogKey, query: LogQuery) -> Result<LogPage, LogError> {
        let stream = key.joined("/");
        let mut page = LogPage {
            external_url: Some(self.url(&stream)),
            ..LogPage::default()
        };
        if query.limit == 0 {
            return Ok(page);
        }
        let mut body = json!({
            "logGroupName": self.group, "logStreamName": stream,
            "limit": query.limit, "startFromHead": !query.descending,
        });
        if let Some(after) = query.after {
            // The first millisecond that is later; events have no parts of one.
            body["startTime"] = (after.as_microsecond().div_euclid(1000) + 1).into();
        }
        if let Some(before) = query.before {
            // The end itself is left out there.
            body["endTime"] = (before.as_microsecond() + 999).div_euclid(1000).into();
        }
        let mut token = query.token.clone();
        for _ in 0..EMPTY_PAGES {
            if let Some(token) = &token {
                body["nextToken"] = token.as_str().into();
            }
            let Some(mut found) = self.events(&body, &query).await? else {
                return Ok(page);
            };
            // Not all that speak like CloudWatch leave out the end itself.
            found.events.retain(|event| is_wanted(event, &query));
            let next = if query.descending {
                found.next_backward_token
            } else {
                found.next_forward_token
            };
            if !found.events.is_empty() {
                page.logs = found.events.iter().map(shown).collect();
                if query.descending {
                    page.logs.reverse();
                }
                page.next_token = next;
                return Ok(page);
            }
            // At the end the same token comes again.
            if next.is_none() || next == token {
                return Ok(page);
            }
            token = next;
        }
        // Backwards there is more for certain; forwards a reader would ask for ever.
        page.next_token = token.filter(|_| query.descending);
        Ok(page)
    }

    /// One page as it is there; none if there is no such stream.
    async fn events(&self, body: &Value, query: &LogQuery) -> Result<Option<Events>, LogError> {
        match self.call("GetLogEvents", body).await {
            Ok(answer) => {
                serde_json::from_slice(&answer)
                    .map(Some)
                    .map_err(|error| LogError::Outside {
                        store: NAME,
                        why: format!("an answer that is not understood: {error}"),
                        is_gone: false,
                    })
            }
            Err(error) if is_missing(&error) => self.check_group().await.map(|()| None),
            Err(error) if error.code() == "InvalidParameterException" && query.token.is_some() => {
                Err(LogError::ForeignToken(
                    query.token.clone().unwrap_or_default(),
                ))
            }
            Err(error) => Err(LogError::outside(NAME)(error)),
        }
    }

    async fn stored_until(&self, key: &LogKey) -> Result<i64, LogError> {
        let last = self.poll(key, LogQuery::LAST).await?;
        let Some(at) = last.logs.first().map(|event| event.timestamp) else {
            return Ok(i64::MIN);
        };
        // Entries of one millisecond have their places in it as microseconds.
        let before = Timestamp::from_microsecond(at.as_microsecond() - 1).unwrap_or(at);
        let query = LogQuery {
            after: Some(before),
            descending: false,
            limit: OF_ONE_MOMENT,
            ..LogQuery::LAST
        };
        let count = self.poll(key, query).await?.logs.len().max(1);
        let place = i64::try_from(count - 1).unwrap_or(999).min(999);
        Ok(at.as_microsecond() + place)
    }

    /// Where a person sees the stream.
    fn url(&self, stream: &str) -> String {
        format!(
            "https://console.aws.amazon.com/cloudwatch/home?region={}#logsV2:log-groups/log-group/{}/log-events/{}",
            self.aws.region(),
            encoded(&self.group),
            encoded(stream)
        )
    }
}

impl LogStore for CloudWatchLogs {
    fn append<'a>(&'a self, key: &'a LogKey, entries: Entries) -> Answer<'a, ()> {
        Box::pin(self.append(key, entries))
    }

    fn poll<'a>(&'a self, key: &'a LogKey, query: LogQuery) -> Answer<'a, LogPage> {
        Box::pin(self.poll(key, query))
    }

    fn stored_until<'a>(&'a self, key: &'a LogKey) -> Answer<'a, i64> {
        Box::pin(self.stored_until(key))
    }

    fn check_token(&self, query: &LogQuery) -> Result<(), LogError> {
        query.check_opaque()
    }

    fn reach(&self) -> Reach {
        Reach::Outside
    }
}

fn is_missing(error: &OutsideError) -> bool {
    error.code() == "ResourceNotFoundException"
}

fn is_wanted(event: &Event, query: &LogQuery) -> bool {
    let at = event.timestamp.saturating_mul(1000);
    query.after.is_none_or(|after| at > after.as_microsecond())
        && query
            .before
            .is_none_or(|before| at < before.as_microsecond())
}

fn shown(event: &Event) -> LogEvent {
    let at = Timestamp::from_millisecond(event.timestamp).unwrap_or(Timestamp::UNIX_EPOCH);
    LogEvent::new(at, event.message.as_bytes())
}

fn events_of(entry: LogEntry) -> Vec<Event> {
    let timestamp = entry.at.as_millisecond();
    let all = pieces(&entry.message, LONGEST - OVERHEAD).into_iter();
    all.map(|message| Event { timestamp, message }).collect()
}

/// What one call takes.
#[derive(Default)]
struct Batch {
    events: Vec<Event>,
    bytes: usize,
    first: i64,
    last: i64,
}

impl Batch {
    fn has_room(&self, event: &Event) -> bool {
        let first = self.first.min(event.timestamp);
        let last = self.last.max(event.timestamp);
        self.events.is_empty()
            || self.events.len() < MOST_EVENTS
                && self.bytes + event.message.len() + OVERHEAD <= MOST_BYTES
                && last - first <= SPAN
    }

    fn add(&mut self, event: Event) {
        if self.events.is_empty() {
            (self.first, self.last) = (event.timestamp, event.timestamp);
        }
        self.first = self.first.min(event.timestamp);
        self.last = self.last.max(event.timestamp);
        self.bytes += event.message.len() + OVERHEAD;
        self.events.push(event);
    }

    /// The events by time; those of one time stay as they came.
    fn take(&mut self) -> &[Event] {
        self.events.sort_by_key(|event| event.timestamp);
        &self.events
    }
}

#[cfg(test)]
mod tests;

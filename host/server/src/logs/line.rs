//! One line of a log file: the time, and the output as text, or in base64 where it is no text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use dstack_api::logs::LogEvent;
use serde::{Deserialize, Serialize};

use super::LogEntry;

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    timestamp: std::borrow::Cow<'a, str>,
    log_source: std::borrow::Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    message: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    message_base64: Option<std::borrow::Cow<'a, str>>,
}

/// Appends an entry with its line end.
pub(super) fn write(entry: &LogEntry, out: &mut Vec<u8>) {
    let text = std::str::from_utf8(&entry.message).ok();
    let line = Line {
        timestamp: dstack_api::time::format(entry.at).into(),
        log_source: "stdout".into(),
        message: text.map(Into::into),
        message_base64: text.is_none().then(|| BASE64.encode(&entry.message).into()),
    };
    // Writing strings into memory has no way to fail.
    if serde_json::to_writer(&mut *out, &line).is_ok() {
        out.push(b'\n');
    }
}

/// Reads a line; `None` for one that was cut by a crash.
pub(super) fn read(line: &[u8]) -> Option<LogEvent> {
    let line: Line<'_> = serde_json::from_slice(line).ok()?;
    let at = dstack_api::time::parse(&line.timestamp).ok()?;
    match (line.message, line.message_base64) {
        (Some(text), _) => Some(LogEvent::new(at, text.as_bytes())),
        (None, Some(base64)) => Some(LogEvent::new(at, &BASE64.decode(base64.as_bytes()).ok()?)),
        (None, None) => None,
    }
}

/// Only the time of a line, for searching.
pub(super) fn time(line: &[u8]) -> Option<jiff::Timestamp> {
    #[derive(Deserialize)]
    struct Time<'a> {
        #[serde(borrow)]
        timestamp: std::borrow::Cow<'a, str>,
    }
    let time: Time<'_> = serde_json::from_slice(line).ok()?;
    dstack_api::time::parse(&time.timestamp).ok()
}

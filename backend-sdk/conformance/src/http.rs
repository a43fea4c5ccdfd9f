//! The HTTP service: every request goes to the fake provider (or a recording), through the faults that a check asked for.

mod client;
mod fault;
mod record;
mod stream;

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dstack_backend_types::services as wire;
use dstack_backend_types::{BackendError, ErrorKind};

pub(crate) use client::Client;
pub(crate) use fault::{Fault, Faults, HANG_LIMIT, Which};
pub(crate) use record::{Recording, redacted};
pub(crate) use stream::Streams;

use crate::host::{Call, Event};
use crate::provider::Resource;

/// The header with the host that a backend asked for: the suite sends every request to the fake provider.
pub const ASKED_HOST: &str = "x-conformance-host";
/// The longest reply in one message if the request does not say.
const USUAL_REPLY_BYTES: u64 = 16 << 20;
/// The longest that it may say.
const MAX_REPLY_BYTES: u64 = 64 << 20;
/// A redirect more often than this is none.
const MAX_REDIRECTS: u32 = 10;

/// Where requests go.
pub(crate) enum Way {
    /// Nowhere.
    None,
    /// To a fake provider at this address, whatever host was asked for.
    Provider(String),
    /// To where the backend asks. Only if somebody said so.
    Live,
    /// Nowhere: the answers of a recording.
    Replay(Mutex<Recording>),
}

/// A request with what came back.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) method: String,
    pub(crate) url: String,
    pub(crate) body: Vec<u8>,
    /// Status and body, or why there was no reply.
    pub(crate) reply: Result<(u16, Vec<u8>), String>,
    /// Whether a fault stood in for the provider, or changed its answer.
    pub(crate) is_fault: bool,
    /// What the request added at the provider, where the check looks at it.
    pub(crate) added: Vec<Resource>,
}

impl Exchange {
    /// Whether it may change something.
    pub(crate) fn is_mutating(&self) -> bool {
        !matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS")
    }

    /// Method and path, and what came back: a line of a report.
    pub(crate) fn line(&self) -> String {
        let path = self.url.split('?').next().unwrap_or_default();
        match &self.reply {
            Ok((status, _)) => format!("{} {path} -> {status}", self.method),
            Err(why) => format!("{} {path} -> {why}", self.method),
        }
    }
}

/// A complete reply.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

fn bad(error: impl std::fmt::Display) -> BackendError {
    BackendError::invalid(format!(
        "a request to the host that is not understood: {error}"
    ))
}

/// Answers one message of service 1.
pub(crate) fn answer(call: &Call, message: &[u8]) -> Result<Vec<u8>, BackendError> {
    if let Ok((op, bytes)) = wire::unframe::<wire::HttpStreamOp>(message) {
        return call.session.streams.answer(call, &op, bytes);
    }
    let (head, body): (wire::HttpRequest, _) = wire::unframe(message).map_err(bad)?;
    if head.is_body_streamed {
        return call.session.streams.open_body(call, head);
    }
    let answer = exchange(call, &head, body)?;
    if head.is_reply_streamed {
        return call.session.streams.open_reply(call, answer);
    }
    let limit = reply_limit(head.max_reply_bytes);
    if u64::try_from(answer.body.len()).unwrap_or(u64::MAX) > limit {
        return Err(BackendError::new(
            ErrorKind::Internal,
            format!(
                "the reply with status {} has more than {limit} bytes; read it in chunks",
                answer.status
            ),
        ));
    }
    framed(&answer)
}

/// The longest reply in one message, as hosts keep it.
fn reply_limit(asked: Option<u64>) -> u64 {
    asked.unwrap_or(USUAL_REPLY_BYTES).min(MAX_REPLY_BYTES)
}

pub(crate) fn framed(answer: &Answer) -> Result<Vec<u8>, BackendError> {
    let head = wire::HttpReply {
        status: answer.status,
        headers: answer.headers.clone(),
        ..wire::HttpReply::default()
    };
    wire::frame(&head, &answer.body).map_err(bad)
}

/// One request as the backend sees it: redirects followed, and sent again after a lost connection if it said that it may be.
pub(crate) fn exchange(
    call: &Call,
    head: &wire::HttpRequest,
    body: &[u8],
) -> Result<Answer, BackendError> {
    if head.unix_socket.is_some() {
        return Err(BackendError::unsupported(
            "the suite does not speak to Unix sockets",
        ));
    }
    let mut head = head.clone();
    let mut left = head.redirects.min(MAX_REDIRECTS);
    loop {
        let mut answer = attempt(call, &head, body);
        let is_lost = |answer: &Result<Answer, BackendError>| matches!(answer, Err(error) if error.kind == ErrorKind::Transport);
        if is_lost(&answer) && head.is_idempotent {
            answer = attempt(call, &head, body);
        }
        let answer = answer?;
        let next = answer
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("location"))
            .filter(|_| (300..400).contains(&answer.status) && left > 0);
        let Some((_, target)) = next else {
            return Ok(answer);
        };
        left -= 1;
        head.url = client::resolve(&head.url, target);
        if answer.status == 303 {
            "GET".clone_into(&mut head.method);
        }
    }
}

/// One way there and back.
fn attempt(call: &Call, head: &wire::HttpRequest, body: &[u8]) -> Result<Answer, BackendError> {
    call.check()?;
    let session = &call.session;
    let fault = session.faults.next(&head.method);
    let before = stands(call, head);
    let outcome = match &fault {
        None => send(call, head, body),
        Some(fault) => fault.apply(call, head, || send(call, head, body)),
    };
    let added = match (before, stands(call, head)) {
        (Some(before), Some(after)) => after
            .into_iter()
            .filter(|resource| !before.contains(resource))
            .collect(),
        _ => Vec::new(),
    };
    session.note(Event::Http(Exchange {
        method: head.method.clone(),
        url: head.url.clone(),
        body: body.to_vec(),
        reply: match &outcome {
            Ok(answer) => Ok((answer.status, answer.body.clone())),
            Err(error) => Err(error.message.clone()),
        },
        is_fault: fault.is_some(),
        added,
    }));
    // What arrives after the cancel is of no use.
    call.check()?;
    outcome
}

/// The inventory around a request that may change it, if the check looks at it.
fn stands(call: &Call, head: &wire::HttpRequest) -> Option<Vec<Resource>> {
    let is_read = matches!(head.method.as_str(), "GET" | "HEAD" | "OPTIONS");
    if is_read || !call.session.watches.load(Ordering::SeqCst) {
        return None;
    }
    match &call.session.settings.way {
        Way::Provider(base) => Client::shared().inventory(base),
        _ => None,
    }
}

fn send(call: &Call, head: &wire::HttpRequest, body: &[u8]) -> Result<Answer, BackendError> {
    let limit =
        Duration::from_millis(head.timeout_ms.unwrap_or(30_000)).min(Duration::from_secs(60));
    match &call.session.settings.way {
        Way::None => Err(BackendError::new(
            ErrorKind::Transport,
            "the suite has no provider to send this to: use `.provider(…)` or --provider URL",
        )),
        Way::Provider(base) => {
            let url = client::redirected(base, &head.url)?;
            let asked = client::host_of(&head.url).to_owned();
            let mut headers = head.headers.clone();
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("host"));
            headers.push((ASKED_HOST.to_owned(), asked));
            Client::shared().send(&head.method, &url, &headers, body, limit)
        }
        Way::Live => Client::shared().send(&head.method, &head.url, &head.headers, body, limit),
        Way::Replay(recording) => {
            crate::host::lock(recording).answer(&head.method, &head.url, body)
        }
    }
}

/// Where exchanges are written to.
pub(crate) fn write_recording(
    path: &std::path::Path,
    exchanges: &[Exchange],
    secrets: &[String],
) -> std::io::Result<()> {
    record::write(path, exchanges, secrets)
}

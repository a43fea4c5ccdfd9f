//! What goes wrong on purpose.

use std::sync::Mutex;
use std::time::Duration;

use dstack_backend_types::services::HttpRequest;
use dstack_backend_types::{BackendError, ErrorKind};

use super::Answer;
use crate::host::{Call, lock};

/// How long a reply that never comes is waited for, for real, before the suite gives up.
pub(crate) const HANG_LIMIT: Duration = Duration::from_secs(20);
/// The size of a padded reply.
const PADDING_BYTES: usize = 8 << 20;

/// One thing that goes wrong.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The answer takes so long on the virtual clock.
    Slow(Duration),
    /// There is no answer until the call is told to end.
    Hang,
    /// The provider answers so.
    Status(u16, Option<u32>),
    /// The provider refuses with this status and quotes the whole request.
    Echo(u16),
    /// The connection is cut before the request arrives.
    Cut,
    /// The provider does it, and its answer is lost.
    LostAnswer,
    /// The answer is a page of a proxy, with status 200.
    Garbage,
    /// The answer ends in the middle.
    Truncated,
    /// The answer is large: a JSON document may have any amount of white space around it.
    Padded,
}

impl Fault {
    pub(super) fn apply(
        &self,
        call: &Call,
        head: &HttpRequest,
        send: impl FnOnce() -> Result<Answer, BackendError>,
    ) -> Result<Answer, BackendError> {
        let lost = |what: &str| Err(BackendError::new(ErrorKind::Transport, what));
        match self {
            Self::Slow(time) => {
                let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                if head.timeout_ms.is_some_and(|limit| limit < ms) {
                    return Err(BackendError::new(
                        ErrorKind::Timeout,
                        "the provider does not answer in time",
                    ));
                }
                call.wait_virtually(ms)?;
                send()
            }
            Self::Hang => {
                call.wait_for_cancel(HANG_LIMIT)?;
                lost("the provider never answered")
            }
            Self::Status(status, retry_after_s) => Ok(Answer {
                status: *status,
                headers: retry_after_s
                    .map(|seconds| ("retry-after".to_owned(), seconds.to_string()))
                    .into_iter()
                    .chain([("content-type".to_owned(), "application/json".to_owned())])
                    .collect(),
                body:
                    br#"{"error":{"code":"injected","message":"a fault of the conformance suite"}}"#
                        .to_vec(),
            }),
            Self::Echo(status) => {
                let headers: Vec<String> = head
                    .headers
                    .iter()
                    .map(|(name, value)| format!("{name}: {value}"))
                    .collect();
                let text = format!("refused: {} with {}", head.url, headers.join(", "));
                let body = serde_json::json!({"error": {"code": "injected", "message": text}, "message": text});
                Ok(Answer {
                    status: *status,
                    headers: vec![("content-type".to_owned(), "application/json".to_owned())],
                    body: body.to_string().into_bytes(),
                })
            }
            Self::Cut => lost("the connection was cut"),
            Self::LostAnswer => {
                send()?;
                lost("the connection was lost before the reply")
            }
            Self::Garbage => Ok(Answer {
                status: 200,
                headers: vec![("content-type".to_owned(), "text/html".to_owned())],
                body: b"<html><body>\xff\xfe proxy login</body></html>".to_vec(),
            }),
            Self::Truncated => {
                let mut answer = send()?;
                answer.body.truncate(answer.body.len() / 2);
                Ok(answer)
            }
            Self::Padded => {
                let mut answer = send()?;
                if !answer.body.is_empty() {
                    answer.body.resize(answer.body.len() + PADDING_BYTES, b' ');
                }
                Ok(answer)
            }
        }
    }
}

/// Which requests a fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Any.
    All,
    /// Those that may change something.
    Mutating,
    /// Those that only read.
    Reading,
}

#[derive(Debug)]
struct Rule {
    fault: Fault,
    which: Which,
    skip: usize,
    times: usize,
}

/// The faults of a check; empty at its beginning.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rule: Mutex<Option<Rule>>,
    applied: Mutex<usize>,
}

impl Faults {
    /// From now on, after `skip` requests of this sort, the next `times` go wrong.
    pub(crate) fn set(&self, fault: Fault, which: Which, skip: usize, times: usize) {
        *lock(&self.rule) = Some(Rule {
            fault,
            which,
            skip,
            times,
        });
        *lock(&self.applied) = 0;
    }

    /// All requests go wrong.
    pub(crate) fn all(&self, fault: Fault) {
        self.set(fault, Which::All, 0, usize::MAX);
    }

    /// Nothing goes wrong any more. How often it did.
    pub(crate) fn clear(&self) -> usize {
        *lock(&self.rule) = None;
        std::mem::take(&mut *lock(&self.applied))
    }

    pub(super) fn next(&self, method: &str) -> Option<Fault> {
        self.next_of(method, |_| true)
    }

    /// The same where not every fault can happen.
    pub(crate) fn next_of(&self, method: &str, can_be: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let is_read = matches!(method, "GET" | "HEAD" | "OPTIONS");
        let mut rule = lock(&self.rule);
        let rule = rule.as_mut().filter(|rule| can_be(&rule.fault))?;
        let fits = match rule.which {
            Which::All => true,
            Which::Mutating => !is_read,
            Which::Reading => is_read,
        };
        if !fits {
            return None;
        }
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        rule.times = rule.times.checked_sub(1)?;
        *lock(&self.applied) += 1;
        Some(rule.fault.clone())
    }
}

//! Exchanges written down, and answers from what was written down.
//!
//! A line is a JSON object: `method`, `url`, `headers`, `body` of the request, and `reply` or `error`. A body that is not UTF-8
//! stands in `body_base64`. Secrets are hidden: values of headers, parameters and JSON fields with secret names, and wherever else
//! those of the request occur.

use super::{
    HttpTape,
    redact::{HIDDEN, hide_fields, is_secret, secret_fields, secret_parameters, url_for_tape},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use dstack_backend_types::{
    BackendError, ErrorKind,
    services::{HttpReply, HttpRequest},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    path::PathBuf,
    sync::{Mutex, OnceLock, PoisonError},
};
use tokio::io::AsyncWriteExt;

/// Shorter values of headers are no credentials, and would hide half of a body.
const SHORTEST_SECRET: usize = 6;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Body {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    body: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    body_base64: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Reply {
    status: u16,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    trailers: Vec<(String, String)>,
    #[serde(flatten)]
    body: Body,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(flatten)]
    body: Body,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply: Option<Reply>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<BackendError>,
}

pub(super) enum Tape {
    Record(Record),
    Replay(Replay),
}

impl Tape {
    pub(super) fn new(tape: HttpTape) -> Self {
        match tape {
            HttpTape::Record(path) => Self::Record(Record {
                path,
                writing: tokio::sync::Mutex::new(()),
            }),
            HttpTape::Replay(path) => Self::Replay(Replay {
                path,
                lines: OnceLock::new(),
                used: Mutex::default(),
            }),
        }
    }
}

/// Hides the secrets of one exchange: what the request calls one, wherever it occurs.
struct Hider(Vec<String>);

impl Hider {
    fn of(request: &HttpRequest, body: &[u8]) -> Self {
        let headers = request.headers.iter().filter(|(name, _)| is_secret(name));
        // `Bearer x` is hidden as a whole in its header; elsewhere `x` alone may occur.
        let mut secrets: Vec<String> = headers
            .flat_map(|(_, value)| value.split([' ', ';', '=', ',']))
            .map(str::to_owned)
            .collect();
        secrets.extend(secret_parameters(&request.url));
        if let Ok(body) = serde_json::from_slice::<Value>(body) {
            secret_fields(&body, &mut secrets);
        }
        secrets
            .retain(|word| word.len() >= SHORTEST_SECRET && !word.eq_ignore_ascii_case("bearer"));
        // A longer one may hold a shorter one.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets)
    }

    fn text(&self, text: &str) -> String {
        self.0
            .iter()
            .fold(text.to_owned(), |text, secret| text.replace(secret, HIDDEN))
    }

    fn pairs(&self, pairs: &[(String, String)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(name, value)| {
                let value = if is_secret(name) {
                    HIDDEN.to_owned()
                } else {
                    self.text(value)
                };
                (name.to_ascii_lowercase(), value)
            })
            .collect()
    }

    fn body(&self, bytes: &[u8]) -> Body {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Body {
                body: String::new(),
                body_base64: STANDARD.encode(bytes),
            };
        };
        let text = match serde_json::from_str::<Value>(text) {
            Ok(mut value) if value.is_object() || value.is_array() => {
                let before = value.clone();
                hide_fields(&mut value);
                if value == before {
                    text.to_owned()
                } else {
                    value.to_string()
                }
            }
            _ => text.to_owned(),
        };
        Body {
            body: self.text(&text),
            body_base64: String::new(),
        }
    }

    fn line(&self, request: &HttpRequest, body: &[u8]) -> Line {
        Line {
            method: request.method.clone(),
            url: self.text(&url_for_tape(&request.url)),
            headers: self.pairs(&request.headers),
            body: self.body(body),
            reply: None,
            error: None,
        }
    }
}

pub(super) struct Record {
    path: PathBuf,
    writing: tokio::sync::Mutex<()>,
}

impl Record {
    /// Appends an exchange. A tape that cannot be written is no reason to fail the request.
    pub(super) async fn note(
        &self,
        request: &HttpRequest,
        body: &[u8],
        answer: &Result<(HttpReply, Bytes), BackendError>,
    ) {
        let hider = Hider::of(request, body);
        let mut line = hider.line(request, body);
        match answer {
            Ok((head, body)) => {
                line.reply = Some(Reply {
                    status: head.status,
                    headers: hider.pairs(&head.headers),
                    trailers: hider.pairs(&head.trailers),
                    body: hider.body(body),
                });
            }
            Err(error) => line.error = Some(error.clone()),
        }
        let written = async {
            let mut text = serde_json::to_vec(&line)?;
            text.push(b'\n');
            let _one_at_a_time = self.writing.lock().await;
            let mut file = tokio::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&self.path)
                .await?;
            file.write_all(&text).await?;
            file.flush().await
        };
        if let Err(error) = written.await {
            tracing::error!(path = %self.path.display(), %error, "an exchange was not recorded");
        }
    }
}

pub(super) struct Replay {
    path: PathBuf,
    lines: OnceLock<Result<Vec<Line>, String>>,
    /// Lines that were answered with.
    used: Mutex<Vec<bool>>,
}

impl Replay {
    fn lines(&self) -> Result<&[Line], BackendError> {
        let read = self.lines.get_or_init(|| {
            let text = std::fs::read_to_string(&self.path).map_err(|e| e.to_string())?;
            let lines = text.lines().enumerate();
            lines
                .filter(|(_, line)| !line.trim().is_empty())
                .map(|(number, line)| {
                    serde_json::from_str(line).map_err(|e| format!("line {}: {e}", number + 1))
                })
                .collect()
        });
        read.as_deref().map_err(|reason| {
            BackendError::invalid(format!("the recording {}: {reason}", self.path.display()))
        })
    }

    /// What was recorded: the first answer not yet given to the same request, else to the same address, else the last one given.
    pub(super) fn answer(
        &self,
        request: &HttpRequest,
        body: &[u8],
    ) -> Result<(HttpReply, Bytes), BackendError> {
        let asked = Hider::of(request, body).line(request, body);
        let lines = self.lines()?;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.resize(lines.len(), false);
        let same: Vec<usize> = (0..lines.len())
            .filter(|at| lines[*at].method == asked.method && lines[*at].url == asked.url)
            .collect();
        let is_whole = |at: &&usize| lines[**at].body == asked.body;
        let is_new = |at: &&usize| !used[**at];
        let found = same
            .iter()
            .find(|at| is_new(at) && is_whole(at))
            .or_else(|| same.iter().rfind(is_whole))
            .or_else(|| same.iter().find(is_new))
            .or_else(|| same.last());
        let Some(found) = found.copied() else {
            return Err(BackendError::new(
                ErrorKind::Transport,
                format!(
                    "the recording {} has no answer to {} {}",
                    self.path.display(),
                    asked.method,
                    asked.url
                ),
            ));
        };
        used[found] = true;
        let line = &lines[found];
        match (&line.reply, &line.error) {
            (Some(reply), _) => played(reply),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Err(BackendError::invalid(format!(
                "the recording {} has neither reply nor error to {} {}",
                self.path.display(),
                asked.method,
                asked.url
            ))),
        }
    }
}

fn played(reply: &Reply) -> Result<(HttpReply, Bytes), BackendError> {
    let body = if reply.body.body_base64.is_empty() {
        reply.body.body.clone().into_bytes()
    } else {
        STANDARD
            .decode(&reply.body.body_base64)
            .map_err(|e| BackendError::invalid(format!("a recorded body: {e}")))?
    };
    let head = HttpReply {
        status: reply.status,
        headers: reply.headers.clone(),
        trailers: reply.trailers.clone(),
        stream: None,
    };
    Ok((head, body.into()))
}

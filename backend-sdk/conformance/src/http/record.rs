//! Recordings: one JSON line an exchange, secrets taken out.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use base64::Engine as _;
use dstack_backend_types::{BackendError, ErrorKind};
use serde::{Deserialize, Serialize};

use super::{Answer, Exchange};

const BASE64: base64::engine::GeneralPurpose = base64::engine::general_purpose::STANDARD;

/// One line.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    method: String,
    url: String,
    #[serde(default)]
    request: String,
    status: u16,
    #[serde(default)]
    reply: String,
    /// The reply if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply_base64: Option<String>,
    #[serde(skip)]
    is_used: bool,
}

/// Puts three stars in the place of every secret.
pub(crate) fn redacted(text: &str, secrets: &[String]) -> String {
    let mut text = text.to_owned();
    for secret in secrets {
        text = text.replace(secret.as_str(), "***");
    }
    text
}

/// Writes the exchanges that had a reply. Headers are left out: they carry credentials, and no reply is chosen by them.
pub(super) fn write(path: &Path, exchanges: &[Exchange], secrets: &[String]) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?;
    let is_kept = |exchange: &&Exchange| !exchange.is_fault && exchange.method != crate::host::SSH;
    for exchange in exchanges.iter().filter(is_kept) {
        let Ok((status, body)) = &exchange.reply else {
            continue;
        };
        let text = String::from_utf8(body.clone());
        let line = Line {
            method: exchange.method.clone(),
            url: redacted(&exchange.url, secrets),
            request: redacted(&String::from_utf8_lossy(&exchange.body), secrets),
            status: *status,
            reply_base64: text.is_err().then(|| BASE64.encode(body)),
            reply: text
                .map(|text| redacted(&text, secrets))
                .unwrap_or_default(),
            is_used: false,
        };
        writeln!(file, "{}", serde_json::to_string(&line)?)?;
    }
    Ok(())
}

/// A recording being played.
#[derive(Debug)]
pub(crate) struct Recording {
    lines: Vec<Line>,
}

impl Recording {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let file = BufReader::new(std::fs::File::open(path)?);
        let mut lines = Vec::new();
        for (number, text) in file.lines().enumerate() {
            let text = text?;
            if text.trim().is_empty() {
                continue;
            }
            let line = serde_json::from_str(&text).map_err(|error| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("line {}: {error}", number + 1),
                )
            })?;
            lines.push(line);
        }
        Ok(Self { lines })
    }

    /// From the beginning again.
    pub(crate) fn rewind(&mut self) {
        for line in &mut self.lines {
            line.is_used = false;
        }
    }

    /// The first reply to such a request that was not given yet; reads get the last one again when all were.
    pub(super) fn answer(
        &mut self,
        method: &str,
        url: &str,
        _body: &[u8],
    ) -> Result<Answer, BackendError> {
        let path = |url: &str| {
            let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
            rest.find('/')
                .and_then(|at| rest.get(at..))
                .unwrap_or("/")
                .to_owned()
        };
        let asked = path(url);
        let fits = |line: &Line| line.method == method && path(&line.url) == asked;
        let at = self
            .lines
            .iter()
            .position(|line| !line.is_used && fits(line))
            .or_else(|| self.lines.iter().rposition(fits));
        let line = at.and_then(|at| self.lines.get_mut(at)).ok_or_else(|| {
            BackendError::new(
                ErrorKind::Transport,
                format!(
                    "the recording has no reply to {method} {}",
                    asked.split('?').next().unwrap_or_default()
                ),
            )
        })?;
        line.is_used = true;
        let body = match &line.reply_base64 {
            Some(coded) => BASE64.decode(coded).unwrap_or_default(),
            None => line.reply.clone().into_bytes(),
        };
        Ok(Answer {
            status: line.status,
            headers: Vec::new(),
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Recording, write};
    use crate::http::Exchange;

    #[test]
    fn what_was_recorded_is_played_without_its_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cloud.jsonl");
        let exchange = |reply: &str| Exchange {
            method: "GET".to_owned(),
            url: "https://api.example/v1/a?key=hush-hush".to_owned(),
            body: Vec::new(),
            reply: Ok((200, reply.as_bytes().to_vec())),
            is_fault: false,
            added: Vec::new(),
        };
        let secrets = ["hush-hush".to_owned()];
        write(
            &path,
            &[exchange("one"), exchange("two hush-hush")],
            &secrets,
        )
        .unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains("hush"));
        let mut recording = Recording::read(&path).unwrap();
        let mut next = || {
            let answer = recording.answer("GET", "http://other/v1/a?key=***", b"");
            answer.map(|answer| String::from_utf8(answer.body).unwrap())
        };
        assert_eq!(next().unwrap(), "one");
        assert_eq!(next().unwrap(), "two ***");
        assert_eq!(next().unwrap(), "two ***");
        assert!(recording.answer("POST", "http://other/v1/a", b"").is_err());
    }
}

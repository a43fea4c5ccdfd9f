//! What can be asked for.

use dstack_backend_sdk::{
    BackendError, Secret,
    host::{
        self, catalog,
        http::{Request, Response},
        ledger,
        ssh::{Command, Hop},
    },
    types::services::{CatalogQuery, SideResource},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// One step.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Step {
    /// A whole request.
    Http(Http),
    /// A reply in chunks: told is how many bytes came.
    Download {
        /// The request.
        #[serde(flatten)]
        http: Http,
        /// Stops after so many bytes.
        #[serde(default)]
        stop_at: Option<usize>,
    },
    /// A body in chunks.
    Upload {
        /// The request.
        #[serde(flatten)]
        http: Http,
        /// Bytes of one chunk.
        chunk: usize,
        /// How many.
        count: usize,
        /// Leaves the body without its end.
        #[serde(default)]
        is_given_up: bool,
    },
    /// Waits.
    Sleep {
        /// How long.
        ms: u64,
    },
    /// A command over SSH.
    Ssh(Ssh),
    /// An entry of the ledger.
    Declare(SideResource),
    /// Crosses one out.
    Settle(SideResource),
    /// The catalog: told are the names.
    Catalog {
        /// Whose.
        provider: String,
    },
    /// Variables.
    Environment {
        /// Their names.
        names: Vec<String>,
    },
    /// What the host has.
    Describe,
    /// Any bytes to any service.
    Raw {
        /// Its number.
        service: u32,
        /// The bytes, as text.
        text: String,
    },
}

/// A request.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "fields are those of the host service")]
pub struct Http {
    pub method: Option<String>,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
    pub timeout_ms: Option<u64>,
    pub redirects: u32,
    pub is_idempotent: Option<bool>,
    pub ca_pem: Option<String>,
    pub client_pem: Option<String>,
    pub unix_socket: Option<String>,
    pub http2: bool,
    pub trailers: Vec<(String, String)>,
    pub max_reply_bytes: Option<u64>,
}

/// A command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "fields are those of the host service")]
pub struct Ssh {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub key: String,
    pub host_key: Option<String>,
    pub known_as: Option<String>,
    pub command: Option<String>,
    pub stdin: String,
    pub timeout_ms: Option<u64>,
    pub max_output_bytes: Option<u64>,
}

/// Runs the steps; a failed one does not stop the rest.
pub(crate) fn run(steps: &[Step]) -> Vec<Value> {
    steps
        .iter()
        .map(|step| match one(step) {
            Ok(value) => value,
            Err(error) => json!({"error": error}),
        })
        .collect()
}

impl Http {
    fn request(&self) -> Request {
        let mut request = Request::new(self.method.as_deref().unwrap_or("GET"), &self.url);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        for (name, value) in &self.trailers {
            request = request.trailer(name, value);
        }
        if let Some(body) = &self.body {
            request = request.body(body.as_bytes());
        }
        if let Some(ms) = self.timeout_ms {
            request = request.timeout(Duration::from_millis(ms));
        }
        if let Some(is_idempotent) = self.is_idempotent {
            request = request.idempotent(is_idempotent);
        }
        if let Some(pem) = &self.ca_pem {
            request = request.ca_pem(pem);
        }
        if let Some(pem) = &self.client_pem {
            request = request.client_pem(pem);
        }
        if let Some(path) = &self.unix_socket {
            request = request.unix_socket(path);
        }
        if let Some(limit) = self.max_reply_bytes {
            request = request.max_reply_bytes(limit);
        }
        if self.http2 {
            request = request.http2();
        }
        request.redirects(self.redirects)
    }
}

fn told(reply: &Response) -> Value {
    json!({
        "status": reply.status(), "headers": reply.headers(), "trailers": reply.trailers(),
        "body": reply.text(),
    })
}

fn one(step: &Step) -> Result<Value, BackendError> {
    match step {
        Step::Http(http) => Ok(told(&http.request().send()?)),
        Step::Download { http, stop_at } => download(http, *stop_at),
        Step::Upload {
            http,
            chunk,
            count,
            is_given_up,
        } => {
            let mut writer = http.request().open_body()?;
            let bytes = vec![b'x'; *chunk];
            let mut written = 0;
            for _ in 0..*count {
                if !writer.write(&bytes)? {
                    break;
                }
                written += bytes.len();
            }
            if *is_given_up {
                return Ok(json!({"written": written}));
            }
            let reply = writer.finish_with(http.trailers.clone())?;
            Ok(json!({"written": written, "reply": told(&reply)}))
        }
        Step::Sleep { ms } => host::sleep(Duration::from_millis(*ms)).map(|()| Value::Null),
        Step::Ssh(ssh) => command(ssh),
        Step::Declare(resource) => ledger::declare(resource).map(|()| Value::Null),
        Step::Settle(resource) => ledger::settle(resource).map(|()| Value::Null),
        Step::Catalog { provider } => {
            let reply = catalog::query(&CatalogQuery {
                provider: provider.clone(),
                ..CatalogQuery::default()
            })?;
            let names: Vec<String> = reply.items.into_iter().map(|i| i.instance_name).collect();
            Ok(json!(names))
        }
        Step::Environment { names } => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Ok(json!(host::environment(&names)?))
        }
        Step::Describe => Ok(json!(host::describe()?)),
        Step::Raw { service, text } => {
            let reply = host::request(*service, text.as_bytes())?;
            Ok(json!(String::from_utf8_lossy(reply.as_slice())))
        }
    }
}

fn download(http: &Http, stop_at: Option<usize>) -> Result<Value, BackendError> {
    let mut reader = http.request().send_streamed()?;
    let status = reader.response().status();
    let (mut bytes, mut chunks, mut largest) = (0, 0, 0);
    while let Some(chunk) = reader.read()? {
        bytes += chunk.len();
        chunks += 1;
        largest = largest.max(chunk.len());
        if stop_at.is_some_and(|limit| bytes >= limit) {
            break;
        }
    }
    Ok(json!({
        "status": status, "bytes": bytes, "chunks": chunks, "largest": largest,
        "trailers": reader.trailers(),
    }))
}

fn command(ssh: &Ssh) -> Result<Value, BackendError> {
    let mut hop = Hop::new(&ssh.host, &ssh.user)
        .port(ssh.port)
        .key(Secret::new(ssh.key.clone()));
    if let Some(line) = &ssh.host_key {
        hop = hop.host_key(line);
    }
    if let Some(name) = &ssh.known_as {
        hop = hop.known_as(name);
    }
    let mut command = match &ssh.command {
        Some(line) => Command::exec(hop, line).stdin(ssh.stdin.as_bytes()),
        None => Command::shell(hop, ssh.stdin.as_bytes()),
    };
    if let Some(ms) = ssh.timeout_ms {
        command = command.timeout(Duration::from_millis(ms));
    }
    if let Some(limit) = ssh.max_output_bytes {
        command = command.max_output_bytes(limit);
    }
    let output = command.run()?;
    Ok(json!({
        "status": output.status(), "signal": output.signal(), "stdout": output.stdout(),
        "stderr": output.stderr(), "is_truncated": output.is_truncated(),
        "host_key": output.host_key(),
    }))
}

//! The backend against moto, a server that plays AWS: its real answers, and faults where AWS has them.
//!
//! `cargo xtask test` installs it beside what is built; `tests/moto/bed.py` adds what it lacks.

mod extras;
mod machines;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use dstack_backend_sdk::testing::{Host, Reply, Request};
use dstack_backend_sdk::types::services::{DESCRIBE, ENVIRONMENT};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::backend::Aws;

pub(crate) const REGION: &str = "us-east-1";
const SHIM: &str = "https://agents.example/{version}/{arch}/shim";
const RUNNER: &str = "https://agents.example/{version}/{arch}/runner";

/// What a test does to answers on their way.
#[derive(Default)]
struct Way {
    /// The answer to the next request with this action is lost.
    lost: Option<String>,
}

/// A running server with an account of its own, and a backend that uses it.
pub(crate) struct Bed {
    child: Child,
    port: u16,
    way: Arc<Mutex<Way>>,
    pub(crate) host: Host,
    pub(crate) aws: Aws,
}

/// Python with moto, in one of the folders above the test.
fn python() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut found = test.ancestors().map(|dir| dir.join("moto/bin/python"));
    let found = found.find(|python| python.exists());
    found.expect("moto is not installed; `cargo xtask test` installs it")
}

pub(crate) fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl Bed {
    /// A server whose default VPC has a way to the internet, and a backend with this configuration beside the credentials.
    pub(crate) fn new(config: &Value) -> Self {
        let bed = Self::without_internet(config);
        bed.control("public?region=us-east-1");
        bed
    }

    pub(crate) fn without_internet(config: &Value) -> Self {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/moto");
        let mut child = Command::new(python())
            .arg(folder.join("bed.py"))
            .env("MOTO_AMIS_PATH", folder.join("amis.json"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().expect("the bed says its port first");
        let way: Arc<Mutex<Way>> = Arc::default();
        let on_way = Arc::clone(&way);
        let host = Host::new(move |request| {
            let reply = forward(port, request);
            let mut way = on_way.lock().unwrap();
            match &way.lost {
                Some(action) if does(request, action) => {
                    way.lost = None;
                    Reply::cut()
                }
                _ => reply,
            }
        });
        host.answer(ENVIRONMENT, &json!({"values": {}}));
        let agents = json!({"shim": SHIM, "runner": RUNNER, "version": "1"});
        host.answer(
            DESCRIBE,
            &json!({"host_version": "1", "log_level": 0, "services": {}, "agents": agents}),
        );
        let mut whole = json!({
            "regions": [REGION], "endpoint_url": format!("http://127.0.0.1:{port}"),
            "creds": {"type": "access_key", "access_key": "AKIATEST", "secret_key": "secret-of-the-test"},
        });
        for (key, value) in config.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let aws = Aws::of(read(whole));
        Self {
            child,
            port,
            way,
            host,
            aws,
        }
    }

    /// Tells the bed something.
    pub(crate) fn control(&self, what: &str) {
        let (path, query) = what.split_once('?').unwrap_or((what, ""));
        let request = Request {
            method: "POST".to_owned(),
            origin: String::new(),
            path: format!("/bed/{path}"),
            query: query.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        assert_eq!(forward(self.port, &request).body, b"ok\n");
    }

    /// The next calls of this action fail.
    pub(crate) fn fault(&self, action: &str, code: &str, times: u32) {
        self.control(&format!("fault?action={action}&code={code}&times={times}"));
    }

    /// AWS does what the next request with this action asks, and nobody hears of it.
    pub(crate) fn lose(&self, action: &str) {
        self.way.lock().unwrap().lost = Some(action.to_owned());
    }

    /// How often an action was asked for.
    pub(crate) fn count(&self, action: &str) -> usize {
        let requests = self.host.requests();
        requests.iter().filter(|it| does(it, action)).count()
    }

    /// Asks a service that the backend does not use.
    pub(crate) fn json(&self, service: &str, target: &str, body: &Value) -> Value {
        let login = format!(
            "AWS4-HMAC-SHA256 Credential=AKIATEST/20260101/{REGION}/{service}/aws4_request, SignedHeaders=host, Signature=x"
        );
        let request = Request {
            method: "POST".to_owned(),
            origin: String::new(),
            path: "/".to_owned(),
            query: String::new(),
            headers: vec![
                ("authorization".to_owned(), login),
                ("x-amz-target".to_owned(), target.to_owned()),
                (
                    "content-type".to_owned(),
                    "application/x-amz-json-1.1".to_owned(),
                ),
            ],
            body: body.to_string().into_bytes(),
        };
        serde_json::from_slice(&forward(self.port, &request).body).unwrap()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

fn does(request: &Request, action: &str) -> bool {
    let word = format!("Action={action}&");
    request.query.contains(&word) || String::from_utf8_lossy(&request.body).contains(&word)
}

/// The request over a connection of its own, and its reply.
fn forward(port: u16, request: &Request) -> Reply {
    let mut head = format!(
        "{} {}?{} HTTP/1.0\r\nhost: 127.0.0.1:{port}\r\ncontent-length: {}\r\n",
        request.method,
        request.path,
        request.query,
        request.body.len()
    );
    for (name, value) in &request.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&request.body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|at| at == b"\r\n\r\n").unwrap();
    let (head, body) = answer.split_at(end);
    let head = String::from_utf8_lossy(head).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply {
        status,
        headers: Vec::new(),
        body: body[4..].to_vec(),
    }
}

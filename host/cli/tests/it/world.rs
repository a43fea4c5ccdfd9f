//! A home folder, a terminal that is written down, and a server that says what it was told to say.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Cursor, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dstack_cli::settings::Vars;
use dstack_cli::{ClientOnly, Surroundings, Terminal};
use jiff::Timestamp;
use serde_json::{Value, json};

/// A request that came in.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
    pub(crate) headers: HashMap<String, String>,
}

impl Request {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Answers of one path, in order; the last one stays.
type Answers = HashMap<String, Vec<(u16, Value)>>;

/// An HTTP server whose answers a test writes.
pub(crate) struct Server {
    pub(crate) url: String,
    answers: Arc<Mutex<Answers>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers: Arc<Mutex<Answers>> = Arc::default();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (script, heard) = (Arc::clone(&answers), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &script, &heard);
            }
        });
        Self {
            url,
            answers,
            requests,
        }
    }

    /// The next answer of a path.
    pub(crate) fn on(&self, path: &str, answer: Value) -> &Self {
        self.on_status(path, 200, answer)
    }

    pub(crate) fn on_status(&self, path: &str, status: u16, answer: Value) -> &Self {
        let mut answers = self.answers.lock().unwrap();
        answers
            .entry(path.to_owned())
            .or_default()
            .push((status, answer));
        self
    }

    /// Drops the answers of a path.
    pub(crate) fn forget(&self, path: &str) -> &Self {
        self.answers.lock().unwrap().remove(path);
        self
    }

    /// How many answers of a path have not been given; the last one stays.
    pub(crate) fn left(&self, path: &str) -> usize {
        self.answers.lock().unwrap().get(path).map_or(0, Vec::len)
    }

    /// Answers as a recorded exchange has them.
    pub(crate) fn play(&self, recording: &[Value]) -> &Self {
        for exchange in recording {
            let status = u16::try_from(exchange["status"].as_u64().unwrap()).unwrap();
            self.on_status(
                exchange["path"].as_str().unwrap(),
                status,
                exchange["response"].clone(),
            );
        }
        self
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The bodies that came for one path.
    pub(crate) fn bodies(&self, path: &str) -> Vec<Value> {
        self.requests()
            .iter()
            .filter(|request| request.path == path)
            .map(Request::json)
            .collect()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.requests()
            .into_iter()
            .map(|request| request.path)
            .collect()
    }
}

fn answer(stream: TcpStream, script: &Mutex<Answers>, heard: &Mutex<Vec<Request>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let path = line.split(' ').nth(1).unwrap().to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    heard.lock().unwrap().push(Request {
        path: path.clone(),
        body,
        headers,
    });
    let mut script = script.lock().unwrap();
    let (status, answer) = match script.get_mut(&path) {
        Some(answers) if answers.len() > 1 => answers.remove(0),
        Some(answers) => answers[0].clone(),
        None => (404, json!({"detail": "Not Found"})),
    };
    let text = answer.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    // The client may be gone already.
    drop(
        (&stream)
            .write_all(head.as_bytes())
            .and_then(|()| (&stream).write_all(text.as_bytes())),
    );
}

/// What one command printed.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(crate) code: u8,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl std::fmt::Display for Screen {
    /// The whole screen, as snapshots have it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.out)?;
        if !self.err.is_empty() {
            write!(f, "--- standard error\n{}", self.err)?;
        }
        write!(f, "--- exit code {}", self.code)
    }
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Sink {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

struct Environment(HashMap<String, String>);

impl Vars for Environment {
    fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }
}

/// A person's machine.
pub(crate) struct World {
    home: tempfile::TempDir,
    pub(crate) server: Server,
    vars: HashMap<String, String>,
    input: String,
    can_answer: bool,
    width: Option<u16>,
}

impl World {
    /// With a project `main` on a server that knows nothing yet.
    pub(crate) fn new() -> Self {
        let world = Self {
            home: tempfile::tempdir().unwrap(),
            server: Server::start(),
            vars: HashMap::new(),
            input: String::new(),
            can_answer: false,
            width: None,
        };
        let url = &world.server.url;
        world.write(
            "home/.dstack/config.yml",
            &format!(
                "projects:\n- default: true\n  name: main\n  token: secret-token\n  url: {url}\n"
            ),
        );
        std::fs::create_dir_all(world.folder()).unwrap();
        world
    }

    /// Where commands are started.
    pub(crate) fn folder(&self) -> PathBuf {
        self.home.path().join("work")
    }

    /// A file; `work/` is where commands are started, `home/` the home folder.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.home.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Lines that the person types.
    pub(crate) fn typing(mut self, input: &str) -> Self {
        input.clone_into(&mut self.input);
        self.can_answer = true;
        self
    }

    /// A terminal of this width, without colours.
    pub(crate) fn wide(mut self, width: u16) -> Self {
        self.width = Some(width);
        self
    }

    pub(crate) fn run(&self, args: &[&str]) -> Screen {
        let (out, err) = (Sink::default(), Sink::default());
        let mut vars = self.vars.clone();
        vars.insert(
            "HOME".to_owned(),
            self.home.path().join("home").display().to_string(),
        );
        if self.width.is_some() {
            vars.insert("NO_COLOR".to_owned(), "1".to_owned());
        }
        let around = Surroundings {
            vars: &Environment(vars),
            folder: self.folder(),
            terminal: Terminal {
                out: Box::new(out.clone()),
                err: Box::new(err.clone()),
                input: Box::new(Cursor::new(self.input.clone().into_bytes())),
                is_terminal: self.width.is_some(),
                is_terminal_err: false,
                can_answer: self.can_answer,
                width: self.width,
            },
            local: &ClientOnly,
            clock: || "2026-11-29T19:40:00Z".parse::<Timestamp>().unwrap(),
        };
        let args = std::iter::once("dstack")
            .chain(args.iter().copied())
            .map(Into::into);
        let code = dstack_cli::run_in(args, around);
        let hide = |text: String| {
            text.replace(&self.server.url, "http://SERVER")
                .replace(&self.home.path().display().to_string(), "/person")
        };
        Screen {
            code,
            out: hide(out.text()),
            err: hide(err.text()),
        }
    }
}

/// Recorded exchanges of the reference's client and server.
pub(crate) fn recorded(name: &str) -> Vec<Value> {
    #[expect(
        clippy::disallowed_methods,
        reason = "where the tests' data are is asked at run time"
    )]
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let path = Path::new(&root).join(format!("../../tests/contract/wire/{name}.json"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// The answer of the n-th recorded exchange for a path.
pub(crate) fn response(name: &str, path_end: &str) -> Value {
    recorded(name)
        .into_iter()
        .find(|exchange| exchange["path"].as_str().unwrap().ends_with(path_end))
        .unwrap_or_else(|| panic!("{name} has no {path_end}"))["response"]
        .clone()
}

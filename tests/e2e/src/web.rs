//! A web server of files, as a mirror or a Git host without programs has it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

/// Serves a folder until the process ends.
#[derive(Debug)]
pub struct Web {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Web {
    /// Starts it on every address; with `login`, only requests with this `Authorization` are answered.
    ///
    /// # Errors
    /// If no port can be had.
    pub fn start(folder: &Path, login: Option<&str>) -> Result<Self> {
        let listener = TcpListener::bind("0.0.0.0:0")?;
        let port = listener.local_addr()?.port();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (folder, login, heard) = (
            folder.to_owned(),
            login.map(str::to_owned),
            Arc::clone(&asked),
        );
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that hangs up has what it wanted.
                drop(answer(stream, &folder, login.as_deref(), &heard));
            }
        });
        Ok(Self { port, asked })
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The paths that were asked for.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn answer(
    mut stream: TcpStream,
    folder: &Path,
    login: Option<&str>,
    asked: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let path = lines
        .first()
        .and_then(|line| line.split(' ').nth(1))
        .unwrap_or("/")
        .to_owned();
    asked
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(path.clone());
    let is_in = login.is_none_or(|login| {
        lines.iter().any(|line| {
            line.split_once(": ").is_some_and(|(name, value)| {
                name.eq_ignore_ascii_case("authorization") && value == login
            })
        })
    });
    let path = path
        .split('?')
        .next()
        .unwrap_or_default()
        .trim_start_matches('/')
        .to_owned();
    let file: PathBuf = folder.join(path);
    let (status, body) = match std::fs::read(file) {
        _ if !is_in => (
            "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"",
            Vec::new(),
        ),
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)
}

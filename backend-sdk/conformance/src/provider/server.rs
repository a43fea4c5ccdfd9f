//! The HTTP/1.1 server: one thread a connection, bodies in memory.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::message::pairs;
use super::{Reply, Request, Shared};

/// Largest body, and largest head.
const MAX_BODY_BYTES: usize = 64 << 20;
const MAX_HEAD_BYTES: usize = 1 << 20;
/// Connections that are silent for so long are closed.
const IDLE: Duration = Duration::from_secs(60);

/// Accepts connections until the provider ends.
pub(super) fn serve(listener: TcpListener, shared: Arc<Shared>) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            if shared.is_ending.load(Ordering::SeqCst) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                // A connection that breaks is the other side's matter: it sees that itself.
                drop(connection(&stream, &shared));
            });
        }
    });
}

/// Makes the accepting thread look whether it should end.
pub(super) fn wake(url: &str) {
    let address = url.trim_start_matches("http://");
    drop(TcpStream::connect(address));
}

fn connection(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader, stream)? {
        let is_head = request.method == "HEAD";
        let closes = request
            .header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let answered = catch_unwind(AssertUnwindSafe(|| shared.answer(request)));
        let reply = answered
            .unwrap_or_else(|_| Reply::text(500, "a handler of the fake provider panicked"));
        if !reply.after.is_zero() {
            thread::sleep(reply.after);
        }
        write(stream, &reply, is_head)?;
        if closes || shared.is_ending.load(Ordering::SeqCst) {
            break;
        }
    }
    Ok(())
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The next request, or `None` at the end of the connection.
fn read(reader: &mut impl BufRead, mut stream: &TcpStream) -> io::Result<Option<Request>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let before = head.len();
        let limit = u64::try_from(MAX_HEAD_BYTES - before).unwrap_or_default();
        reader.by_ref().take(limit).read_until(b'\n', &mut head)?;
        if head.len() == before {
            return if head.is_empty() {
                Ok(None)
            } else {
                Err(bad("a head without an end"))
            };
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut parsed = httparse::Request::new(&mut headers);
    parsed
        .parse(&head)
        .map_err(|error| bad(&error.to_string()))?;
    let (path, query) = match parsed.path.unwrap_or("/").split_once('?') {
        Some((path, query)) => (path, query),
        None => (parsed.path.unwrap_or("/"), ""),
    };
    let mut request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: pairs(query),
        headers: parsed
            .headers
            .iter()
            .map(|header| {
                let value = String::from_utf8_lossy(header.value).into_owned();
                (header.name.to_owned(), value)
            })
            .collect(),
        ..Request::default()
    };
    if request.header("expect").is_some() {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    request.body = body(reader, &request)?;
    Ok(Some(request))
}

fn body(reader: &mut impl BufRead, request: &Request) -> io::Result<Vec<u8>> {
    let is_chunked = request
        .header("transfer-encoding")
        .is_some_and(|value| value.to_ascii_lowercase().contains("chunked"));
    if is_chunked {
        return chunks(reader);
    }
    let length = match request.header("content-length") {
        Some(text) => text
            .trim()
            .parse()
            .map_err(|_| bad("a bad content-length"))?,
        None => 0,
    };
    exactly(reader, length)
}

fn exactly(reader: &mut impl BufRead, length: usize) -> io::Result<Vec<u8>> {
    if length > MAX_BODY_BYTES {
        return Err(bad("a body that is too large"));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

fn chunks(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| bad("a bad chunk"))?;
        if body.len() + size > MAX_BODY_BYTES {
            return Err(bad("a body that is too large"));
        }
        body.extend(exactly(reader, size)?);
        // The line after a chunk is empty; after the last one there may be trailers, which nobody sends here.
        let mut end = String::new();
        reader.read_line(&mut end)?;
        if size == 0 {
            return Ok(body);
        }
    }
}

fn write(mut stream: &TcpStream, reply: &Reply, is_head: bool) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {} {}\r\n", reply.status, reason(reply.status));
    for (name, value) in &reply.headers {
        // A line break would begin another header.
        let value: String = value.chars().filter(|c| !c.is_control()).collect();
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if reply.status != 204 && reply.status != 304 {
        head.push_str(&format!("content-length: {}\r\n", reply.body.len()));
    }
    head.push_str("\r\n");
    let mut message = head.into_bytes();
    if !is_head && reply.status != 204 && reply.status != 304 {
        message.extend_from_slice(&reply.body);
    }
    stream.write_all(&message)?;
    stream.flush()
}

const fn reason(status: u16) -> &'static str {
    match status {
        100..=199 => "Continue",
        200..=299 => "OK",
        300..=399 => "Redirect",
        400..=499 => "Refused",
        _ => "Failed",
    }
}

//! The `forward` protocol of Fluentd, which Fluent Bit speaks too: records with their tag, and a word that they have arrived.
//!
//! Source: "Forward Protocol Specification v1" of the Fluentd wiki.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rmp::encode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use uuid::Uuid;

/// Connecting, sending, and waiting for the word.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections kept for the next records.
const IDLE: usize = 4;
/// Bytes of the word at most.
const WORD: usize = 256;

/// A text field of a record.
pub(super) type Field = (&'static str, String);

/// A record: when it happened, and what.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) at: Timestamp,
    /// Place among all records of its log.
    pub(super) seq: i64,
    pub(super) fields: Vec<Field>,
}

/// Sends records to one address.
#[derive(Debug)]
pub(super) struct Forward {
    address: String,
    idle: Mutex<Vec<TcpStream>>,
}

impl Forward {
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self {
            address: format!("{}:{port}", bracketed(host)),
            idle: Mutex::default(),
        }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Looks whether somebody listens.
    pub(super) async fn check(&self) -> io::Result<()> {
        let socket = in_time(TcpStream::connect(&self.address)).await?;
        self.put_back(socket);
        Ok(())
    }

    /// Sends records and waits for the word that they have arrived. A connection that was kept may be closed at the other end
    /// by now: then a new one is taken.
    pub(super) async fn send(&self, tag: &str, records: &[Record]) -> io::Result<()> {
        let chunk = Uuid::new_v4().to_string();
        let message = packed(tag, records, &chunk)?;
        let kept = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        if let Some(mut socket) = kept
            && in_time(exchange(&mut socket, &message, &chunk))
                .await
                .is_ok()
        {
            self.put_back(socket);
            return Ok(());
        }
        let mut socket = in_time(TcpStream::connect(&self.address)).await?;
        in_time(exchange(&mut socket, &message, &chunk)).await?;
        self.put_back(socket);
        Ok(())
    }

    fn put_back(&self, socket: TcpStream) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE {
            idle.push(socket);
        }
    }
}

/// An IPv6 address needs brackets before a port.
pub(super) fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn exchange(socket: &mut TcpStream, message: &[u8], chunk: &str) -> io::Result<()> {
    socket.write_all(message).await?;
    let wanted = word(chunk)?;
    let mut heard = Vec::new();
    while heard.len() < wanted.len() {
        let mut piece = [0; WORD];
        let count = socket.read(&mut piece).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        heard.extend(piece.iter().take(count));
    }
    // A map of one pair may be written with a longer text header than ours.
    if heard == wanted || ends_with_chunk(&heard, chunk) {
        return Ok(());
    }
    Err(io::Error::other(
        "the other side has not said that the records have arrived",
    ))
}

fn ends_with_chunk(heard: &[u8], chunk: &str) -> bool {
    heard.len() <= WORD && heard.ends_with(chunk.as_bytes())
}

/// `{"ack": chunk}`
fn word(chunk: &str) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    encode::write_map_len(&mut out, 1).map_err(io::Error::other)?;
    text(&mut out, "ack")?;
    text(&mut out, chunk)?;
    Ok(out)
}

fn text(out: &mut Vec<u8>, text: &str) -> io::Result<()> {
    encode::write_str(out, text).map_err(io::Error::other)
}

/// `[tag, [[time, record], …], {"chunk": …, "size": …}]`
fn packed(tag: &str, records: &[Record], chunk: &str) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let count = u32::try_from(records.len()).map_err(io::Error::other)?;
    encode::write_array_len(&mut out, 3).map_err(io::Error::other)?;
    text(&mut out, tag)?;
    encode::write_array_len(&mut out, count).map_err(io::Error::other)?;
    for record in records {
        encode::write_array_len(&mut out, 2).map_err(io::Error::other)?;
        let seconds = u32::try_from(record.at.as_second()).unwrap_or(0);
        let nanoseconds = u32::try_from(record.at.subsec_nanosecond()).unwrap_or(0);
        encode::write_ext_meta(&mut out, 8, 0).map_err(io::Error::other)?;
        out.extend(seconds.to_be_bytes());
        out.extend(nanoseconds.to_be_bytes());
        let pairs = u32::try_from(record.fields.len() + 1).map_err(io::Error::other)?;
        encode::write_map_len(&mut out, pairs).map_err(io::Error::other)?;
        for (name, value) in &record.fields {
            text(&mut out, name)?;
            text(&mut out, value)?;
        }
        text(&mut out, "seq")?;
        encode::write_sint(&mut out, record.seq).map_err(io::Error::other)?;
    }
    encode::write_map_len(&mut out, 2).map_err(io::Error::other)?;
    text(&mut out, "chunk")?;
    text(&mut out, chunk)?;
    text(&mut out, "size")?;
    encode::write_uint(&mut out, count.into()).map_err(io::Error::other)?;
    Ok(out)
}

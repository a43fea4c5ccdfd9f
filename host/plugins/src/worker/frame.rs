//! The frames between host and worker.
//!
//! `body length u32 | kind u32 | id u64 | body`, little endian. The body's layout depends on the kind.

use serde::{Deserialize, Serialize};

/// The version of this protocol; both sides are usually the same binary.
pub(crate) const PROTOCOL: u32 = 1;
/// Bytes before each body.
pub(crate) const HEADER: usize = 16;
/// The largest body: the largest reply and what stands around it.
pub(crate) const MAX_BODY: usize = crate::backend::MAX_REPLY_BYTES + 4096;

/// What a frame is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// To the worker, first of all: [`Hello`].
    Hello = 1,
    /// Opens a backend with the configuration in the body; the id names it from then on.
    Open = 2,
    /// Closes a backend once its calls are over.
    Close = 3,
    /// Runs a method: `backend u64 | method u32 | request`.
    Call = 4,
    /// Tells a call to end.
    Cancel = 5,
    /// The answer to an [`Kind::Ask`].
    Served = 6,
    /// The error that answers an [`Kind::Ask`].
    Refused = 7,
    /// Closes all backends and ends.
    Stop = 8,
    /// From the worker: the plugin is loaded. [`Ready`].
    Ready = 16,
    /// The plugin cannot be loaded; the body says why.
    Failed = 17,
    /// A backend is open.
    Opened = 18,
    /// A backend refused its configuration: the plugin's error.
    NotOpened = 19,
    /// A call's reply.
    Reply = 20,
    /// A call's error.
    Error = 21,
    /// A host service is wanted: `call u64 | service u32 | request`.
    Ask = 22,
    /// A line for the log, of the call with this id: `level u32 | target length u32 | message length u32 | target, message,
    /// fields`.
    Log = 23,
}

impl Kind {
    const ALL: [Self; 16] = [
        Self::Hello,
        Self::Open,
        Self::Close,
        Self::Call,
        Self::Cancel,
        Self::Served,
        Self::Refused,
        Self::Stop,
        Self::Ready,
        Self::Failed,
        Self::Opened,
        Self::NotOpened,
        Self::Reply,
        Self::Error,
        Self::Ask,
        Self::Log,
    ];

    fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// What stands before a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    pub id: u64,
    pub length: usize,
}

impl Header {
    /// Why the other side cannot be understood, if so: then nothing that follows can be trusted.
    pub(crate) fn read(bytes: &[u8; HEADER]) -> Result<Self, String> {
        let [a, b, c, d, e, f, g, h, id @ ..] = *bytes;
        let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let number = u32::from_le_bytes([e, f, g, h]);
        if length > MAX_BODY {
            return Err(format!("a frame of {length} bytes, at most {MAX_BODY}"));
        }
        let kind = Kind::of(number).ok_or_else(|| format!("a frame of unknown kind {number}"))?;
        Ok(Self {
            kind,
            id: u64::from_le_bytes(id),
            length,
        })
    }

    /// For a body of these parts.
    pub(crate) fn write(kind: Kind, id: u64, parts: &[&[u8]]) -> [u8; HEADER] {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let mut bytes = [0; HEADER];
        let fields = length
            .to_le_bytes()
            .into_iter()
            .chain((kind as u32).to_le_bytes())
            .chain(id.to_le_bytes());
        for (place, byte) in bytes.iter_mut().zip(fields) {
            *place = byte;
        }
        bytes
    }
}

/// The start of a body that begins with an id and a number ([`Kind::Call`], [`Kind::Ask`]).
pub(crate) fn numbered(id: u64, number: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    let fields = id.to_le_bytes().into_iter().chain(number.to_le_bytes());
    for (place, byte) in bytes.iter_mut().zip(fields) {
        *place = byte;
    }
    bytes
}

/// Takes [`numbered`] off a body.
pub(crate) fn split_numbered(body: &[u8]) -> Option<(u64, u32, &[u8])> {
    let (id, rest) = body.split_first_chunk::<8>()?;
    let (number, rest) = rest.split_first_chunk::<4>()?;
    Some((u64::from_le_bytes(*id), u32::from_le_bytes(*number), rest))
}

/// The numbers before the texts of a [`Kind::Log`].
pub(crate) fn log_head(level: u32, target: &str, message: &str) -> [u8; 12] {
    let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX);
    let mut bytes = [0; 12];
    let fields = [level, length(target), length(message)]
        .into_iter()
        .flat_map(u32::to_le_bytes);
    for (place, byte) in bytes.iter_mut().zip(fields) {
        *place = byte;
    }
    bytes
}

/// Level, target, message, fields; `None` if it is not what [`log_head`] begins.
pub(crate) fn split_log(body: &[u8]) -> Option<(u32, [std::borrow::Cow<'_, str>; 3])> {
    let mut number = {
        let mut rest = body;
        move || {
            let (bytes, left) = rest.split_first_chunk::<4>()?;
            rest = left;
            Some(u32::from_le_bytes(*bytes))
        }
    };
    let level = number()?;
    let target = usize::try_from(number()?).ok()?;
    let message = usize::try_from(number()?).ok()?;
    let (target, rest) = body.get(12..)?.split_at_checked(target)?;
    let (message, fields) = rest.split_at_checked(message)?;
    Some((
        level,
        [target, message, fields].map(String::from_utf8_lossy),
    ))
}

/// What a worker is told before it loads anything. The descriptor of the `.so` comes with the first byte of the socket.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub protocol: u32,
    pub host_version: String,
    /// Where the file was found, for messages.
    pub path: std::path::PathBuf,
    pub manifest: String,
    pub sha256: String,
    /// As in [`WorkerLimits`](super::WorkerLimits).
    pub memory_bytes: u64,
    pub open_files: u64,
    /// The host's process, which the worker does not outlive.
    pub host_pid: u32,
}

/// What a worker says when its plugin is loaded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub protocol: u32,
    /// Of the worker's program.
    pub version: String,
}

#[cfg(test)]
mod tests {
    use super::{HEADER, Header, Kind, MAX_BODY, log_head, numbered, split_log, split_numbered};

    #[test]
    fn a_header_comes_back() {
        for kind in Kind::ALL {
            let bytes = Header::write(kind, 7 << 40, &[b"ab", b"", b"cde"]);
            let header = Header::read(&bytes).unwrap();
            assert_eq!((header.kind, header.id, header.length), (kind, 7 << 40, 5));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let error = Header::read(&[0xff; HEADER]).unwrap_err();
        assert!(error.contains("bytes"), "{error}");
        let mut bytes = Header::write(Kind::Call, 1, &[]);
        bytes[4] = 99;
        assert!(Header::read(&bytes).unwrap_err().contains("kind 99"));
        let length = u32::try_from(MAX_BODY).unwrap() + 1;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        assert!(Header::read(&bytes).unwrap_err().contains("at most"));
    }

    #[test]
    fn bodies_come_apart_and_short_ones_are_no_bodies() {
        let body = [numbered(3, 4).as_slice(), b"rest"].concat();
        assert_eq!(split_numbered(&body), Some((3, 4, b"rest".as_slice())));
        assert_eq!(split_numbered(&body[..11]), None);
        let log = [log_head(2, "ab", "cde").as_slice(), b"abcde{}"].concat();
        let (level, texts) = split_log(&log).unwrap();
        assert_eq!(
            (level, texts.map(|t| t.into_owned())),
            (2, ["ab", "cde", "{}"].map(str::to_owned))
        );
        assert!(split_log(&log[..14]).is_none());
        assert!(split_log(&log_head(1, "ab", "")).is_none());
    }
}

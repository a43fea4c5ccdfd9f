//! What crosses when a plugin asks the host for something: the numbered host services and their payloads.
//!
//! Requests and replies are JSON objects, but where a payload of bytes goes along; then the message is a little-endian `u32`
//! with the length of the JSON head, the head, and the raw bytes ([`frame`], [`unframe`]). Numbers are for ever; a service
//! that a host does not have answers `unsupported`.

mod catalog;
mod environment;
mod http;
mod ledger;
mod ssh;

pub use catalog::{CatalogQuery, CatalogReply};
pub use environment::{EnvironmentReply, EnvironmentRequest};
pub use http::{HttpChunk, HttpReply, HttpRequest, HttpStreamOp, HttpWritten};
pub use ledger::{LedgerRequest, SideResource};
pub use ssh::{SshHop, SshReply, SshRequest};

use crate::agents::AgentUrls;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which services this host has: answers [`Described`].
pub const DESCRIBE: u32 = 0;
/// HTTP requests, made by the host: head [`HttpRequest`] and body in, head [`HttpReply`] and body out. For bodies that come or go
/// in chunks, head [`HttpStreamOp`] and maybe bytes in.
pub const HTTP: u32 = 1;
/// Queries of the offer catalog: [`CatalogQuery`] in, [`CatalogReply`] out.
pub const CATALOG: u32 = 2;
/// Reads the backend's cache: [`CacheGet`] in, head [`CacheAnswer`] and value out.
pub const CACHE_GET: u32 = 3;
/// Writes the backend's cache: head [`CachePut`] and value in, `null` out.
pub const CACHE_PUT: u32 = 4;
/// The host's clock: answers [`Now`].
pub const NOW: u32 = 5;
/// Random bytes: [`RandomBytes`] in, the raw bytes out.
pub const RANDOM: u32 = 6;
/// Waits: [`Sleep`] in, `null` out.
pub const SLEEP: u32 = 7;
/// Hands over a part of the reply while the call runs: raw bytes in, `null` out.
pub const EMIT: u32 = 8;
/// Whether the call should end: answers [`Cancelled`].
pub const CANCELLED: u32 = 9;
/// Declares side resources before they are made: [`LedgerRequest`] in, `null` out. Answers a cancelled call too.
pub const LEDGER: u32 = 10;
/// Commands on another machine over SSH: head [`SshRequest`] and standard input in, head [`SshReply`] and output out.
pub const SSH: u32 = 11;
/// This very machine, for the `local` backend only: [`MachineRequest`] in; what comes out depends on the operation.
pub const MACHINE: u32 = 12;
/// Variables of the server's environment that the plugin's manifest names: [`EnvironmentRequest`] in, [`EnvironmentReply`] out.
pub const ENVIRONMENT: u32 = 13;

/// What the host says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// The host's own version.
    pub host_version: String,
    /// The finest level that `log` keeps: 1 error to 5 trace.
    pub log_level: u32,
    /// Service number, as a string, to its version. A number that is absent is not answered.
    pub services: BTreeMap<String, u32>,
    /// Where machines download the agents from. `None`: nowhere that a machine could reach; then the host brings them over SSH
    /// once the machine is up, and a boot script leaves them out.
    #[serde(default)]
    pub agents: Option<AgentUrls>,
}

/// Asks for a cached value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheGet {
    /// Names the value within this opened backend.
    pub key: String,
    /// Whether the caller will compute a missing value and [`CACHE_PUT`] it. Other callers of the key that say so wait
    /// until it has, or until its call ends without.
    #[serde(default)]
    pub will_compute: bool,
}

/// The head of the answer to [`CacheGet`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheAnswer {
    /// Whether the value follows the head. If not, the caller computes it, if it said that it would.
    pub is_found: bool,
}

/// The head of a value to keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePut {
    /// As in [`CacheGet`].
    pub key: String,
    /// How long the value is good, at most an hour.
    pub ttl_ms: u64,
}

/// The host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// Microseconds since the Unix epoch, UTC.
    pub unix_micros: i64,
}

/// Asks for random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RandomBytes {
    /// At most 65,536.
    pub count: u32,
}

/// Asks to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sleep {
    /// How long.
    pub ms: u64,
}

/// Whether the call should end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// `true` after its deadline, or when nobody waits for it any more.
    pub is_cancelled: bool,
}

/// What `local` may ask about this machine. All operations on a shim are idempotent by its home folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum MachineRequest {
    /// Answers [`MachineFacts`].
    Facts {
        /// Whose disk is measured; its nearest existing parent if it does not exist. Empty: the host's shim folder.
        #[serde(default)]
        home: String,
    },
    /// Starts the shim of this home, unless it runs. Answers [`ShimState`].
    StartShim {
        /// The shim's state folder; a relative one lies in the host's shim folder.
        home: String,
        /// Further flags of the shim's command line.
        #[serde(default)]
        flags: Vec<String>,
    },
    /// Answers [`ShimState`].
    FindShim {
        /// As above.
        home: String,
    },
    /// Ends keeper and shim and all tasks of the shim. Answers [`ShimState`].
    StopShim {
        /// As above.
        home: String,
    },
    /// All shims of the host's shim folder, and what is left of them. Answers a list of [`FoundShim`].
    ListShims,
    /// Whether Docker can run an image here. Answers [`ImageRuntime`], at the latest after some seconds.
    ImageRuntime {
        /// Name, maybe with registry, tag and digest.
        image: String,
    },
}

/// Facts of this machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineFacts {
    /// The host's name.
    pub hostname: String,
    /// `x86` or `arm`.
    pub cpu_arch: String,
    /// Logical CPUs.
    pub cpus: u32,
    /// Total memory.
    pub memory_mib: u64,
    /// Total size of the file system that holds the home.
    pub disk_mib: u64,
    /// GPUs found.
    pub gpus: Vec<MachineGpu>,
    /// Whether a Docker engine answers.
    pub has_docker: bool,
    /// Whether the host runs as root.
    pub is_root: bool,
    /// Whether the host has the agents' files for this machine.
    pub has_agents: bool,
}

/// One GPU of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineGpu {
    /// `nvidia`, as the offers spell it.
    pub vendor: String,
    /// As the vendor's tool says it.
    pub name: String,
    /// Its memory.
    pub memory_mib: u64,
}

/// How a shim is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShimState {
    /// Whether its keeper lives.
    pub is_running: bool,
    /// Whether it answers on its socket.
    pub is_ready: bool,
    /// Its state folder, absolute.
    pub home: String,
    /// Its Unix socket, absolute.
    pub socket: String,
}

/// A shim in the host's shim folder, or what is left of one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FoundShim {
    /// The name of its home, as [`MachineRequest::StopShim`] takes it.
    pub name: String,
    /// Whether its keeper lives.
    pub is_running: bool,
    /// When its home was made, in microseconds since 1970, UTC; `None` if the file system does not tell.
    pub created_at_us: Option<i64>,
}

/// What a job with a certain image would run in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageRuntime {
    /// Whether the engine has the image, or its registry answers for it.
    pub is_docker: bool,
    /// Why, for people.
    pub reason: String,
}

/// Puts a JSON head before raw bytes.
///
/// # Errors
/// If the head cannot be serialised.
pub fn frame<T: Serialize>(head: &T, body: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let head = serde_json::to_vec(head)?;
    let length = u32::try_from(head.len()).map_err(serde::ser::Error::custom)?;
    let mut message = Vec::with_capacity(4 + head.len() + body.len());
    message.extend_from_slice(&length.to_le_bytes());
    message.extend_from_slice(&head);
    message.extend_from_slice(body);
    Ok(message)
}

/// Takes a message of [`frame`] apart.
///
/// # Errors
/// If the message is shorter than it says, or its head is not the expected JSON.
pub fn unframe<'a, T: Deserialize<'a>>(
    message: &'a [u8],
) -> Result<(T, &'a [u8]), serde_json::Error> {
    let short = || serde::de::Error::custom("the message is shorter than it says");
    let (length, rest) = message.split_first_chunk::<4>().ok_or_else(short)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(serde::de::Error::custom)?;
    let (head, body) = rest.split_at_checked(length).ok_or_else(short)?;
    Ok((serde_json::from_slice(head)?, body))
}

#[cfg(test)]
mod tests {
    use super::{CacheAnswer, frame, unframe};

    #[test]
    fn frames_keep_head_and_body() {
        let message = frame(&CacheAnswer { is_found: true }, b"\x00\xff").unwrap();
        let (head, body): (CacheAnswer, _) = unframe(&message).unwrap();
        assert!(head.is_found);
        assert_eq!(body, b"\x00\xff");
    }

    #[test]
    fn a_short_message_is_an_error() {
        for message in [b"".as_slice(), b"\x01\x00", b"\xff\xff\xff\xff{}"] {
            assert!(unframe::<CacheAnswer>(message).is_err());
        }
    }
}

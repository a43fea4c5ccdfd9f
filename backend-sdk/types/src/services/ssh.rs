//! Commands on another machine, run by the host over SSH.

use crate::secret::Secret;
use serde::{Deserialize, Serialize};

/// One SSH server on the way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SshHop {
    /// Name or address; of a hop behind another one, as that one sees it.
    pub host: String,
    /// `None`: 22.
    pub port: Option<u16>,
    /// Who logs in.
    pub user: String,
    /// A private key, as OpenSSH or PEM text, without a passphrase.
    pub private_key: Option<Secret<String>>,
    /// A password, tried after the key.
    pub password: Option<Secret<String>>,
    /// The only host key to accept, as an OpenSSH public key line.
    pub host_key: Option<String>,
    /// Without a [`host_key`](Self::host_key): the host remembers the key that this machine showed first under this name of the
    /// backend's choice and refuses another one later. Without either any key is accepted, and told in the reply.
    pub known_as: Option<String>,
}

/// The head of a request. Standard input follows it, at most 8 MiB.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SshRequest {
    /// Where the command runs.
    pub target: SshHop,
    /// Servers to go through, the outermost first.
    pub jumps: Vec<SshHop>,
    /// Run by the user's shell there. `None`: a login shell, which reads its commands from standard input.
    pub command: Option<String>,
    /// For the whole of it, connecting included; `None` leaves it to the call's deadline.
    pub timeout_ms: Option<u64>,
    /// At most so many bytes of standard output and of standard error each are kept, the first ones; `None` is 4 MiB, and 16 MiB
    /// the most. The rest is read and thrown away.
    pub max_output_bytes: Option<u64>,
}

/// The head of the reply. Standard output follows it, then standard error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SshReply {
    /// The command's exit status; `None` if a signal ended it or the server did not tell.
    pub status: Option<u32>,
    /// The signal that ended it, without `SIG`.
    pub signal: Option<String>,
    /// How many of the bytes that follow are standard output.
    pub stdout_bytes: u64,
    /// Whether output was thrown away.
    pub is_truncated: bool,
    /// The key that the target showed, as an OpenSSH public key line.
    pub host_key: String,
}

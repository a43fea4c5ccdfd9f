//! One SSH connection to a machine, through its jump hosts.

use std::path::PathBuf;
use std::{collections::HashMap, sync::Arc, sync::Mutex, sync::PoisonError, time::Duration};

use russh::client::{self, AuthResult, Handle};
use russh::keys::agent::client::AgentClient;
use russh::keys::{HashAlg, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{ChannelOpenFailure, Disconnect};
use tokio::net::TcpStream;

use bytes::Bytes;

use crate::keys::{self, Opener};
use crate::{CommandOutput, Endpoint, Hop, RemoteError, SshAddress, Stream, command};

/// What the caller remembers about machines' host keys: accepted when new, recorded, then held to.
pub trait HostKeys: Send + Sync {
    /// The public key line recorded for `machine`, if any.
    fn recorded(&self, machine: &str) -> Option<String>;
    /// `machine` was met for the first time and showed `key`, an OpenSSH public key line.
    fn record(&self, machine: &str, key: &str);
}

/// Host keys kept for the life of the process.
#[derive(Debug, Default)]
pub struct MemoryHostKeys(Mutex<HashMap<String, String>>);

impl HostKeys for MemoryHostKeys {
    fn recorded(&self, machine: &str) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(machine)
            .cloned()
    }

    fn record(&self, machine: &str, key: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(machine.to_owned(), key.to_owned());
    }
}

/// Limits of a connection.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) connect_timeout: Duration,
    pub(crate) keepalive: Duration,
    pub(crate) host_keys: Arc<dyn HostKeys>,
    pub(crate) agent: Option<PathBuf>,
}

/// A live, authenticated connection; dropping it closes it, then its jumps.
pub(crate) struct Session {
    at: String,
    handle: Handle<Guard>,
    /// The connections this one runs through, outermost first.
    jumps: Vec<Handle<Guard>>,
}

/// Checks the host key during the handshake and keeps why it was refused.
struct Guard {
    machine: String,
    at: String,
    host_keys: Arc<dyn HostKeys>,
    refusal: Arc<Mutex<Option<RemoteError>>>,
}

impl client::Handler for Guard {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        shown: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        let key = match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => key.clone(),
            PublicKeyOrCertificate::Certificate(cert) => cert.public_key().clone().into(),
        };
        let Ok(line) = key.to_openssh() else {
            return Ok(false);
        };
        let Some(recorded) = self.host_keys.recorded(&self.machine) else {
            self.host_keys.record(&self.machine, &line);
            return Ok(true);
        };
        if same_key(&recorded, &line) {
            return Ok(true);
        }
        let recorded = match russh::keys::PublicKey::from_openssh(&recorded) {
            Ok(key) => key.fingerprint(HashAlg::Sha256).to_string(),
            Err(_) => "another".to_owned(),
        };
        let shown = key.fingerprint(HashAlg::Sha256).to_string();
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(RemoteError::HostKeyChanged {
                at: self.at.clone(),
                shown,
                recorded,
            });
        Ok(false)
    }
}

/// Compares type and key data, not comments.
pub(crate) fn same_key(a: &str, b: &str) -> bool {
    a.split_ascii_whitespace()
        .take(2)
        .eq(b.split_ascii_whitespace().take(2))
}

impl Session {
    /// Connects hop by hop; the whole way has one time limit.
    pub(crate) async fn connect(to: &SshAddress, with: &Settings) -> Result<Self, RemoteError> {
        let limit = with.connect_timeout;
        let at = to.target.at();
        tokio::time::timeout(limit, Self::connect_all(to, with))
            .await
            .unwrap_or_else(|_| {
                let reason = format!("no connection within {} s", limit.as_secs_f32());
                Err(RemoteError::Unreachable { at, reason })
            })
    }

    async fn connect_all(to: &SshAddress, with: &Settings) -> Result<Self, RemoteError> {
        let mut jumps: Vec<Handle<Guard>> = Vec::new();
        for hop in to.jumps.iter().chain([&to.target]) {
            let unreachable = |reason| RemoteError::Unreachable {
                at: hop.at(),
                reason,
            };
            let handle = match jumps.last() {
                None => {
                    let tcp = TcpStream::connect((hop.host.as_str(), hop.port))
                        .await
                        .map_err(|e| unreachable(e.to_string()))?;
                    tcp.set_nodelay(true)
                        .map_err(|e| unreachable(e.to_string()))?;
                    authenticate(hop, with, tcp).await?
                }
                Some(jump) => {
                    let channel = jump
                        .channel_open_direct_tcpip(&hop.host, u32::from(hop.port), "127.0.0.1", 0)
                        .await
                        .map_err(|e| unreachable(format!("through the jump host: {e}")))?;
                    authenticate(hop, with, channel.into_stream()).await?
                }
            };
            jumps.push(handle);
        }
        let handle = jumps.pop().expect("the target is always the last hop");
        Ok(Self {
            at: to.target.at(),
            handle,
            jumps,
        })
    }

    /// Whether the connection has ended, as far as is known.
    pub(crate) fn is_closed(&self) -> bool {
        self.handle.is_closed() || self.jumps.iter().any(Handle::is_closed)
    }

    /// Asks the machine for a sign of life.
    pub(crate) async fn is_alive(&self, within: Duration) -> bool {
        !self.is_closed()
            && matches!(
                tokio::time::timeout(within, self.handle.send_ping()).await,
                Ok(Ok(()))
            )
    }

    /// Opens a stream to an endpoint of the machine.
    pub(crate) async fn open(&self, to: &Endpoint) -> Result<Box<dyn Stream>, RemoteError> {
        let opened = match to {
            Endpoint::Port(port) => {
                self.handle
                    .channel_open_direct_tcpip("localhost", u32::from(*port), "127.0.0.1", 0)
                    .await
            }
            Endpoint::Socket(path) => {
                self.handle
                    .channel_open_direct_streamlocal(path.display().to_string())
                    .await
            }
        };
        match opened {
            Ok(channel) => Ok(Box::new(channel.into_stream())),
            Err(russh::Error::ChannelOpenFailure(
                ChannelOpenFailure::AdministrativelyProhibited,
            )) => {
                let reason = "its ssh server forbids forwarding".to_owned();
                Err(RemoteError::Refused {
                    at: format!("{} {to}", self.at),
                    reason,
                })
            }
            Err(russh::Error::ChannelOpenFailure(failure)) => {
                let reason = format!("{failure:?}");
                Err(RemoteError::Refused {
                    at: format!("{} {to}", self.at),
                    reason,
                })
            }
            Err(other) => {
                let reason = format!("the ssh connection broke: {other}");
                Err(RemoteError::Unreachable {
                    at: self.at.clone(),
                    reason,
                })
            }
        }
    }

    /// Runs a command in the account's login shell.
    pub(crate) async fn run(
        &self,
        command: &str,
        input: Bytes,
        limit: Duration,
    ) -> Result<CommandOutput, RemoteError> {
        command::run(&self.at, &self.handle, command, input, limit).await
    }

    /// Says goodbye; a machine that is gone makes this a no-op.
    pub(crate) async fn close(&self) {
        for handle in [&self.handle].into_iter().chain(self.jumps.iter().rev()) {
            if let Err(error) = handle
                .disconnect(Disconnect::ByApplication, "done", "en")
                .await
            {
                tracing::debug!(%error, at = self.at, "ssh connection was already gone");
            }
        }
    }
}

/// SSH handshake and login over any stream.
async fn authenticate<S>(
    hop: &Hop,
    with: &Settings,
    stream: S,
) -> Result<Handle<Guard>, RemoteError>
where
    S: Stream,
{
    let opener = keys::opener(&hop.private_key)?;
    let config = client::Config {
        keepalive_interval: Some(with.keepalive),
        keepalive_max: 3,
        nodelay: true,
        ..client::Config::default()
    };
    let refusal = Arc::new(Mutex::new(None));
    let guard = Guard {
        machine: hop.machine(),
        at: hop.at(),
        host_keys: Arc::clone(&with.host_keys),
        refusal: Arc::clone(&refusal),
    };
    let connected = client::connect_stream(Arc::new(config), stream, guard).await;
    let mut handle = connected.map_err(|e| {
        let refused = refusal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        refused.unwrap_or_else(|| unreachable(hop, &e))
    })?;
    let algorithm = match &opener {
        Opener::Key(key) => key.algorithm(),
        Opener::Agent(key) => key.algorithm(),
    };
    let hash = match algorithm.is_rsa() {
        true => handle
            .best_supported_rsa_hash()
            .await
            .ok()
            .flatten()
            .flatten(),
        false => None,
    };
    let answer = match opener {
        Opener::Key(key) => {
            let key = PrivateKeyWithHashAlg::new(Arc::new(*key), hash);
            let answer = handle.authenticate_publickey(&hop.username, key).await;
            answer.map_err(|e| unreachable(hop, &e))?
        }
        Opener::Agent(key) => by_agent(hop, with, &mut handle, *key, hash).await?,
    };
    match answer {
        AuthResult::Success => Ok(handle),
        AuthResult::Failure { .. } => Err(RemoteError::KeyRefused {
            at: hop.at(),
            user: hop.username.clone(),
        }),
    }
}

/// A login whose signature the SSH agent of this process makes.
async fn by_agent(
    hop: &Hop,
    with: &Settings,
    handle: &mut Handle<Guard>,
    key: PublicKey,
    hash: Option<HashAlg>,
) -> Result<AuthResult, RemoteError> {
    let shown = key.fingerprint(HashAlg::Sha256);
    let remedy = "give the server an agent that has it (SSH_AUTH_SOCK, ssh-add), or name the file of the private key";
    let invalid =
        |why: String| RemoteError::Invalid(format!("no private key for {shown}: {why}; {remedy}"));
    let Some(socket) = &with.agent else {
        return Err(invalid("the server has no SSH agent".to_owned()));
    };
    let agent = AgentClient::connect_uds(socket).await;
    let mut agent = agent.map_err(|e| invalid(format!("its SSH agent does not answer: {e}")))?;
    let signed = handle.authenticate_publickey_with(&hop.username, key, hash, &mut agent);
    signed
        .await
        .map_err(|e| invalid(format!("its SSH agent does not sign: {e}")))
}

fn unreachable(hop: &Hop, error: &russh::Error) -> RemoteError {
    RemoteError::Unreachable {
        at: hop.at(),
        reason: format!("ssh: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_keys_are_compared_without_their_comments() {
        assert!(same_key("ssh-ed25519 AAAA one", "ssh-ed25519 AAAA"));
        assert!(!same_key("ssh-ed25519 AAAA", "ssh-ed25519 BBBB"));
    }
}

//! One command over a connection of its own: to machines that are no machines of the host, with logins of their own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use russh::client::{self, AuthResult, Handle};
use russh::keys::{HashAlg, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{ChannelMsg, ChannelReadHalf};
use tokio::net::TcpStream;

use crate::ssh::{HostKeys, same_key};
use crate::{RemoteError, Secret, Stream, keys};

const KEEPALIVE: Duration = Duration::from_secs(15);

/// Which host key is accepted.
#[derive(Clone)]
pub enum HostKeyRule {
    /// Any; the caller learns which.
    Any,
    /// This one, an OpenSSH public key line.
    Only(String),
    /// The one that is recorded under this name; the first one shown is recorded.
    Recorded(String, Arc<dyn HostKeys>),
}

/// One SSH login on the way of a command.
#[derive(Clone)]
pub struct ExecHop {
    /// Name or address.
    pub host: String,
    /// Port of the SSH server.
    pub port: u16,
    /// Account.
    pub username: String,
    /// Private key as text, OpenSSH or PEM.
    pub private_key: Option<Secret>,
    /// Tried after the key.
    pub password: Option<Secret>,
    /// Which host key is accepted.
    pub host_key: HostKeyRule,
}

impl ExecHop {
    fn at(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// What is run, and where.
#[derive(Clone)]
pub struct Exec {
    /// Servers to go through, the outermost first.
    pub jumps: Vec<ExecHop>,
    /// Where the command runs.
    pub target: ExecHop,
    /// Run by the account's shell; `None`: a login shell that reads its commands from the input.
    pub command: Option<String>,
    /// Standard input.
    pub input: Bytes,
    /// So much of each output is kept.
    pub max_output: usize,
    /// For the way there, all hops together.
    pub connect_limit: Duration,
}

/// What a command left behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// Exit status, if it ended by itself.
    pub status: Option<u32>,
    /// The signal that ended it, without `SIG`.
    pub signal: Option<String>,
    /// The beginning of its standard output.
    pub stdout: Vec<u8>,
    /// The beginning of its standard error.
    pub stderr: Vec<u8>,
    /// Whether there was more output.
    pub is_truncated: bool,
    /// The key that the target showed, an OpenSSH public key line.
    pub host_key: String,
}

/// Checks the host key and keeps what it saw.
struct Guard {
    at: String,
    rule: HostKeyRule,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    key: String,
    refusal: Option<RemoteError>,
}

impl client::Handler for Guard {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        shown: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        let key: PublicKey = match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => key.clone(),
            PublicKeyOrCertificate::Certificate(cert) => cert.public_key().clone().into(),
        };
        let Ok(line) = key.to_openssh() else {
            return Ok(false);
        };
        let expected = match &self.rule {
            HostKeyRule::Any => None,
            HostKeyRule::Only(line) => Some(line.clone()),
            HostKeyRule::Recorded(name, keys) => {
                let recorded = keys.recorded(name);
                if recorded.is_none() {
                    keys.record(name, &line);
                }
                recorded
            }
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.key.clone_from(&line);
        let Some(expected) = expected.filter(|expected| !same_key(expected, &line)) else {
            return Ok(true);
        };
        let recorded = PublicKey::from_openssh(&expected).map_or_else(
            |_| "another".to_owned(),
            |key| key.fingerprint(HashAlg::Sha256).to_string(),
        );
        seen.refusal = Some(RemoteError::HostKeyChanged {
            at: self.at.clone(),
            shown: key.fingerprint(HashAlg::Sha256).to_string(),
            recorded,
        });
        Ok(false)
    }
}

/// Connects, logs in, runs the command, waits for its end and closes the connection. Dropping the future closes it too.
///
/// # Errors
/// [`RemoteError`] if a server is not reached, refuses the login or shows another host key, or a key is none; a command that
/// fails is an output with its status.
pub async fn exec(what: Exec) -> Result<ExecOutput, RemoteError> {
    let at = what.target.at();
    let limit = what.connect_limit;
    let connected = tokio::time::timeout(limit, connect(&what)).await;
    let (handles, host_key) = connected.unwrap_or_else(|_| {
        let reason = format!("no connection within {} s", limit.as_secs_f32());
        Err(RemoteError::Unreachable {
            at: at.clone(),
            reason,
        })
    })?;
    let broken = |reason: String| RemoteError::Unreachable {
        at: at.clone(),
        reason,
    };
    let Some(handle) = handles.last() else {
        return Err(broken("no way there".to_owned()));
    };
    let mut output = run(handle, &what)
        .await
        .map_err(|e| broken(format!("the ssh connection broke: {e}")))?
        .ok_or_else(|| broken("the ssh connection broke during a command".to_owned()))?;
    output.host_key = host_key;
    for handle in handles.iter().rev() {
        let closed = handle.disconnect(russh::Disconnect::ByApplication, "done", "en");
        if let Err(error) = closed.await {
            tracing::debug!(%error, at, "the ssh connection was already gone");
        }
    }
    Ok(output)
}

/// The connections, outermost first, and the host key of the last one.
async fn connect(what: &Exec) -> Result<(Vec<Handle<Guard>>, String), RemoteError> {
    let mut handles: Vec<Handle<Guard>> = Vec::new();
    let mut host_key = String::new();
    for hop in what.jumps.iter().chain([&what.target]) {
        let unreachable = |reason: String| RemoteError::Unreachable {
            at: hop.at(),
            reason,
        };
        let (handle, key) = match handles.last() {
            None => {
                let tcp = TcpStream::connect((hop.host.as_str(), hop.port))
                    .await
                    .map_err(|e| unreachable(e.to_string()))?;
                login(hop, tcp).await?
            }
            Some(jump) => {
                let channel = jump
                    .channel_open_direct_tcpip(&hop.host, u32::from(hop.port), "127.0.0.1", 0)
                    .await
                    .map_err(|e| unreachable(format!("through the jump host: {e}")))?;
                login(hop, channel.into_stream()).await?
            }
        };
        host_key = key;
        handles.push(handle);
    }
    Ok((handles, host_key))
}

async fn login<S: Stream>(
    hop: &ExecHop,
    stream: S,
) -> Result<(Handle<Guard>, String), RemoteError> {
    // Before anything is sent: a key that is none needs no connection.
    let key = hop.private_key.as_ref().map(keys::parse).transpose()?;
    let config = client::Config {
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: 3,
        nodelay: true,
        ..client::Config::default()
    };
    let seen = Arc::new(Mutex::new(Seen::default()));
    let guard = Guard {
        at: hop.at(),
        rule: hop.host_key.clone(),
        seen: Arc::clone(&seen),
    };
    let look = || seen.lock().unwrap_or_else(PoisonError::into_inner);
    let unreachable = |error: russh::Error| RemoteError::Unreachable {
        at: hop.at(),
        reason: format!("ssh: {error}"),
    };
    let connected = client::connect_stream(Arc::new(config), stream, guard).await;
    let mut handle =
        connected.map_err(|e| look().refusal.take().unwrap_or_else(|| unreachable(e)))?;
    let mut is_in = false;
    if let Some(key) = key {
        let hash = match key.algorithm().is_rsa() {
            true => handle
                .best_supported_rsa_hash()
                .await
                .ok()
                .flatten()
                .flatten(),
            false => None,
        };
        let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
        let answer = handle.authenticate_publickey(&hop.username, key).await;
        is_in = matches!(answer.map_err(unreachable)?, AuthResult::Success);
    }
    if let Some(password) = hop.password.as_ref().filter(|_| !is_in) {
        let answer = handle.authenticate_password(&hop.username, password.expose());
        is_in = matches!(answer.await.map_err(unreachable)?, AuthResult::Success);
    }
    if !is_in {
        return Err(RemoteError::KeyRefused {
            at: hop.at(),
            user: hop.username.clone(),
        });
    }
    let key = look().key.clone();
    Ok((handle, key))
}

async fn run(handle: &Handle<Guard>, what: &Exec) -> Result<Option<ExecOutput>, russh::Error> {
    let channel = handle.channel_open_session().await?;
    match &what.command {
        Some(command) => channel.exec(true, command.as_str()).await?,
        None => channel.request_shell(true).await?,
    }
    let (read, write) = channel.split();
    let feed = async {
        // A command that ends early closes its input: how it ended says why.
        if let Err(error) = write.data(&*what.input).await {
            tracing::debug!(%error, "a command did not read all of its input");
            return;
        }
        if let Err(error) = write.eof().await {
            tracing::debug!(%error, "a command ended before its input did");
        }
    };
    let mut collect = std::pin::pin!(collect(read, what.max_output));
    let mut feed = std::pin::pin!(feed);
    let mut is_fed = false;
    loop {
        tokio::select! {
            output = &mut collect => return Ok(output),
            () = &mut feed, if !is_fed => is_fed = true,
        }
    }
}

/// Reads until the command is over; `None` if the connection ended before.
async fn collect(mut read: ChannelReadHalf, max: usize) -> Option<ExecOutput> {
    let mut output = ExecOutput::default();
    let (mut is_over, mut is_truncated) = (false, false);
    let mut keep = |kept: &mut Vec<u8>, data: &[u8]| {
        let room = max.saturating_sub(kept.len()).min(data.len());
        kept.extend_from_slice(data.get(..room).unwrap_or_default());
        is_truncated |= room < data.len();
    };
    while let Some(message) = read.wait().await {
        match message {
            ChannelMsg::Data { data } => keep(&mut output.stdout, &data),
            ChannelMsg::ExtendedData { data, ext: 1 } => keep(&mut output.stderr, &data),
            ChannelMsg::ExitStatus { exit_status } => {
                output.status = Some(exit_status);
                is_over = true;
            }
            ChannelMsg::ExitSignal { signal_name, .. } => {
                output.signal = Some(signal(&signal_name));
                is_over = true;
            }
            ChannelMsg::Failure => {
                output.stderr = b"the ssh server runs no commands for this account".to_vec();
                return Some(output);
            }
            ChannelMsg::Close => break,
            _ => {}
        }
    }
    output.is_truncated = is_truncated;
    is_over.then_some(output)
}

fn signal(name: &russh::Sig) -> String {
    match name {
        russh::Sig::Custom(name) => name.clone(),
        known => format!("{known:?}"),
    }
}

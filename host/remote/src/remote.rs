//! The front door: settings in, clients out.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::carrier::Loopback;
use crate::http::Http;
use crate::pool::{Pool, Tunnel};
use crate::ssh::Settings;
use crate::{
    Address, Carrier, CommandOutput, Endpoint, HostKeys, MemoryHostKeys, RemoteError, RunnerAt,
    RunnerClient, ShimClient, Stream,
};
use dstack_agent_protocol::SHIM_PORT;

/// Limits and memory of a [`Remote`]. `Config::default()` is right for a server.
#[derive(Clone)]
pub struct Config {
    /// Longest time to get an SSH connection, all jumps together (15 s).
    pub connect_timeout: Duration,
    /// Pause between signs of life on a quiet SSH connection; three unanswered ones end it (10 s).
    pub keepalive: Duration,
    /// An SSH connection nobody used for this long is closed (5 min).
    pub idle_timeout: Duration,
    /// Longest time an agent may take over a call (9 s).
    pub call_timeout: Duration,
    /// The same for uploads of code and archives (60 s).
    pub upload_timeout: Duration,
    /// Record of machines' host keys.
    pub host_keys: Arc<dyn HostKeys>,
    /// Socket of the SSH agent for logins by a public key alone; none by default.
    pub agent: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(15),
            keepalive: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
            call_timeout: Duration::from_secs(9),
            upload_timeout: Duration::from_secs(60),
            host_keys: Arc::new(MemoryHostKeys::default()),
            agent: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .finish_non_exhaustive()
    }
}

/// Reaches machines. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Remote {
    config: Config,
    pool: Arc<Pool>,
}

impl Remote {
    /// A remote without connections yet.
    pub fn new(config: Config) -> Self {
        let settings = Settings {
            connect_timeout: config.connect_timeout,
            keepalive: config.keepalive,
            host_keys: Arc::clone(&config.host_keys),
            agent: config.agent.clone(),
        };
        let pool = Arc::new(Pool::new(settings, config.idle_timeout));
        Self { config, pool }
    }

    /// A client to the machine's shim. Nothing is opened before the first call.
    pub fn shim(&self, at: &Address) -> ShimClient {
        let endpoint = match at {
            Address::Local { socket, .. } => Endpoint::Socket(socket.clone()),
            Address::Ssh(ssh) => match &ssh.shim_socket {
                Some(socket) => Endpoint::Socket(socket.clone()),
                None => Endpoint::Port(SHIM_PORT),
            },
        };
        ShimClient::new(self.http(at, endpoint))
    }

    /// A client to a runner on the machine. Nothing is opened before the first call.
    pub fn runner(&self, at: &Address, runner: impl Into<RunnerAt>) -> RunnerClient {
        let endpoint = match runner.into() {
            RunnerAt::Port(port) => Endpoint::Port(port),
            RunnerAt::Socket(path) => Endpoint::Socket(path),
        };
        RunnerClient::new(self.http(at, endpoint))
    }

    /// A raw stream to something that listens on the machine, for example a service's port.
    ///
    /// # Errors
    /// As [`Carrier::open`].
    pub async fn open(
        &self,
        at: &Address,
        endpoint: &Endpoint,
    ) -> Result<Box<dyn Stream>, RemoteError> {
        self.carrier(at).open(endpoint).await
    }

    /// Runs a command in the login shell of the machine's account, with `input` as its standard input. It is
    /// started at most once.
    ///
    /// # Errors
    /// [`RemoteError`] if the machine was not reached or did not end the command within `limit`; a command that
    /// fails is an output with its status. [`RemoteError::Invalid`] for this machine itself.
    pub async fn run(
        &self,
        at: &Address,
        command: &str,
        input: Bytes,
        limit: Duration,
    ) -> Result<CommandOutput, RemoteError> {
        match at {
            Address::Ssh(ssh) => self.pool.run(ssh, command, input, limit).await,
            Address::Local { .. } => Err(RemoteError::Invalid(
                "commands are for machines that are reached by ssh".to_owned(),
            )),
        }
    }

    /// Closes the connection to a machine that is no longer needed.
    pub async fn forget(&self, at: &Address) {
        if let Address::Ssh(ssh) = at {
            self.pool.forget(ssh).await;
        }
    }

    /// Number of machines with a live SSH connection.
    pub fn live_connections(&self) -> usize {
        self.pool.live()
    }

    fn carrier(&self, at: &Address) -> Arc<dyn Carrier> {
        match at {
            Address::Local { .. } => Arc::new(Loopback),
            Address::Ssh(ssh) => Arc::new(Tunnel {
                pool: Arc::clone(&self.pool),
                to: ssh.clone(),
            }),
        }
    }

    pub(crate) fn http(&self, at: &Address, endpoint: Endpoint) -> Http {
        Http {
            carrier: self.carrier(at),
            endpoint,
            timeout: self.config.call_timeout,
            upload_timeout: self.config.upload_timeout,
        }
    }
}

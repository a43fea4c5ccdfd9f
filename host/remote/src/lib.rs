//! Clients to shim and runner over SSH and over local sockets.
//!
//! The server and nobody else uses this crate. It knows how to reach a machine (one pooled
//! in-process SSH connection each, or plain sockets for this machine) and speaks the agents' HTTP
//! over whatever stream it opened. It touches no SQL and takes no decisions: a caller learns *what*
//! went wrong ([`RemoteError`]) and judges for itself what that means for a job.
//!
//! ```no_run
//! use dstack_remote::{Address, Config, Remote, RunnerAt};
//! # async fn demo() -> Result<(), dstack_remote::RemoteError> {
//! let remote = Remote::new(Config::default());
//! let here = Address::local("/home/me/.dstack/local", "/home/me/.dstack/local/shim.sock");
//! let health = remote.shim(&here).healthcheck().await?;
//! let pulled = remote.runner(&here, RunnerAt::Port(40_001)).pull(0, None).await?;
//! # let _ = (health, pulled); Ok(()) }
//! ```

mod address;
mod carrier;
mod command;
mod error;
mod exec;
mod gateway;
mod host;
mod http;
mod keys;
mod pool;
mod probe;
mod remote;
mod runner;
mod shim;
mod ssh;

pub use address::{Address, Hop, HostData, Keys, RunnerAt, Secret, SshAddress};
pub use carrier::{Carrier, Endpoint, Opening, Stream};
pub use command::CommandOutput;
pub use error::RemoteError;
pub use exec::{Exec, ExecHop, ExecOutput, HostKeyRule, exec};
pub use host::{FindAgent, HostError, HostSetup, PreparedHost};
pub use keys::{KeyPair, PublicKeyInfo, is_public_key, public_key_of, read_public_key};
pub use probe::ProbeRequest;
pub use remote::{Config, Remote};
pub use runner::RunnerClient;
pub use shim::ShimClient;
pub use ssh::{HostKeys, MemoryHostKeys};

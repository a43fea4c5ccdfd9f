//! Where a machine is and what opens it.

use std::hash::{Hash, Hasher};
use std::path::PathBuf;

use dstack_backend_types::JobProvisioningData;
use serde::{Deserialize, Serialize};

use crate::RemoteError;

pub use dstack_agent_protocol::Secret;

/// The way to one machine. Equal addresses share one connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// This machine.
    Local {
        /// Home directory of the shim.
        home: PathBuf,
        /// The shim's Unix socket.
        socket: PathBuf,
    },
    /// A machine with an SSH server.
    Ssh(SshAddress),
}

/// An SSH server, and the jump hosts on the way to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SshAddress {
    /// The machine itself.
    pub target: Hop,
    /// Hosts to go through, outermost first.
    pub jumps: Vec<Hop>,
    /// Where the shim listens; `None` is its TCP port.
    pub shim_socket: Option<PathBuf>,
}

/// One SSH login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// Name or address.
    pub host: String,
    /// Port of the SSH server.
    pub port: u16,
    /// Account.
    pub username: String,
    /// Private key as text, OpenSSH or PEM.
    pub private_key: Secret,
    /// Names the machine in the record of host keys, so that an address used again by another
    /// machine is a new machine; `None` means `host:port`.
    pub machine: Option<String>,
}

// The key takes part in equality only: hashing it gains nothing.
impl Hash for Hop {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.host, self.port, &self.username, &self.machine).hash(state);
    }
}

/// The private keys an address is built with.
#[derive(Debug, Clone)]
pub struct Keys {
    /// Opens the machine; the project's key.
    pub target: Secret,
    /// Opens the jump host, where it has another; `None` means the same key.
    pub proxy: Option<Secret>,
}

/// Where a job's runner listens on its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerAt {
    /// A TCP port of the machine's loopback: 10999, or the one mapped to it.
    Port(u16),
    /// A Unix socket.
    Socket(PathBuf),
}

impl From<u16> for RunnerAt {
    fn from(port: u16) -> Self {
        Self::Port(port)
    }
}

/// What backend `local` writes into `backend_data`.
#[derive(Deserialize)]
struct LocalData {
    home: PathBuf,
    socket: PathBuf,
}

/// What is kept in `backend_data` of a host of an SSH fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostData {
    /// Where its shim listens: a socket of the login account, out of reach for jobs that use the host's network.
    pub shim_socket: PathBuf,
}

impl Address {
    /// A shim on this machine.
    pub fn local(home: impl Into<PathBuf>, socket: impl Into<PathBuf>) -> Self {
        Self::Local {
            home: home.into(),
            socket: socket.into(),
        }
    }

    /// An SSH server reached directly.
    pub fn ssh(target: Hop) -> Self {
        Self::Ssh(SshAddress {
            target,
            jumps: Vec::new(),
            shim_socket: None,
        })
    }

    /// The way to a machine that a backend made: backend `local` tells a socket, all others an
    /// SSH server and maybe a host to go through.
    ///
    /// # Errors
    /// [`RemoteError::Invalid`] while the machine has no address yet, or if `backend_data` of
    /// `local` cannot be read.
    pub fn of_machine(data: &JobProvisioningData, keys: &Keys) -> Result<Self, RemoteError> {
        if data.backend.as_str() == "local" {
            let text = data.backend_data.as_deref().unwrap_or_default();
            let local: LocalData = serde_json::from_str(text).map_err(|e| {
                RemoteError::Invalid(format!("backend_data of a local machine: {e}"))
            })?;
            return Ok(Self::local(local.home, local.socket));
        }
        let (Some(host), Some(port)) = (non_empty(data.hostname.as_ref()), data.ssh_port) else {
            let id = &data.instance_id;
            return Err(RemoteError::Invalid(format!(
                "instance {id} has no ssh address yet"
            )));
        };
        let target = Hop {
            host: host.to_owned(),
            port,
            username: data.username.clone(),
            private_key: keys.target.clone(),
            machine: Some(format!("{}@{host}:{port}", data.instance_id)),
        };
        let jumps = data.ssh_proxy.iter().map(|proxy| Hop {
            host: proxy.hostname.clone(),
            port: proxy.port,
            username: proxy.username.clone(),
            private_key: keys.proxy.as_ref().unwrap_or(&keys.target).clone(),
            machine: None,
        });
        let kept = data.backend_data.as_deref();
        // Other backends keep there what only they understand.
        let host = kept.filter(|_| data.backend.as_str() == "remote");
        let host: Option<HostData> = host.and_then(|text| serde_json::from_str(text).ok());
        Ok(Self::Ssh(SshAddress {
            jumps: jumps.collect(),
            target,
            shim_socket: host.map(|host| host.shim_socket),
        }))
    }

    /// Whether the machine is this one.
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::Local { .. })
    }
}

impl Hop {
    /// The name in the record of host keys.
    pub(crate) fn machine(&self) -> String {
        self.machine.clone().unwrap_or_else(|| self.at())
    }

    /// `host:port`, for messages.
    pub(crate) fn at(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

fn non_empty(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(more: &str) -> JobProvisioningData {
        let json = format!(
            r#"{{"instance_type": {{"name": "t", "resources": {{"cpus": 1, "memory_mib": 1024, "gpus": [],
            "spot": false, "disk": {{"size_mib": 1024}}}}}}, "instance_id": "i-1", "region": "r", "price": 0.5,
            "username": "ubuntu", "dockerized": true, {more}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    fn keys() -> Keys {
        Keys {
            target: Secret::new("project"),
            proxy: Some(Secret::new("head")),
        }
    }

    #[test]
    fn a_local_machine_is_reached_by_its_socket() {
        let data = machine(
            r#""backend": "local", "backend_data": "{\"home\": \"/h\", \"socket\": \"/h/shim.sock\", \"runtime\": \"process\"}""#,
        );
        let address = Address::of_machine(&data, &keys()).unwrap();
        assert_eq!(address, Address::local("/h", "/h/shim.sock"));
        assert!(address.is_local());
    }

    #[test]
    fn a_local_machine_without_a_socket_is_an_error() {
        let data = machine(r#""backend": "local", "backend_data": null"#);
        assert!(matches!(
            Address::of_machine(&data, &keys()),
            Err(RemoteError::Invalid(_))
        ));
    }

    #[test]
    fn a_cloud_machine_is_reached_by_ssh_through_its_proxy() {
        let data = machine(
            r#""backend": "aws", "hostname": "10.0.0.1", "ssh_port": 22,
            "ssh_proxy": {"hostname": "head", "username": "h", "port": 2222}"#,
        );
        let Address::Ssh(ssh) = Address::of_machine(&data, &keys()).unwrap() else {
            panic!()
        };
        assert_eq!(
            (ssh.target.at().as_str(), ssh.target.username.as_str()),
            ("10.0.0.1:22", "ubuntu")
        );
        assert_eq!(ssh.target.private_key.expose(), "project");
        assert_eq!(ssh.target.machine(), "i-1@10.0.0.1:22");
        assert_eq!(ssh.jumps.len(), 1);
        assert_eq!(
            (
                ssh.jumps[0].at().as_str(),
                ssh.jumps[0].private_key.expose()
            ),
            ("head:2222", "head")
        );
    }

    #[test]
    fn the_shim_of_an_own_host_listens_where_its_data_says() {
        let data = machine(
            r#""backend": "remote", "hostname": "h", "ssh_port": 22, "backend_data": "{\"shim_socket\": \"/run/s\"}""#,
        );
        let Address::Ssh(ssh) = Address::of_machine(&data, &keys()).unwrap() else {
            panic!()
        };
        assert_eq!(ssh.shim_socket, Some("/run/s".into()));
    }

    #[test]
    fn a_machine_without_an_address_is_not_ready() {
        for more in [
            r#""backend": "aws""#,
            r#""backend": "aws", "hostname": "", "ssh_port": 22"#,
        ] {
            let got = Address::of_machine(&machine(more), &keys());
            assert!(
                matches!(got, Err(RemoteError::Invalid(_))),
                "{more}: {got:?}"
            );
        }
    }
}

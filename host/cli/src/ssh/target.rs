//! From what the server says of a job to entries for OpenSSH.

use std::path::{Path, PathBuf};

use dstack_api::jobs::{Job, JobSubmission};

use super::config::Entry;
use crate::error::CliError;

/// The container's own sshd, where the machine's network is used.
const CONTAINER_SSH_PORT: u16 = 10022;

/// Where to log in, and through what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The last entry's name.
    pub(super) name: String,
    /// Who the tunnel logs in as, instead of the entry's user.
    pub(super) user: String,
    /// In the order in which they build on each other.
    pub(super) entries: Vec<Entry>,
}

/// The entries of one job. `own_keys` tells which keys the person has for a host of their own.
pub(super) fn of(
    run_name: &str,
    job: &Job,
    last: &JobSubmission,
    identity: &Path,
    own_keys: impl Fn(&str) -> Vec<PathBuf>,
) -> Result<Target, CliError> {
    let spec = &job.job_spec;
    let name = if spec.replica_num == 0 && spec.job_num == 0 {
        run_name.to_owned()
    } else {
        spec.job_name.clone()
    };
    let identities = vec![identity.to_owned()];
    let info = job.job_connection_info.as_ref();
    if let Some((hostname, upstream)) = info.and_then(|info| {
        info.sshproxy_hostname
            .clone()
            .zip(info.sshproxy_upstream_id.clone())
    }) {
        let entry = Entry {
            name: name.clone(),
            hostname,
            port: Some(info.and_then(|info| info.sshproxy_port).unwrap_or(22)),
            user: Some(upstream.clone()),
            identities,
            jump: None,
        };
        return Ok(Target {
            name,
            user: format!("{upstream}_root"),
            entries: vec![entry],
        });
    }
    let machine = last
        .job_provisioning_data
        .as_ref()
        .ok_or_else(|| CliError::message("Failed to attach. The run is not provisioned yet."))?;
    let hostname = machine.hostname.clone().ok_or_else(|| {
        CliError::message(
            "Failed to attach. The machine has no address yet; try again in a moment.",
        )
    })?;
    let runtime = last.job_runtime_data.as_ref();
    let user = runtime
        .and_then(|runtime| runtime.username.clone())
        .or_else(|| spec.user.as_ref().and_then(|user| user.username.clone()))
        .unwrap_or_else(|| "root".to_owned());
    let mut entries = Vec::new();
    if let Some(proxy) = &machine.ssh_proxy {
        let mut keys = own_keys(&proxy.hostname);
        keys.push(identity.to_owned());
        entries.push(Entry {
            name: format!("{name}-jump-host"),
            hostname: proxy.hostname.clone(),
            port: Some(proxy.port),
            user: Some(proxy.username.clone()),
            identities: keys,
            jump: None,
        });
    }
    let through = |entries: &[Entry]| entries.last().map(|entry| entry.name.clone());
    if machine.dockerized {
        let port = runtime
            .and_then(|runtime| runtime.ports.as_ref())
            .and_then(|ports| ports.get(&CONTAINER_SSH_PORT).copied())
            .unwrap_or(CONTAINER_SSH_PORT);
        entries.push(Entry {
            name: format!("{name}-host"),
            hostname,
            port: machine.ssh_port,
            user: Some(machine.username.clone()),
            identities: identities.clone(),
            jump: through(&entries),
        });
        entries.push(Entry {
            name: name.clone(),
            hostname: "localhost".to_owned(),
            port: Some(port),
            user: Some(user),
            identities,
            jump: through(&entries),
        });
    } else {
        entries.push(Entry {
            name: name.clone(),
            hostname,
            port: machine.ssh_port,
            user: Some(user),
            identities,
            jump: through(&entries),
        });
    }
    Ok(Target {
        name,
        user: "root".to_owned(),
        entries,
    })
}

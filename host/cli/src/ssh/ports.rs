//! Which ports of the job appear where on this machine.

use std::net::TcpListener;

use dstack_api::jobs::Job;
use dstack_api::runs::Run;

use super::Wishes;
use crate::error::CliError;

/// Ports of our own in the container; never forwarded as a job's.
const OWN_PORTS: std::ops::RangeInclusive<u16> = 10_000..=10_999;

/// One forwarded port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forward {
    /// On this machine.
    pub(crate) local: u16,
    /// In the container.
    pub(crate) remote: u16,
    /// Path and query to show behind the address.
    pub(crate) suffix: String,
}

/// Whether a port can be bound at an address of this machine.
pub(super) fn is_free(host: &str, port: u16) -> bool {
    TcpListener::bind((host, port)).is_ok()
}

/// The job's ports with their local ones: those asked for exactly, the others the same number or the next free one.
pub(super) fn choose(
    run: &Run,
    job: &Job,
    wishes: &Wishes,
    is_free: impl Fn(&str, u16) -> bool,
) -> Result<Vec<Forward>, CliError> {
    let mut wanted: Vec<(u16, Option<u16>, String)> = Vec::new();
    for app in job.job_spec.app_specs.iter().flatten() {
        let path = app.url_path.clone().unwrap_or_default();
        let query = app.url_query_params.iter().flatten();
        let query: Vec<String> = query
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut suffix = path;
        if !suffix.is_empty() && !suffix.starts_with('/') {
            suffix.insert(0, '/');
        }
        if !query.is_empty() {
            suffix.push('?');
            suffix.push_str(&query.join("&"));
        }
        wanted.push((app.port, app.map_to_port, suffix));
    }
    if let Some(port) = job.job_spec.service_port
        && !wanted.iter().any(|(remote, ..)| *remote == port)
    {
        wanted.push((port, None, String::new()));
    }
    for given in &wishes.ports {
        let found = wanted
            .iter_mut()
            .find(|(remote, ..)| *remote == given.container_port);
        match found {
            Some((_, local, _)) => *local = given.local_port,
            None => wanted.push((given.container_port, given.local_port, String::new())),
        }
    }
    wanted.retain(|(remote, ..)| !OWN_PORTS.contains(remote));
    let mut forwards: Vec<Forward> = Vec::new();
    // Exact wishes first, so that a free choice does not take what another asked for.
    wanted.sort_by_key(|(_, local, _)| local.is_none());
    for (remote, local, suffix) in wanted {
        let is_taken = |port: u16, forwards: &[Forward]| {
            forwards.iter().any(|other| other.local == port) || !is_free(&wishes.host, port)
        };
        let local = match local {
            Some(port) if is_taken(port, &forwards) => {
                return Err(CliError::message(format!(
                    "port {port} of {} is in use or not allowed; choose another for the run {}: -p LOCAL:{remote}, or -p '*:{remote}' for any free one",
                    wishes.host,
                    run.run_spec.run_name.as_deref().unwrap_or_default()
                )));
            }
            Some(port) => port,
            None => (remote..=u16::MAX)
                .find(|port| !is_taken(*port, &forwards))
                .ok_or_else(|| {
                    CliError::message(format!(
                        "no port from {remote} up is free on {}; choose one: -p LOCAL:{remote}",
                        wishes.host
                    ))
                })?,
        };
        forwards.push(Forward {
            local,
            remote,
            suffix,
        });
    }
    forwards.sort_by_key(|forward| forward.remote);
    Ok(forwards)
}

//! The way to a running job, for an SSH proxy that stands before the jobs.

use std::sync::Arc;

use dstack_agent_protocol::CONTAINER_SSH_PORT;
use dstack_api::jobs::JobStatus;
use dstack_api::sshproxy::{GetUpstreamResponse, UpstreamHost};
use dstack_backend_types::{JobProvisioningData, Secret};
use dstack_engine::ids::JobId;
use dstack_engine::model::JobRow;
use dstack_store::{Sealed, Store, instances, jobs, projects, runs, users};

use super::keyring::Keyring;
use crate::error::ApiError;

/// The address of a container's sshd on its own machine.
const LOOPBACK: &str = "localhost";

struct Found {
    job: JobRow,
    /// The key of the project that owns the machine.
    machine_key: Sealed,
    /// The key of the project that owns the job.
    job_key: Sealed,
    authorized: Vec<String>,
}

/// The hops to the job submission of this id, and the keys that may go them.
pub(crate) async fn upstream(
    store: &Store,
    keyring: &Keyring,
    id: &str,
) -> Result<GetUpstreamResponse, ApiError> {
    let missing = || ApiError::not_exists("Resource not found");
    let id: JobId = id.parse().map_err(|_| missing())?;
    let found = store.read_as(move |tx| find(tx, id)).await?;
    let found = found.ok_or_else(missing)?;
    let open = |sealed: &Sealed| {
        keyring
            .open(sealed)
            .map_err(|error| ApiError::Internal(error.to_string()))
    };
    let data = found.job.provisioning_data.as_deref().ok_or_else(missing)?;
    let hosts = way(
        data,
        &found,
        &open(&found.machine_key)?,
        &open(&found.job_key)?,
    );
    Ok(GetUpstreamResponse {
        hosts: hosts.ok_or_else(missing)?,
        authorized_keys: found.authorized,
    })
}

fn find(tx: &mut dyn dstack_store::Tx, id: JobId) -> Result<Option<Found>, ApiError> {
    let job = jobs::get(tx, id)?.filter(|job| job.status == JobStatus::Running);
    let Some(job) = job else { return Ok(None) };
    let Some(run) = runs::get(tx, job.run_id)? else {
        return Ok(None);
    };
    let owner = match job.instance_id {
        Some(instance) => instances::get(tx, instance)?.map(|instance| instance.project_id),
        None => None,
    };
    let own = projects::get(tx, job.project_id)?;
    let lender = projects::get(tx, owner.unwrap_or(job.project_id))?;
    let (Some(own), Some(lender)) = (own, lender) else {
        return Ok(None);
    };
    let mut authorized: Vec<String> = run.spec.ssh_key_pub.iter().cloned().collect();
    let user = users::get(tx, run.user_id)?;
    if user
        .as_ref()
        .is_some_and(|user| user.active && !user.deleted)
    {
        authorized.extend(user.and_then(|user| user.ssh_public_key));
        for key in users::public_keys(tx, run.user_id)? {
            authorized.push(key.public_key);
        }
    }
    let mut seen = std::collections::HashSet::new();
    authorized.retain(|key| seen.insert(key.trim().to_owned()));
    Ok(Some(Found {
        job,
        machine_key: lender.ssh_private_key,
        job_key: own.ssh_private_key,
        authorized,
    }))
}

fn way(
    data: &JobProvisioningData,
    found: &Found,
    machine_key: &Secret<String>,
    job_key: &Secret<String>,
) -> Option<Vec<UpstreamHost>> {
    let hostname = data.hostname.clone().filter(|host| !host.is_empty())?;
    let mut hops = Vec::new();
    if let Some(proxy) = &data.ssh_proxy {
        hops.push(UpstreamHost {
            host: proxy.hostname.clone(),
            port: proxy.port,
            user: proxy.username.clone(),
            private_key: machine_key.clone(),
        });
    }
    let runtime = found.job.runtime_data.as_ref().map(Arc::as_ref);
    let inner_port = runtime
        .and_then(|data| data.ports.as_ref())
        .and_then(|ports| ports.get(&CONTAINER_SSH_PORT).copied());
    let user = runtime
        .and_then(|data| data.username.clone())
        .or_else(|| {
            let user = found.job.spec.user.as_ref()?;
            user.username.clone()
        })
        .unwrap_or_else(|| "root".to_owned());
    if data.dockerized {
        hops.push(UpstreamHost {
            host: hostname,
            port: data.ssh_port.unwrap_or(22),
            user: data.username.clone(),
            private_key: machine_key.clone(),
        });
        hops.push(UpstreamHost {
            host: LOOPBACK.to_owned(),
            port: inner_port.unwrap_or(CONTAINER_SSH_PORT),
            user,
            private_key: job_key.clone(),
        });
    } else {
        hops.push(UpstreamHost {
            host: hostname,
            port: inner_port.or(data.ssh_port).unwrap_or(22),
            user,
            private_key: job_key.clone(),
        });
    }
    Some(hops)
}

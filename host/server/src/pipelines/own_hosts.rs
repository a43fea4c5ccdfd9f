//! Own hosts: the ways to them, and their preparation.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use dstack_backend_types::{BackendType, CpuArchitecture, JobProvisioningData};
use dstack_engine::changes::Changes;
use dstack_engine::ids::InstanceId;
use dstack_engine::instances::{Answer, View};
use dstack_engine::model::InstanceRow;
use dstack_engine::ssh_hosts::HostFacts;
use dstack_remote::{
    Address, Hop, HostError, HostSetup, Keys, PreparedHost, RemoteError, Secret, SshAddress,
};
use dstack_store::ssh_hosts as logins;

use super::Context;
use super::driver::StepError;
use super::facts::ProjectFacts;
use crate::services::fleets::own_hosts::Login;

/// The opened logins of hosts, since every call to a host behind another needs one.
#[derive(Default)]
pub(crate) struct Logins(Mutex<HashMap<InstanceId, Arc<Login>>>);

/// Hosts whose agents this process has found to be of its own version, or has replaced.
#[derive(Default)]
pub(crate) struct Upgraded(Mutex<HashSet<InstanceId>>);

/// The login of a host; `None` if it is gone.
async fn login(cx: &Context, id: InstanceId) -> Result<Option<Arc<Login>>, StepError> {
    let known = {
        let cache = cx.logins.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(&id).cloned()
    };
    if known.is_some() {
        return Ok(known);
    }
    let Some(sealed) = cx.store.read(move |tx| logins::get(tx, id)).await? else {
        return Ok(None);
    };
    let text = cx.keyring.open(&sealed)?;
    let Ok(login) = serde_json::from_str::<Login>(text.expose()) else {
        tracing::error!(instance = %id, "the stored login of a host cannot be read");
        return Ok(None);
    };
    let login = Arc::new(login);
    let mut cache = cx.logins.0.lock().unwrap_or_else(PoisonError::into_inner);
    cache.insert(id, Arc::clone(&login));
    Ok(Some(login))
}

/// Whether these changes are the end of an own host.
pub(super) fn is_gone(instance: &InstanceRow, changes: &Changes) -> bool {
    let ends = |status: dstack_api::instances::InstanceStatus| status.is_finished();
    instance.ssh_host.is_some()
        && changes
            .instances
            .iter()
            .any(|patch| patch.id == instance.id && patch.status.is_some_and(ends))
}

/// Forgets the keys of a host that is gone.
pub(super) async fn forget(cx: &Context, id: InstanceId) -> Result<(), StepError> {
    {
        let mut cache = cx.logins.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.remove(&id);
    }
    cx.store.write(move |tx| logins::remove(tx, id)).await?;
    Ok(())
}

fn host_id(data: &JobProvisioningData) -> Option<InstanceId> {
    if data.backend != BackendType::REMOTE {
        return None;
    }
    data.instance_id.parse().ok()
}

/// The way to a machine, own host or not.
pub(super) async fn way(
    cx: &Context,
    data: &JobProvisioningData,
    project: &ProjectFacts,
) -> Result<Result<Address, RemoteError>, StepError> {
    let mut keys = project.keys();
    if data.ssh_proxy.is_some()
        && let Some(id) = host_id(data)
        && let Some(login) = login(cx, id).await?
    {
        keys.proxy = login.proxy_key.as_deref().map(Secret::new);
    }
    Ok(Address::of_machine(data, &keys))
}

/// The variables that the fleet of an own host gives to its jobs.
pub(super) async fn env(
    cx: &Context,
    data: Option<&JobProvisioningData>,
) -> Result<BTreeMap<String, String>, StepError> {
    let Some(id) = data.and_then(host_id) else {
        return Ok(BTreeMap::new());
    };
    let login = login(cx, id).await?;
    Ok(login.map(|login| login.env.clone()).unwrap_or_default())
}

/// The way to a host with one of the user's keys.
fn first_way(id: InstanceId, host: &Login, key: &str) -> Address {
    let jumps = host.proxy.iter().map(|proxy| Hop {
        host: proxy.hostname.clone(),
        port: proxy.port,
        username: proxy.username.clone(),
        private_key: Secret::new(host.proxy_key.as_deref().unwrap_or(key)),
        machine: None,
    });
    Address::Ssh(SshAddress {
        jumps: jumps.collect(),
        target: Hop {
            host: host.hostname.clone(),
            port: host.port,
            username: host.user.clone(),
            private_key: Secret::new(key),
            // The same name as for all later connections, so that the host key is held to from the first one on.
            machine: Some(format!("{id}@{}:{}", host.hostname, host.port)),
        },
        shim_socket: None,
    })
}

fn gone(why: &str) -> Answer {
    Answer::Unprepared {
        why: why.to_owned(),
        is_final: true,
        was_entered: false,
    }
}

fn refused(error: HostError) -> Answer {
    Answer::Unprepared {
        why: error.reason,
        is_final: error.is_final,
        was_entered: error.was_entered,
    }
}

/// Brings the agents to a host and asks its shim, now with the project's key.
pub(super) async fn prepare(
    cx: &Context,
    view: &View,
    project: &ProjectFacts,
) -> Result<Answer, StepError> {
    let id = view.instance.id;
    let Some(login) = login(cx, id).await? else {
        return Ok(gone(
            "the server has no key for the host; apply the fleet again",
        ));
    };
    let setup = HostSetup {
        instance: id.to_string(),
        public_key: project.public_key.trim().to_owned(),
        env: login.env.clone(),
        find_agent: cx.agents.finder(),
    };
    let mut answer = gone("the server has no key for the host");
    for key in &login.keys {
        let at = first_way(id, &login, key);
        match cx.machines.prepare(&at, &setup).await {
            Ok(prepared) => {
                return Ok(greet(cx, id, &login, project, prepared).await);
            }
            Err(error) => answer = refused(error),
        }
    }
    Ok(answer)
}

/// The first call with the project's key.
async fn greet(
    cx: &Context,
    id: InstanceId,
    login: &Login,
    project: &ProjectFacts,
    prepared: PreparedHost,
) -> Answer {
    let keys: Keys = project.keys();
    let Address::Ssh(mut ssh) = first_way(id, login, keys.target.expose()) else {
        return gone("own hosts are reached by ssh");
    };
    ssh.shim_socket = Some(prepared.data.shim_socket.clone());
    let at = Address::Ssh(ssh);
    if let Err(error) = cx.machines.health(&at, false).await {
        let hint = match error {
            RemoteError::KeyRefused { .. } => {
                "; the project's key was put into ~/.ssh/authorized_keys, does its ssh server read another file?"
            }
            _ => "",
        };
        return Answer::Unprepared {
            why: format!("the shim was started, but cannot be reached: {error}{hint}"),
            is_final: matches!(error, RemoteError::KeyRefused { .. }),
            was_entered: true,
        };
    }
    let info = prepared.info;
    let gpu_driver = match info.gpu_count {
        0 => None,
        _ => cx.machines.gpu_driver(&at).await,
    };
    Answer::Prepared(Box::new(HostFacts {
        arch: match prepared.arch {
            "arm64" => CpuArchitecture::Arm,
            _ => CpuArchitecture::X86,
        },
        gpu_vendor: info.gpu_vendor,
        gpu_name: info.gpu_name,
        gpu_memory_mib: info.gpu_memory,
        gpu_count: info.gpu_count,
        gpu_driver,
        addresses: info.addresses,
        disk_bytes: info.disk_size,
        cpus: info.cpus,
        memory_bytes: info.memory,
        backend_data: serde_json::to_string(&prepared.data).ok(),
    }))
}

/// After the server got newer: the agents of a host without jobs are replaced, once in the life of this process.
pub(super) async fn upgrade(cx: &Context, view: &View, at: &Address) {
    let id = view.instance.id;
    if view.instance.ssh_host.is_none() || !view.jobs.is_empty() {
        return;
    }
    let is_new = {
        let mut known = cx.upgraded.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(id)
    };
    if !is_new {
        return;
    }
    match cx.machines.upgrade(at, &cx.agents.finder()).await {
        Ok(None) => {}
        Ok(Some((from, to))) => {
            tracing::info!(instance = %id, from, to, "the agents of a host were replaced")
        }
        Err(error) => {
            tracing::warn!(instance = %id, %error, "the agents of a host were not replaced; it works with those it has");
        }
    }
}

/// Clears a host, with the project's key if it is ready, else with the user's.
pub(super) async fn clear(
    cx: &Context,
    view: &View,
    project: &ProjectFacts,
) -> Result<Answer, StepError> {
    let instance = &view.instance;
    let login = login(cx, instance.id).await?;
    let mut ways = Vec::new();
    if let Some(data) = &instance.provisioning_data
        && let Ok(at) = way(cx, data, project).await?
    {
        ways.push(at);
    }
    if let Some(login) = &login {
        let by_key = login.keys.iter();
        ways.extend(by_key.map(|key| first_way(instance.id, login, key)));
    }
    let mut answer = gone("the server has no key for the host any more");
    for at in ways {
        let id = instance.id.to_string();
        match cx.machines.clear(&at, &id, &project.public_key).await {
            Ok(holder) => {
                if let Some(holder) = holder {
                    tracing::info!(instance = %id, holder, "the host is another instance's by now and stays as it is");
                }
                return Ok(Answer::Ended);
            }
            Err(error) => {
                let was_refused = error.is_final && !error.was_entered;
                answer = refused(error);
                if !was_refused {
                    break;
                }
            }
        }
    }
    Ok(answer)
}

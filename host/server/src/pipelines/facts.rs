//! What steps need of projects and users again and again: names and keys. Cached for a minute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dstack_agent_protocol::Secret;
use dstack_backend_types::SshKey;
use dstack_engine::ids::{GatewayReplicaId, ProjectId, UserId};
use dstack_engine::model::{InstanceRow, RunRow};
use dstack_remote::{KeyPair, Keys, RemoteError};
use dstack_store::{DbError, projects, users};

use super::Context;
use super::driver::StepError;

const KEEP: Duration = Duration::from_secs(60);

/// A project as its machines know it.
pub(crate) struct ProjectFacts {
    pub(crate) name: Arc<str>,
    pub(crate) public_key: String,
    private_key: Secret,
}

impl ProjectFacts {
    /// The keys that open the project's machines.
    pub(crate) fn keys(&self) -> Keys {
        Keys {
            target: self.private_key.clone(),
            proxy: None,
        }
    }

    /// The key by which the nodes of a replica reach each other; the same for all of them.
    pub(crate) fn replica_key(
        &self,
        run: &RunRow,
        replica_num: u32,
    ) -> Result<KeyPair, RemoteError> {
        let label = format!("dstack replica {replica_num} of run {}", run.id);
        KeyPair::derive(&self.private_key, &label)
    }

    /// The key that opens one machine of a gateway.
    pub(crate) fn gateway_key(&self, id: GatewayReplicaId) -> Result<KeyPair, RemoteError> {
        KeyPair::derive(&self.private_key, &format!("dstack gateway replica {id}"))
    }

    /// The project's key for a backend; only its public half leaves the server.
    pub(crate) fn key(&self) -> SshKey {
        SshKey::public(self.public_key.clone())
    }
}

/// The cache.
#[derive(Default)]
pub(crate) struct Facts(Mutex<HashMap<ProjectId, (Instant, Arc<ProjectFacts>)>>);

/// The project's facts.
pub(crate) async fn project(cx: &Context, id: ProjectId) -> Result<Arc<ProjectFacts>, StepError> {
    {
        let cache = cx.facts.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, facts)) = cache.get(&id)
            && since.elapsed() < KEEP
        {
            return Ok(Arc::clone(facts));
        }
    }
    let row = cx.store.read(move |tx| projects::get(tx, id)).await?;
    let row = row.ok_or_else(|| DbError::Missing {
        what: format!("project {id}"),
    })?;
    let private_key = cx.keyring.open(&row.ssh_private_key)?;
    let facts = Arc::new(ProjectFacts {
        name: Arc::from(row.name.as_str()),
        public_key: row.ssh_public_key,
        private_key: Secret::new(private_key.expose().clone()),
    });
    let mut cache = cx.facts.0.lock().unwrap_or_else(PoisonError::into_inner);
    cache.insert(id, (Instant::now(), Arc::clone(&facts)));
    Ok(facts)
}

/// The project whose key opens a job's machine: the job's own, or the one that lends the machine.
pub(crate) async fn owner(
    cx: &Context,
    own: &Arc<ProjectFacts>,
    id: ProjectId,
    machine: Option<&InstanceRow>,
) -> Result<Arc<ProjectFacts>, StepError> {
    match machine {
        Some(machine) if machine.project_id != id => project(cx, machine.project_id).await,
        Some(_) | None => Ok(Arc::clone(own)),
    }
}

/// Name and public keys of a run's user: the key of the run first.
pub(crate) async fn user(cx: &Context, run: &RunRow) -> Result<(String, Vec<String>), StepError> {
    let id: UserId = run.user_id;
    let (row, added) = cx
        .store
        .read(move |tx| Ok((users::get(tx, id)?, users::public_keys(tx, id)?)))
        .await?;
    let mut keys: Vec<String> = run
        .spec
        .ssh_key_pub
        .iter()
        .map(|key| key.trim().to_owned())
        .collect();
    let (name, own) = row
        .map(|row| (row.name, row.ssh_public_key))
        .unwrap_or_default();
    let added = added.into_iter().map(|key| key.public_key);
    for key in own.into_iter().chain(added) {
        let key = key.trim().to_owned();
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    Ok((name, keys))
}

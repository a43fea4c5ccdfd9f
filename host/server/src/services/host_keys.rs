//! Host keys of machines: accepted when a machine is met for the first time, stored, and then held to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dstack_remote::HostKeys;
use dstack_store::instances::{self, InstancesFilter};
use dstack_store::{DbError, News, Page, Store, Topic, meta};
use tokio::runtime::Handle;

const PREFIX: &str = "host-key ";

/// The keys, in memory and in the database.
pub(crate) struct StoredHostKeys {
    store: Store,
    runtime: Handle,
    known: Mutex<HashMap<String, String>>,
}

impl StoredHostKeys {
    /// Reads what is known; keys of machines that are gone are dropped.
    ///
    /// # Errors
    /// The database.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) async fn load(store: Store) -> Result<Arc<Self>, DbError> {
        let mut known = stored(&store).await?;
        if !known.is_empty() {
            let gone = gone(&store, &known).await?;
            known.retain(|machine, _| !gone.contains(machine));
            store
                .write(move |tx| {
                    gone.iter()
                        .try_for_each(|machine| meta::remove(tx, &format!("{PREFIX}{machine}")))
                })
                .await?;
        }
        Ok(Arc::new(Self {
            store,
            runtime: Handle::current(),
            known: Mutex::new(known),
        }))
    }

    /// Another server has met machines for the first time: their keys hold here too.
    pub(crate) fn reread(self: &Arc<Self>) {
        let keys = Arc::clone(self);
        self.runtime.spawn(async move {
            match stored(&keys.store).await {
                Ok(found) => keys.known().extend(found),
                Err(error) => tracing::error!(%error, "host keys cannot be read"),
            }
        });
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn stored(store: &Store) -> Result<HashMap<String, String>, DbError> {
    let found = store.read(|tx| meta::starting_with(tx, PREFIX)).await?;
    let machine =
        |(name, key): (String, String)| Some((name.strip_prefix(PREFIX)?.to_owned(), key));
    Ok(found.into_iter().filter_map(machine).collect())
}

/// A machine is recorded as `<instance id>@<address>`, a jump host by its address alone; jump hosts are kept.
async fn gone(store: &Store, known: &HashMap<String, String>) -> Result<Vec<String>, DbError> {
    let filter = InstancesFilter {
        projects: None,
        imported: Vec::new(),
        fleets: None,
        only_active: true,
        page: Page {
            limit: u32::MAX,
            ..Page::default()
        },
    };
    let living: Vec<String> = store
        .read(move |tx| instances::list(tx, &filter))
        .await?
        .into_iter()
        .filter_map(|machine| {
            let data = machine.provisioning_data.as_ref()?;
            Some(data.instance_id.clone())
        })
        .collect();
    let is_gone = |machine: &&String| {
        let id = machine.rsplit_once('@').map(|(id, _)| id);
        id.is_some_and(|id| !living.iter().any(|living| living == id))
    };
    Ok(known.keys().filter(is_gone).cloned().collect())
}

impl HostKeys for StoredHostKeys {
    fn recorded(&self, machine: &str) -> Option<String> {
        self.known().get(machine).cloned()
    }

    fn record(&self, machine: &str, key: &str) {
        self.known().insert(machine.to_owned(), key.to_owned());
        let (store, name, key) = (
            self.store.clone(),
            format!("{PREFIX}{machine}"),
            key.to_owned(),
        );
        self.runtime.spawn(async move {
            match store.write(move |tx| meta::set(tx, &name, &key)).await {
                Ok(()) => store.tell(News::Changed(Topic::HostKeys)),
                Err(error) => {
                    tracing::error!(%error, "a machine's host key was not stored; it is accepted anew after a restart");
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::StoredHostKeys;
    use dstack_remote::HostKeys as _;
    use dstack_store::{Store, StoreConfig, meta};

    #[tokio::test]
    async fn keys_outlive_the_server_and_end_with_their_machine() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Store::open(StoreConfig::file(folder.path().join("sqlite.db")));
        let store = open().unwrap();
        let keys = StoredHostKeys::load(store.clone()).await.unwrap();
        assert_eq!(keys.recorded("10.0.0.9:22"), None);
        keys.record("10.0.0.9:22", "ssh-ed25519 AAAA");
        keys.record("i-1@10.0.0.1:22", "ssh-ed25519 BBBB");
        let stored = || async {
            store
                .read(|tx| meta::starting_with(tx, super::PREFIX))
                .await
                .unwrap()
                .len()
        };
        while stored().await < 2 {
            tokio::task::yield_now().await;
        }

        let again = StoredHostKeys::load(store.clone()).await.unwrap();
        assert_eq!(
            again.recorded("10.0.0.9:22").as_deref(),
            Some("ssh-ed25519 AAAA")
        );
        assert_eq!(
            again.recorded("i-1@10.0.0.1:22"),
            None,
            "no such machine lives"
        );
        assert_eq!(stored().await, 1);
    }
}

//! The host service `ledger`: what backends make beside machines is stored before it is made.

use std::time::Duration;

use dstack_backend_types::services::LedgerRequest;
use dstack_backend_types::{BackendError, BackendType, ErrorKind};
use dstack_engine::ids::ProjectId;
use dstack_plugins::{Caller, ExternalService, ServiceAnswer};
use dstack_store::{DbError, Store, side_resources};
use jiff::SignedDuration;
use uuid::Uuid;

use crate::app::now;

/// A call that makes something ends within its deadline; for so long after that nobody can say whether its machine is there.
const AFTER_DEADLINE: Duration = Duration::from_secs(60);

/// The ledger over the store.
#[derive(Clone)]
pub(crate) struct Ledger {
    store: Store,
    first_look: SignedDuration,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ledger")
    }
}

impl Ledger {
    /// Over this store; calls that make something end within `deadline`.
    pub(crate) fn new(store: Store, deadline: Duration) -> Self {
        let first_look = deadline.saturating_add(AFTER_DEADLINE);
        Self {
            store,
            first_look: SignedDuration::try_from(first_look).unwrap_or(SignedDuration::MAX),
        }
    }

    async fn keep(&self, caller: &Caller, request: LedgerRequest) -> Result<(), BackendError> {
        let project = caller
            .project
            .as_deref()
            .and_then(|id| id.parse::<Uuid>().ok());
        let project = ProjectId(project.ok_or_else(|| {
            BackendError::invalid("the ledger is for backends that were opened for a project")
        })?);
        let backend = BackendType::new(caller.backend.clone());
        let first_look = self.first_look;
        let stored = self.store.write(move |tx| match &request {
            LedgerRequest::Declare { resource } => {
                let now = now();
                let look = now.saturating_add(first_look).unwrap_or(now);
                side_resources::declare(tx, project, &backend, resource, now, look)
            }
            LedgerRequest::Settle {
                provider_ref,
                kind,
                name,
            } => side_resources::settle(tx, project, &backend, provider_ref, kind, name),
        });
        stored.await.map_err(not_stored)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "a function for map_err")]
fn not_stored(error: DbError) -> BackendError {
    tracing::error!(%error, "an entry of the ledger was not stored");
    // Its own words may quote what was to be stored.
    BackendError::new(ErrorKind::Transport, "the ledger could not be written")
}

impl ExternalService for Ledger {
    fn answer<'a>(&'a self, caller: &'a Caller, request: &'a [u8]) -> ServiceAnswer<'a> {
        Box::pin(async move {
            let request: LedgerRequest = serde_json::from_slice(request)
                .map_err(|e| BackendError::invalid(e.to_string()))?;
            self.keep(caller, request).await?;
            Ok(b"null".to_vec())
        })
    }
}

//! Services that need another room, handed in by the one who starts the host.

use dstack_backend_types::BackendError;
use std::{collections::BTreeMap, fmt, pin::Pin, sync::Arc};

/// The answer of a service that is handed in.
pub type ServiceAnswer<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<u8>, BackendError>> + Send + 'a>>;

/// Who asks for a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The backend.
    pub backend: String,
    /// The project that the backend was opened for; `None` for a look at a configuration alone.
    pub project: Option<String>,
    /// The call during which it asks, never 0.
    pub call: u64,
}

/// A service that needs another room. Its future is dropped when the call that asks is cancelled, but for the ledger's.
pub trait ExternalService: Send + Sync + fmt::Debug {
    /// Told to plugins by `describe`.
    fn version(&self) -> u32 {
        1
    }
    /// Answers one request, in the service's own bytes.
    fn answer<'a>(&'a self, caller: &'a Caller, request: &'a [u8]) -> ServiceAnswer<'a>;
}

/// Services handed in, by their number: `ledger` 10, `ssh` 11, and `catalog` 2 in place of the files beside the plugins. What they
/// are given was checked: payloads are understood, limits are kept. An absent one answers `unsupported`.
#[derive(Debug, Clone, Default)]
pub struct ExternalServices(BTreeMap<u32, Arc<dyn ExternalService>>);

impl ExternalServices {
    /// Adds a service.
    #[must_use]
    pub fn with(mut self, number: u32, service: Arc<dyn ExternalService>) -> Self {
        self.0.insert(number, service);
        self
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.0.contains_key(&number)
    }

    pub(super) fn versions(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0
            .iter()
            .map(|(number, service)| (*number, service.version()))
    }

    pub(super) async fn answer(
        &self,
        caller: &Caller,
        service: u32,
        request: &[u8],
    ) -> Result<Vec<u8>, BackendError> {
        match self.0.get(&service) {
            Some(external) => external.answer(caller, request).await,
            None => Err(BackendError::unsupported(format!(
                "this host has no service {service}"
            ))),
        }
    }
}

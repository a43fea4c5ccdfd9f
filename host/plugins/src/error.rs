//! How a call ends badly.

use dstack_backend_types::{BackendError, ErrorKind};

/// A failed call: which backend, which method, and what was wrong.
#[derive(Debug, Clone, thiserror::Error)]
#[error("backend {backend}: {method}: {}", error.message)]
pub struct CallError {
    /// The backend's name.
    pub backend: String,
    /// The method's name, or what was done instead of a call (`open`).
    pub method: &'static str,
    /// The plugin's own error, or the host's about it.
    pub error: BackendError,
}

impl CallError {
    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.error.kind
    }
}

//! The one error that crosses the border, as of 1.0.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    NoCapacity,
    NotFound,
    Auth,
    Quota,
    NotYetTerminated,
    Invalid,
    RateLimited,
    Unsupported,
    Panic,
    Transport,
    Cancelled,
    Timeout,
    Unavailable,
    Provisioning,
    SkipOffer,
    PlacementGroupInUse,
    PlacementGroupNotSupported,
    NoCatalog,
    #[serde(other)]
    Internal,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackendError {
    pub kind: ErrorKind,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
    #[serde(default)]
    pub details: Map<String, Value>,
}

impl BackendError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after_ms: None,
            details: Map::new(),
        }
    }
}

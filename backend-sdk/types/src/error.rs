//! The one error that crosses the border.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What went wrong, as far as the host acts differently. An unknown word is read as [`ErrorKind::Internal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Nothing free of this kind: try the next offer.
    NoCapacity,
    /// The thing does not exist at the provider.
    NotFound,
    /// The provider refuses the credentials; `details.fields` lists the paths of the fields at fault.
    Auth,
    /// A limit of the account: try the next offer.
    Quota,
    /// Deletion is under way: call again in a few seconds.
    NotYetTerminated,
    /// The request or configuration makes no sense.
    Invalid,
    /// Too many requests: wait `retry_after_ms`.
    RateLimited,
    /// The plugin lacks the method or service.
    Unsupported,
    /// The plugin panicked.
    Panic,
    /// The provider or the plugin's process could not be reached.
    Transport,
    /// The host told the call to end.
    Cancelled,
    /// The call's deadline passed.
    Timeout,
    /// The backend is switched off for now, or its queue is full.
    Unavailable,
    /// The attempt to provision is over; asking again is of no use.
    Provisioning,
    /// The offer is known to be bad now; does not count as a failed attempt.
    SkipOffer,
    /// The placement group still has members.
    PlacementGroupInUse,
    /// This instance type cannot be placed.
    PlacementGroupNotSupported,
    /// The host has no catalog of the provider: it has no offers until somebody adds one.
    NoCatalog,
    /// Anything else, and every word a newer plugin may bring.
    #[serde(other)]
    Internal,
}

impl ErrorKind {
    /// Whether the next offer should be tried after it.
    pub const fn tries_next_offer(self) -> bool {
        matches!(self, Self::NoCapacity | Self::Quota | Self::SkipOffer)
    }

    /// Whether the same call may succeed later.
    pub const fn is_temporary(self) -> bool {
        matches!(
            self,
            Self::NotYetTerminated
                | Self::RateLimited
                | Self::Transport
                | Self::Cancelled
                | Self::Timeout
                | Self::Unavailable
        )
    }

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoCapacity => "no_capacity",
            Self::NotFound => "not_found",
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::NotYetTerminated => "not_yet_terminated",
            Self::Invalid => "invalid",
            Self::RateLimited => "rate_limited",
            Self::Unsupported => "unsupported",
            Self::Panic => "panic",
            Self::Transport => "transport",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Provisioning => "provisioning",
            Self::SkipOffer => "skip_offer",
            Self::PlacementGroupInUse => "placement_group_in_use",
            Self::PlacementGroupNotSupported => "placement_group_not_supported",
            Self::NoCatalog => "no_catalog",
            Self::Internal => "internal",
        }
    }
}

/// An error of a backend or of a host service. Its message is for people: values, no secrets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct BackendError {
    /// What the host acts on.
    pub kind: ErrorKind,
    /// Lower case, no final stop.
    #[serde(default)]
    pub message: String,
    /// When to ask again, if the provider said so.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
    /// Facts for programs, e.g. `fields` of [`ErrorKind::Auth`].
    #[serde(default)]
    pub details: Map<String, Value>,
}

impl BackendError {
    /// An error without details.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after_ms: None,
            details: Map::new(),
        }
    }

    /// Nothing free of this kind.
    pub fn no_capacity(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NoCapacity, message)
    }

    /// The thing does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// Deletion is under way.
    pub fn not_yet_terminated(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotYetTerminated, message)
    }

    /// The request or configuration makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// The method, service or option is not there.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// The provisioning attempt is over.
    pub fn provisioning(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Provisioning, message)
    }

    /// Anything else.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Refused credentials, with the paths of the configuration's fields at fault.
    pub fn auth<P: Into<String>>(
        message: impl Into<String>,
        fields: impl IntoIterator<Item = P>,
    ) -> Self {
        let fields: Vec<Value> = fields
            .into_iter()
            .map(|field| Value::String(field.into()))
            .collect();
        Self::new(ErrorKind::Auth, message).with_detail("fields", fields)
    }

    /// Adds when to ask again.
    #[must_use]
    pub fn retry_after_ms(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }

    /// Adds a fact for programs.
    #[must_use]
    pub fn with_detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }
}

//! What can be rented, where, for how much.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::backend_type::BackendType;
use crate::instances::InstanceType;

/// A kind of machine in a region at a price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceOffer {
    /// Who rents it out.
    pub backend: BackendType,
    /// What it is.
    pub instance: InstanceType,
    /// Where it is.
    pub region: String,
    /// US dollars an hour.
    pub price: f64,
    /// For the backend itself; nobody else reads it.
    #[serde(default)]
    pub backend_data: Map<String, Value>,
}

/// Whether an offer can be had now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceAvailability {
    /// The provider says so.
    Available,
    /// The provider has none.
    NotAvailable,
    /// The account's limit forbids it.
    NoQuota,
    /// The account has no money left.
    NoBalance,
    /// An instance of ours that waits for a job.
    Idle,
    /// An instance of ours that is in use.
    Busy,
    /// Nobody can tell before trying. Words of a newer plugin are read as this.
    #[default]
    #[serde(other)]
    Unknown,
}

impl InstanceAvailability {
    /// Whether trying makes sense.
    pub const fn is_available(self) -> bool {
        matches!(self, Self::Unknown | Self::Available | Self::Idle)
    }

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::NotAvailable => "not_available",
            Self::NoQuota => "no_quota",
            Self::NoBalance => "no_balance",
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Unknown => "unknown",
        }
    }
}

/// Which agent the host talks to first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceRuntime {
    /// The shim, which starts containers on the machine.
    #[default]
    Shim,
    /// The runner, as the entry point of the provider's container.
    Runner,
}

/// An offer together with what is known about it now. Fields are those of the HTTP API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceOfferWithAvailability {
    /// Who rents it out.
    pub backend: BackendType,
    /// What it is; of a share, what the share has.
    pub instance: InstanceType,
    /// Where it is.
    pub region: String,
    /// US dollars an hour, of the whole machine.
    pub price: f64,
    /// For the backend itself; nobody else reads it.
    #[serde(default)]
    pub backend_data: Map<String, Value>,
    /// Whether it can be had now.
    #[serde(default)]
    pub availability: InstanceAvailability,
    /// Zones of the region to choose from; `None` if they do not matter.
    #[serde(default)]
    pub availability_zones: Option<Vec<String>>,
    /// Which agent will answer.
    #[serde(default)]
    pub instance_runtime: InstanceRuntime,
    /// Blocks of this share.
    #[serde(default = "one")]
    pub blocks: u32,
    /// Blocks of the whole machine.
    #[serde(default = "one")]
    pub total_blocks: u32,
    /// Seconds from the request to a usable instance; absent means the backend's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_timeout_s: Option<u64>,
}

impl InstanceOfferWithAvailability {
    /// An offer with defaults for everything that is not given.
    pub fn new(offer: InstanceOffer, availability: InstanceAvailability) -> Self {
        Self {
            backend: offer.backend,
            instance: offer.instance,
            region: offer.region,
            price: offer.price,
            backend_data: offer.backend_data,
            availability,
            availability_zones: None,
            instance_runtime: InstanceRuntime::Shim,
            blocks: 1,
            total_blocks: 1,
            provisioning_timeout_s: None,
        }
    }

    /// The offer without what is known about it now.
    pub fn offer(&self) -> InstanceOffer {
        InstanceOffer {
            backend: self.backend.clone(),
            instance: self.instance.clone(),
            region: self.region.clone(),
            price: self.price,
            backend_data: self.backend_data.clone(),
        }
    }
}

const fn one() -> u32 {
    1
}

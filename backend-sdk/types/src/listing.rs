//! What stands in a cloud account, for finding what nobody knows of any more.

use serde::{Deserialize, Serialize};

/// One thing at the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudResource {
    /// The backend's word for the kind: `instance`, `disk`, `ip`, `ssh_key`.
    pub kind: String,
    /// The provider's id.
    pub id: String,
    /// The provider's name of it.
    #[serde(default)]
    pub name: Option<String>,
}

/// All that was made for one attempt to provision, known by its `provider_ref`, in one region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceGroup {
    /// What the host matches with its rows. Resources without one are not listed.
    pub provider_ref: String,
    /// Where.
    pub region: String,
    /// The provider's id of the instance; `None` if only what was made beside it is left, or it is being deleted.
    #[serde(default)]
    pub primary_id: Option<String>,
    /// Microseconds since 1970, UTC, of the oldest member; `None` if the provider does not tell.
    #[serde(default)]
    pub created_at_us: Option<i64>,
    /// Everything of the group, the instance first.
    #[serde(default)]
    pub resources: Vec<CloudResource>,
    /// For the backend itself; nobody else reads it.
    #[serde(default)]
    pub backend_data: Option<String>,
}

/// A region that could not be listed as a whole. None of its groups is in the answer and none may be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionFailure {
    /// Where.
    pub region: String,
    /// Why.
    pub message: String,
}

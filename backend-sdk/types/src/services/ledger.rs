//! The ledger of side resources: what a backend makes beside a machine, written down before it is made.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Something at the provider that is made beside a machine, volume or gateway: a key, a disk, an address, a firewall.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SideResource {
    /// Whose it is: the reference that the call was given.
    pub provider_ref: String,
    /// The backend's word for the kind: `disk`, `ip`, `ssh_key`.
    pub kind: String,
    /// Its name at the provider, known before it is made. Together with reference and kind it names the entry.
    pub name: String,
    /// Where; empty if it is in no region.
    pub region: String,
    /// The provider's id, once it is known: declare it again with it.
    pub id: Option<String>,
    /// What the backend needs for deleting it. No secrets.
    pub attributes: Map<String, Value>,
}

/// What is done with an entry. All operations are idempotent.
///
/// What was declared and not settled belongs to the machine (or volume, gateway) with the same `provider_ref`. When that is
/// gone, or its call failed, the host deletes it by `delete_resource_group`, so a backend without the capability
/// `resource_listing` may declare nothing. The group then has no `primary_id`, its resources have the id, or without one the name
/// in its place, and its `backend_data` is a JSON object: kind to name to attributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum LedgerRequest {
    /// Writes it down. Comes back only when it is stored: make the thing after that.
    Declare {
        /// What will be made, or was made and has its id now.
        resource: SideResource,
    },
    /// Crosses it out: it was deleted, was never made, or goes away with its machine without anybody's doing.
    Settle {
        /// As declared.
        provider_ref: String,
        /// As declared.
        kind: String,
        /// As declared.
        name: String,
    },
}

//! Network volumes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::backend_type::BackendType;
use crate::error::BackendError;
use crate::resources::Memory;

/// A volume as a backend sees it: the fields that matter to one, by their names in the HTTP API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// The host's id.
    pub id: Uuid,
    /// Name in the project.
    pub name: String,
    /// The project.
    pub project_name: String,
    /// Name of the person who asked for it.
    #[serde(default)]
    pub user: String,
    /// What was asked for.
    pub configuration: VolumeConfiguration,
    /// Whether it was made outside and only registered here.
    #[serde(default)]
    pub external: bool,
    /// The provider's id.
    #[serde(default)]
    pub volume_id: Option<String>,
    /// What came out of making it.
    #[serde(default)]
    pub provisioning_data: Option<VolumeProvisioningData>,
    /// How it hangs on the instance in question.
    #[serde(default)]
    pub attachment_data: Option<VolumeAttachmentData>,
    /// Put on the volume like on an instance; see `InstanceConfiguration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<String>,
}

impl Volume {
    /// The provider's id of a volume that was made here or is to be taken over.
    ///
    /// # Errors
    /// `invalid` if it has none.
    pub fn provider_id(&self) -> Result<&str, BackendError> {
        let made = self.provisioning_data.as_ref().map(|data| &data.volume_id);
        made.or(self.volume_id.as_ref())
            .or(self.configuration.volume_id.as_ref())
            .map(String::as_str)
            .ok_or_else(|| BackendError::invalid(format!("volume {} has no id yet", self.name)))
    }
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeConfiguration {
    /// Who keeps it.
    pub backend: BackendType,
    /// Name.
    #[serde(default)]
    pub name: Option<String>,
    /// GB.
    #[serde(default)]
    pub size: Option<f64>,
    /// Of a volume made outside: its id.
    #[serde(default)]
    pub volume_id: Option<String>,
    /// Where; empty or absent if the backend has no regions.
    #[serde(default)]
    pub region: Option<String>,
    /// Zone of the region.
    #[serde(default)]
    pub availability_zone: Option<String>,
    /// Tags of the user.
    #[serde(default)]
    pub tags: Option<BTreeMap<String, String>>,
    /// Fields of single backends, e.g. `claim_name`, and those of the host.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl VolumeConfiguration {
    /// The size asked for in whole GB, rounded up.
    pub fn size_gb(&self) -> Option<u64> {
        self.size.map(|size| Memory(size).mib().div_ceil(1024))
    }
}

/// What came out of making or registering a volume. Fields are those of the HTTP API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeProvisioningData {
    /// Who keeps it.
    #[serde(default)]
    pub backend: Option<BackendType>,
    /// The provider's id.
    pub volume_id: String,
    /// Size, if the provider tells.
    #[serde(default)]
    pub size_gb: Option<u64>,
    /// Zone; instances that use it must be there.
    #[serde(default)]
    pub availability_zone: Option<String>,
    /// US dollars a month.
    #[serde(default)]
    pub price: Option<f64>,
    /// Whether it must be attached before use.
    #[serde(default = "yes")]
    pub attachable: bool,
    /// Whether it must be detached after use.
    #[serde(default = "yes")]
    pub detachable: bool,
    /// For the backend itself; nobody else reads it.
    #[serde(default)]
    pub backend_data: Option<String>,
}

/// How a volume hangs on an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeAttachmentData {
    /// E.g. `/dev/sdf`; `None` if there is no device.
    #[serde(default)]
    pub device_name: Option<String>,
}

const fn yes() -> bool {
    true
}

//! Volumes: network disks.

use dstack_backend_types::{VolumeAttachmentData, VolumeProvisioningData};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::words::wire_enum;

wire_enum! {
    /// Where a volume stands.
    pub enum VolumeStatus {
        /// Wanted.
        Submitted = "submitted",
        /// Being made.
        Provisioning = "provisioning",
        /// Usable.
        Active = "active",
        /// Could not be made.
        Failed = "failed",
    }
}

/// `POST /api/volumes/list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListVolumesRequest {
    /// Only this project.
    pub project_name: Option<String>,
    /// Only volumes that are not deleted.
    pub only_active: bool,
    /// Cursor: time of the last row of the previous page.
    #[serde(with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub prev_created_at: Option<Timestamp>,
    /// Cursor: id of that row.
    #[schemars(with = "Option<crate::schema::Id>")]
    pub prev_id: Option<Uuid>,
    /// Page size, at most 100.
    pub limit: u32,
    /// Oldest first.
    pub ascending: bool,
}

impl Default for ListVolumesRequest {
    fn default() -> Self {
        Self {
            project_name: None,
            only_active: false,
            prev_created_at: None,
            prev_id: None,
            limit: 100,
            ascending: false,
        }
    }
}

/// `POST /api/project/{project}/volumes/get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GetVolumeRequest {
    /// Name.
    pub name: String,
}

/// `POST /api/project/{project}/volumes/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteVolumesRequest {
    /// Names; unknown ones are ignored.
    pub names: Vec<String>,
}

/// An instance that has a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeInstance {
    /// Name.
    pub name: String,
    /// Fleet.
    #[serde(default)]
    pub fleet_name: Option<String>,
    /// Number within the fleet.
    pub instance_num: u32,
    /// The provider's id.
    #[serde(default)]
    pub instance_id: Option<String>,
}

/// A volume on an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeAttachment {
    /// Which.
    pub instance: VolumeInstance,
    /// How.
    #[serde(default)]
    #[schemars(with = "Option<crate::schema::VolumeAttachmentData>")]
    pub attachment_data: Option<VolumeAttachmentData>,
}

/// A volume as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Volume {
    /// Id.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// Who made it.
    pub user: String,
    /// Project.
    pub project_name: String,
    /// What the user wants, tagged by `backend`.
    #[schemars(with = "crate::config::VolumeConfiguration")]
    pub configuration: Value,
    /// Whether it was made outside and only registered.
    pub external: bool,
    /// When it was made.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub created_at: Timestamp,
    /// When the server last looked at it.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub last_processed_at: Timestamp,
    /// Status.
    pub status: VolumeStatus,
    /// Details of the status.
    #[serde(default)]
    pub status_message: Option<String>,
    /// Whether it was deleted.
    pub deleted: bool,
    /// When.
    #[serde(default, with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub deleted_at: Option<Timestamp>,
    /// The provider's id.
    #[serde(default)]
    pub volume_id: Option<String>,
    /// What came out of making it.
    #[serde(default)]
    #[schemars(with = "Option<crate::schema::VolumeProvisioningData>")]
    pub provisioning_data: Option<VolumeProvisioningData>,
    /// US dollars so far.
    #[serde(default)]
    pub cost: f64,
    /// Where it is in use.
    #[serde(default)]
    pub attachments: Option<Vec<VolumeAttachment>>,
    /// Deprecated; the first attachment's.
    #[serde(default)]
    #[schemars(with = "Option<crate::schema::VolumeAttachmentData>")]
    pub attachment_data: Option<VolumeAttachmentData>,
}

/// `POST /api/project/{project}/volumes/create`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreateVolumeRequest {
    /// What the user wants, tagged by `backend`.
    #[schemars(with = "crate::config::VolumeConfiguration")]
    pub configuration: Value,
}

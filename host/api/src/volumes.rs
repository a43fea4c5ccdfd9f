//! Volumes: network disks.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListVolumesRequest {
    /// Only this project.
    pub project_name: Option<String>,
    /// Only volumes that are not deleted.
    pub only_active: bool,
    /// Cursor: time of the last row of the previous page.
    #[serde(with = "crate::time::option")]
    pub prev_created_at: Option<Timestamp>,
    /// Cursor: id of that row.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetVolumeRequest {
    /// Name.
    pub name: String,
}

/// `POST /api/project/{project}/volumes/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteVolumesRequest {
    /// Names; unknown ones are ignored.
    pub names: Vec<String>,
}

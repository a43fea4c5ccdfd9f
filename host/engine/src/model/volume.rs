use std::sync::Arc;

use dstack_api::config::VolumeConfiguration;
use dstack_api::volumes::VolumeStatus;
use dstack_backend_types::{VolumeAttachmentData, VolumeProvisioningData};
use jiff::Timestamp;

use crate::ids::{InstanceId, JobId, ProjectId, UserId, VolumeId};

/// A network volume: a disk that outlives jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeRow {
    /// Its id.
    pub id: VolumeId,
    /// The project it belongs to.
    pub project_id: ProjectId,
    /// Who asked for it.
    pub user_id: UserId,
    /// Its name, unique among the not deleted volumes of the project.
    pub name: Arc<str>,
    /// What was asked for.
    pub configuration: Arc<VolumeConfiguration>,
    /// It was made outside and is only registered: it is never deleted at the provider.
    pub external: bool,
    /// Where it stands.
    pub status: VolumeStatus,
    /// Why it failed.
    pub status_message: Option<String>,
    /// When the row was made.
    pub created_at: Timestamp,
    /// When its pipeline last wrote it.
    pub last_processed_at: Timestamp,
    /// When the last job let go of it; idle time counts from here, else from `created_at`.
    pub last_job_at: Option<Timestamp>,
    /// Stands on the disk. Stored with the row, and the same in every try, so that a repeated order finds what an
    /// earlier one made.
    pub provider_ref: Arc<str>,
    /// When the provider was first told to make it; from here on something may exist.
    pub attempted_at: Option<Timestamp>,
    /// The disk, once it is made or found.
    pub provisioning_data: Option<Arc<VolumeProvisioningData>>,
    /// Somebody wants it gone; no job may take it any more.
    pub delete_asked: bool,
    /// When the provider was first asked in vain to delete it.
    pub first_end_failure_at: Option<Timestamp>,
    /// When it was deleted; the row is kept for history.
    pub deleted_at: Option<Timestamp>,
}

impl VolumeRow {
    /// Gone; kept for history.
    pub fn is_deleted(&self) -> bool {
        self.deleted_at.is_some()
    }

    /// Only one job at a time may have it: a disk that is attached to one machine.
    pub fn is_exclusive(&self) -> bool {
        self.provisioning_data
            .as_ref()
            .is_some_and(|data| data.attachable)
    }
}

/// A job's hold on a volume, from the moment the job is placed until the disk is off its machine.
#[derive(Debug, Clone, PartialEq)]
pub struct AttachmentRow {
    /// The volume.
    pub volume_id: VolumeId,
    /// The job that mounts it.
    pub job_id: JobId,
    /// The machine it is, or is to be, attached to.
    pub instance_id: InstanceId,
    /// How it hangs there; `None` until the provider has attached it.
    pub data: Option<VolumeAttachmentData>,
    /// When the provider was first told to detach it.
    pub detach_began_at: Option<Timestamp>,
}

/// An attachment with its volume, as decisions about jobs read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// The attachment.
    pub attachment: AttachmentRow,
    /// The volume.
    pub volume: Arc<VolumeRow>,
}

//! Disks: one file each.

use std::fs;

use dstack_backend_sdk::capabilities::Volumes;
use dstack_backend_sdk::types::methods::{
    AttachVolumeReply, AttachVolumeRequest, CreateVolumeReply, CreateVolumeRequest,
    DeleteVolumeRequest, DetachVolumeRequest, Done, IsVolumeDetachedReply, IsVolumeDetachedRequest,
    RegisterVolumeReply, RegisterVolumeRequest,
};
use dstack_backend_sdk::types::{
    BackendType, Volume, VolumeAttachmentData, VolumeProvisioningData,
};
use dstack_backend_sdk::{BackendError, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::backend::Fake;
use crate::cloud::{Cloud, failed};

/// One disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// `disk-<reference>`.
    pub id: String,
    /// What the host called it.
    pub name: String,
    /// Whose call made it.
    pub provider_ref: Option<String>,
    /// The machine it hangs on.
    pub machine: Option<String>,
    /// How often it was told to come off.
    pub detachments: u32,
}

impl Cloud {
    /// One disk.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn disk(&self, id: &str) -> Result<Option<Disk>, BackendError> {
        self.read(&format!("volumes/{id}.json"))
    }

    fn put_disk(&self, disk: &Disk, did: &str) -> Result<(), BackendError> {
        self.write(&format!("volumes/{}.json", disk.id), disk)?;
        self.note(json!({"did": did, "id": disk.id, "machine": disk.machine}))
    }

    fn known_disk(&self, volume: &Volume) -> Result<Disk, BackendError> {
        let id = volume.provider_id()?;
        self.disk(id)?
            .ok_or_else(|| BackendError::new(ErrorKind::NotFound, format!("no disk {id}")))
    }
}

fn data(disk: &Disk, volume: &Volume) -> VolumeProvisioningData {
    VolumeProvisioningData {
        backend: Some(BackendType::new("fake")),
        volume_id: disk.id.clone(),
        size_gb: volume.configuration.size_gb(),
        availability_zone: None,
        price: Some(3.0),
        attachable: true,
        detachable: true,
        backend_data: None,
    }
}

impl Volumes for Fake {
    fn register_volume(
        &self,
        request: &RegisterVolumeRequest,
    ) -> Result<RegisterVolumeReply, BackendError> {
        self.begin()?;
        let disk = self.cloud.known_disk(&request.volume)?;
        Ok(RegisterVolumeReply {
            provisioning_data: data(&disk, &request.volume),
        })
    }

    fn create_volume(
        &self,
        request: &CreateVolumeRequest,
    ) -> Result<CreateVolumeReply, BackendError> {
        let knobs = self.begin()?;
        if knobs.no_volumes {
            return Err(BackendError::new(ErrorKind::Quota, "no more disks"));
        }
        let volume = &request.volume;
        let reference = volume.provider_ref.clone().unwrap_or_default();
        let lock = self.cloud.lock()?;
        let id = format!("disk-{reference}");
        let disk = match self.cloud.disk(&id)? {
            Some(known) => known,
            None => {
                let disk = Disk {
                    id,
                    name: volume.name.clone(),
                    provider_ref: volume.provider_ref.clone(),
                    machine: None,
                    detachments: 0,
                };
                self.cloud.put_disk(&disk, "create-volume")?;
                disk
            }
        };
        drop(lock);
        if self.cloud.lose_answer(knobs.lost_answers)? {
            return Err(BackendError::new(
                ErrorKind::Transport,
                "the connection was lost",
            ));
        }
        Ok(CreateVolumeReply {
            provisioning_data: data(&disk, volume),
        })
    }

    fn delete_volume(&self, request: &DeleteVolumeRequest) -> Result<Done, BackendError> {
        self.begin()?;
        let _lock = self.cloud.lock()?;
        let id = request.volume.provider_id()?;
        let Some(disk) = self.cloud.disk(id)? else {
            return Ok(Done {});
        };
        if let Some(machine) = disk.machine {
            let why = format!("the disk hangs on {machine}");
            return Err(BackendError::new(ErrorKind::Invalid, why));
        }
        let path = self.cloud.folder.join(format!("volumes/{id}.json"));
        fs::remove_file(path).map_err(failed)?;
        self.cloud.note(json!({"did": "delete-volume", "id": id}))?;
        Ok(Done {})
    }

    fn attach_volume(
        &self,
        request: &AttachVolumeRequest,
    ) -> Result<AttachVolumeReply, BackendError> {
        let knobs = self.begin()?;
        let _lock = self.cloud.lock()?;
        let mut disk = self.cloud.known_disk(&request.volume)?;
        let machine = &request.provisioning_data.instance_id;
        if disk.machine.as_ref().is_some_and(|other| other != machine) {
            return Err(BackendError::invalid("the disk hangs on another machine"));
        }
        disk.machine = Some(machine.clone());
        disk.detachments = 0;
        self.cloud.put_disk(&disk, "attach-volume")?;
        Ok(AttachVolumeReply {
            attachment_data: VolumeAttachmentData {
                device_name: knobs.device,
            },
        })
    }

    fn detach_volume(&self, request: &DetachVolumeRequest) -> Result<Done, BackendError> {
        let knobs = self.begin()?;
        let _lock = self.cloud.lock()?;
        let mut disk = self.cloud.known_disk(&request.volume)?;
        disk.detachments += 1;
        let did = if request.force || disk.detachments > knobs.slow_detachments {
            disk.machine = None;
            "detach-volume"
        } else {
            "detach-volume-slowly"
        };
        self.cloud.put_disk(&disk, did)?;
        Ok(Done {})
    }

    fn is_volume_detached(
        &self,
        request: &IsVolumeDetachedRequest,
    ) -> Result<IsVolumeDetachedReply, BackendError> {
        self.begin()?;
        let disk = self.cloud.known_disk(&request.volume)?;
        Ok(IsVolumeDetachedReply {
            detached: disk.machine.is_none(),
        })
    }
}

//! Network volumes.

use dstack_backend_sdk::BackendError;
use dstack_backend_sdk::capabilities::Volumes;
use dstack_backend_sdk::types::methods::{
    AttachVolumeReply, AttachVolumeRequest, CreateVolumeReply, CreateVolumeRequest,
    DeleteVolumeRequest, DetachVolumeRequest, Done, IsVolumeDetachedReply, IsVolumeDetachedRequest,
    RegisterVolumeReply, RegisterVolumeRequest,
};
use dstack_backend_sdk::types::{Volume, VolumeAttachmentData, VolumeProvisioningData};
use serde_json::{Value, json};

use crate::Wrong;
use crate::cloud::Disk;
use crate::config::Defect;

fn facts(volume: &Disk) -> VolumeProvisioningData {
    VolumeProvisioningData {
        backend: None,
        volume_id: volume.id.clone(),
        size_gb: Some(100),
        availability_zone: None,
        price: None,
        attachable: true,
        detachable: true,
        backend_data: None,
    }
}

fn id_of(volume: &Volume) -> Result<&str, BackendError> {
    let made = volume
        .provisioning_data
        .as_ref()
        .map(|data| data.volume_id.as_str());
    made.or(volume.volume_id.as_deref())
        .ok_or_else(|| BackendError::invalid("a volume without an id"))
}

impl Volumes for Wrong {
    fn register_volume(
        &self,
        request: &RegisterVolumeRequest,
    ) -> Result<RegisterVolumeReply, BackendError> {
        let id = request
            .volume
            .configuration
            .volume_id
            .as_deref()
            .unwrap_or_default();
        let unknown = Disk {
            id: id.to_owned(),
            name: String::new(),
            reference: String::new(),
        };
        let volume: Disk = self
            .cloud
            .find(&format!("/v1/volumes/{id}"))?
            .or_else(|| self.cloud.has(Defect::RegistersAnything).then_some(unknown))
            .ok_or_else(|| BackendError::not_found(format!("no volume {id}")))?;
        Ok(RegisterVolumeReply {
            provisioning_data: facts(&volume),
        })
    }

    fn create_volume(
        &self,
        request: &CreateVolumeRequest,
    ) -> Result<CreateVolumeReply, BackendError> {
        let volume = &request.volume;
        let reference = volume.provider_ref.clone().unwrap_or_default();
        let known: Vec<Disk> = self
            .cloud
            .list(&format!("/v1/volumes?reference={reference}"))?;
        let found = known
            .into_iter()
            .next()
            .filter(|_| !self.cloud.has(Defect::TwoVolumes));
        let made = match found {
            Some(made) => made,
            None => {
                let region = volume.configuration.region.clone().unwrap_or_default();
                let body = json!({"name": volume.name, "reference": reference, "region": region});
                self.cloud.post("/v1/volumes", &body)?
            }
        };
        Ok(CreateVolumeReply {
            provisioning_data: facts(&made),
        })
    }

    fn delete_volume(&self, request: &DeleteVolumeRequest) -> Result<Done, BackendError> {
        self.cloud
            .delete(&format!("/v1/volumes/{}", id_of(&request.volume)?))?;
        Ok(Done {})
    }

    fn attach_volume(
        &self,
        request: &AttachVolumeRequest,
    ) -> Result<AttachVolumeReply, BackendError> {
        let machine = &request.provisioning_data.instance_id;
        let path = format!("/v1/volumes/{}/attach", id_of(&request.volume)?);
        let _attached: Value = self.cloud.post(&path, &json!({"machine": machine}))?;
        Ok(AttachVolumeReply {
            attachment_data: VolumeAttachmentData {
                device_name: Some("/dev/vdb".to_owned()),
            },
        })
    }

    fn detach_volume(&self, request: &DetachVolumeRequest) -> Result<Done, BackendError> {
        let path = format!("/v1/volumes/{}/detach", id_of(&request.volume)?);
        let _detached: Value = self.cloud.post(&path, &json!({}))?;
        Ok(Done {})
    }

    fn is_volume_detached(
        &self,
        _request: &IsVolumeDetachedRequest,
    ) -> Result<IsVolumeDetachedReply, BackendError> {
        Ok(IsVolumeDetachedReply {
            detached: !self.cloud.has(Defect::NeverDetached),
        })
    }
}

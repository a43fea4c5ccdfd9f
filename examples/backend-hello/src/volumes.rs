//! Network volumes.

use dstack_backend_sdk::{prelude::*, rest::encode, serde_json::json};
use serde::Deserialize;

use crate::compute::{Hello, list};

#[derive(Deserialize)]
struct Disk {
    id: String,
    size_gb: u64,
    server_id: Option<String>,
    device: Option<String>,
}

fn data(disk: Disk) -> VolumeProvisioningData {
    VolumeProvisioningData {
        size_gb: Some(disk.size_gb),
        ..provisioning::volume("hello", disk.id)
    }
}

/// Where a volume stands in the API.
fn path(volume: &Volume) -> Result<String> {
    Ok(format!("/volumes/{}", encode(volume.provider_id()?)))
}

impl Volumes for Hello {
    fn register_volume(&self, request: &RegisterVolumeRequest) -> Result<RegisterVolumeReply> {
        Ok(data(self.api.get(path(&request.volume)?).fetch()?).into())
    }

    fn create_volume(&self, request: &CreateVolumeRequest) -> Result<CreateVolumeReply> {
        let volume = &request.volume;
        let body = json!({
            "name": names::volume_name(volume, names::MAX_NAME_LEN),
            "region": volume.configuration.region,
            "size_gb": volume.configuration.size_gb(),
            "tags": tags::of_volume(volume, &self.config.tags),
        });
        let find = |reference: &str| Ok(list(&self.api, "/volumes", Some(reference))?.pop());
        let make = || self.api.post("/volumes").json(&body).fetch();
        let disk = provisioning::once(volume.provider_ref.as_deref(), find, make)?;
        Ok(data(disk).into())
    }

    fn delete_volume(&self, request: &DeleteVolumeRequest) -> Result<Done> {
        let call = self.api.delete(path(&request.volume)?);
        call.gone().map(|()| Done {})
    }

    fn attach_volume(&self, request: &AttachVolumeRequest) -> Result<AttachVolumeReply> {
        let call = self.api.post(format!("{}/attach", path(&request.volume)?));
        let body = json!({"server_id": request.provisioning_data.instance_id});
        let device_name = call.json(&body).fetch::<Disk>()?.device;
        Ok(VolumeAttachmentData { device_name }.into())
    }

    fn detach_volume(&self, request: &DetachVolumeRequest) -> Result<Done> {
        let call = self.api.post(format!("{}/detach", path(&request.volume)?));
        let server_id = &request.provisioning_data.instance_id;
        let body = json!({"server_id": server_id, "force": request.force});
        call.json(&body).gone().map(|()| Done {})
    }

    fn is_volume_detached(
        &self,
        request: &IsVolumeDetachedRequest,
    ) -> Result<IsVolumeDetachedReply> {
        let disk: Option<Disk> = self.api.get(path(&request.volume)?).found()?;
        let on = disk.and_then(|disk| disk.server_id);
        let detached = on.as_ref() != Some(&request.provisioning_data.instance_id);
        Ok(IsVolumeDetachedReply { detached })
    }
}

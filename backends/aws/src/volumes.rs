//! Network volumes (EBS).

use dstack_backend_sdk::prelude::*;
use serde::Deserialize;
use serde_json::json;

use crate::backend::Aws;
use crate::client::Api;
use crate::create::steady_name;
use crate::errors;
use crate::machines;
use crate::params::Params;
use crate::xml::Set;

const KIND: &str = "gp3";
/// US dollars for a GB and month, and for an operation a second beyond those that are included.
const GB_PRICE: f64 = 0.08;
const IOPS_PRICE: f64 = 0.005;
const FREE_IOPS: f64 = 3000.0;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Disks {
    #[serde(default)]
    volume_set: Set<Disk>,
    next_token: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Disk {
    volume_id: String,
    size: u64,
    availability_zone: String,
    volume_type: Option<String>,
    iops: Option<u32>,
    status: Option<String>,
    #[serde(default)]
    attachment_set: Set<Attachment>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attachment {
    instance_id: Option<String>,
    device: Option<String>,
    status: Option<String>,
}

impl Disk {
    /// How it hangs on this machine, if it does.
    fn on(&self, machine: &str) -> Option<&Attachment> {
        let mut all = self.attachment_set.items.iter();
        all.find(|it| {
            it.instance_id.as_deref() == Some(machine) && it.status.as_deref() != Some("detached")
        })
    }

    fn data(&self) -> VolumeProvisioningData {
        VolumeProvisioningData {
            size_gb: Some(self.size),
            availability_zone: Some(self.availability_zone.clone()),
            price: Some(price(self.size, self.iops.unwrap_or(0))),
            backend_data: Some(
                json!({"volume_type": self.volume_type, "iops": self.iops}).to_string(),
            ),
            ..provisioning::volume("aws", &self.volume_id)
        }
    }
}

/// US dollars a month.
fn price(size_gb: u64, iops: u32) -> f64 {
    let size = f64::from(u32::try_from(size_gb).unwrap_or(u32::MAX));
    size * GB_PRICE + (f64::from(iops) - FREE_IOPS).max(0.0) * IOPS_PRICE
}

fn list(ec2: &Api, params: &Params) -> Result<Vec<Disk>> {
    ec2.read_all("DescribeVolumes", params, |page: Disks| {
        (page.volume_set.items, page.next_token)
    })
}

/// One volume; `None` if the provider does not know it.
fn get(ec2: &Api, id: &str) -> Result<Option<Disk>> {
    match list(ec2, &Params::new().list("VolumeId", [id])) {
        Ok(disks) => Ok(disks.into_iter().next()),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Names that disks of a machine may have. Source: "Device names for volumes on Amazon EC2 instances": `/dev/sd[f-p]` are
/// recommended; those after n are left to the administrator of the machine.
fn device_names() -> impl Iterator<Item = String> {
    ('f'..='n').map(|letter| format!("/dev/sd{letter}"))
}

impl Aws {
    fn ec2_of(&self, volume: &Volume) -> Result<Api> {
        let region = volume.configuration.region.as_deref();
        let region = region.filter(|region| !region.is_empty()).ok_or_else(|| {
            BackendError::invalid(format!("volume {} has no region", volume.name))
        })?;
        self.apis.ec2(region)
    }

    fn make_volume(&self, ec2: &Api, volume: &Volume) -> Result<Disk> {
        let asked = &volume.configuration;
        let region = asked.region.clone().unwrap_or_default();
        let zone =
            match asked
                .availability_zone
                .clone()
                .filter(|zone| !zone.is_empty())
            {
                Some(zone) => zone,
                None => self.zones(&region)?.into_iter().next().ok_or_else(|| {
                    BackendError::no_capacity(format!("region {region} has no zone"))
                })?,
            };
        let size = asked
            .size_gb()
            .ok_or_else(|| BackendError::invalid(format!("volume {} has no size", volume.name)))?;
        let reference = volume.provider_ref.as_deref();
        let mut tags = tags::of_volume(volume, &self.config.tags());
        let name = names::volume_name(volume, names::MAX_NAME_LEN);
        tags.insert("Name".to_owned(), steady_name(name, reference));
        let params = Params::new()
            .set("AvailabilityZone", zone)
            .set("Size", size)
            .set("VolumeType", KIND)
            .maybe("ClientToken", reference)
            .tags("volume", &tags);
        ec2.change("CreateVolume", &params)
    }
}

impl Volumes for Aws {
    fn register_volume(&self, request: &RegisterVolumeRequest) -> Result<RegisterVolumeReply> {
        let volume = &request.volume;
        let id = volume.provider_id()?;
        let missing = || BackendError::not_found(format!("there is no volume {id}"));
        match get(&self.ec2_of(volume)?, id) {
            Ok(disk) => Ok(disk.ok_or_else(missing)?.data().into()),
            Err(error) if errors::code(&error).starts_with("InvalidParameter") => {
                Err(BackendError::invalid(format!("{id} is no id of a volume")))
            }
            Err(error) => Err(error),
        }
    }

    fn create_volume(&self, request: &CreateVolumeRequest) -> Result<CreateVolumeReply> {
        let volume = &request.volume;
        let ec2 = self.ec2_of(volume)?;
        let find = |reference: &str| {
            let tag = format!("tag:{}", names::PROVIDER_REF_TAG);
            let found = list(&ec2, &Params::new().filter(&tag, [reference]))?;
            let mut found = found.into_iter();
            Ok(found.find(|it| !matches!(it.status.as_deref(), Some("deleting" | "deleted"))))
        };
        let make = || self.make_volume(&ec2, volume);
        let disk = provisioning::once(volume.provider_ref.as_deref(), find, make)?;
        Ok(disk.data().into())
    }

    fn delete_volume(&self, request: &DeleteVolumeRequest) -> Result<Done> {
        let ec2 = self.ec2_of(&request.volume)?;
        let params = Params::new().set("VolumeId", request.volume.provider_id()?);
        match ec2.done("DeleteVolume", &params) {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(Done {}),
            other => other.map(|()| Done {}),
        }
    }

    fn attach_volume(&self, request: &AttachVolumeRequest) -> Result<AttachVolumeReply> {
        let ec2 = self.ec2_of(&request.volume)?;
        let id = request.volume.provider_id()?;
        let machine_id = &request.provisioning_data.instance_id;
        let missing = |what: &str| BackendError::not_found(format!("there is no {what}"));
        let disk = get(&ec2, id)?.ok_or_else(|| missing(&format!("volume {id}")))?;
        if let Some(attachment) = disk.on(machine_id) {
            let device_name = attachment.device.clone();
            return Ok(VolumeAttachmentData { device_name }.into());
        }
        let machine = machines::get(&ec2, machine_id)?
            .ok_or_else(|| missing(&format!("instance {machine_id}")))?;
        for device in device_names() {
            if machine.devices().any(|used| used == device) {
                continue;
            }
            let params = Params::new()
                .set("VolumeId", id)
                .set("InstanceId", machine_id)
                .set("Device", &device);
            match ec2.done("AttachVolume", &params) {
                Ok(()) => {
                    let device_name = Some(device);
                    return Ok(VolumeAttachmentData { device_name }.into());
                }
                // Taken by something that the list does not show.
                Err(error) if is_bad_device(&error) => {}
                Err(error)
                    if errors::is(&error, &["VolumeInUse", "InvalidVolume.ZoneMismatch"]) =>
                {
                    return Err(BackendError::invalid(error.message));
                }
                Err(error) => return Err(error),
            }
        }
        Err(BackendError::invalid(format!(
            "{machine_id} has no name left for another disk"
        )))
    }

    fn detach_volume(&self, request: &DetachVolumeRequest) -> Result<Done> {
        /// Not attached, or no more.
        const OFF: &[&str] = &["IncorrectState", "InvalidAttachment.NotFound"];
        let ec2 = self.ec2_of(&request.volume)?;
        let params = Params::new()
            .set("VolumeId", request.volume.provider_id()?)
            .set("InstanceId", &request.provisioning_data.instance_id)
            .set("Force", request.force);
        match ec2.done("DetachVolume", &params) {
            Err(error) if errors::is(&error, OFF) || error.kind == ErrorKind::NotFound => {
                Ok(Done {})
            }
            other => other.map(|()| Done {}),
        }
    }

    fn is_volume_detached(
        &self,
        request: &IsVolumeDetachedRequest,
    ) -> Result<IsVolumeDetachedReply> {
        let ec2 = self.ec2_of(&request.volume)?;
        let disk = get(&ec2, request.volume.provider_id()?)?;
        let machine = &request.provisioning_data.instance_id;
        let detached = disk.is_none_or(|disk| disk.on(machine).is_none());
        Ok(IsVolumeDetachedReply { detached })
    }
}

/// The provider says it in words only, under a code that stands for much else.
fn is_bad_device(error: &BackendError) -> bool {
    error.message.contains("Invalid value '/dev/") && error.message.contains("for unixDevice")
}

#[cfg(test)]
mod tests {
    use super::price;

    #[test]
    fn a_volume_costs_by_size_and_by_operations_beyond_the_free_ones() {
        for (size, iops, expected) in [(100, 3000, 8.0), (100, 0, 8.0), (500, 5000, 50.0)] {
            assert!((price(size, iops) - expected).abs() < 1e-9, "{size} {iops}");
        }
    }
}

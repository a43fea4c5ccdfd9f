//! What stands in the account.

use std::collections::BTreeMap;

use dstack_backend_sdk::BackendError;
use dstack_backend_sdk::capabilities::ResourceListing;
use dstack_backend_sdk::types::methods::{
    DeleteResourceGroupRequest, Done, ListResourceGroupsReply, ListResourceGroupsRequest,
};
use dstack_backend_sdk::types::{CloudResource, RegionFailure, ResourceGroup};

use crate::Wrong;
use crate::cloud::{Disk, Machine};
use crate::config::Defect;

const REGIONS: &[&str] = &["north", "south"];

impl Wrong {
    fn groups_of(&self, region: &str) -> Result<Vec<ResourceGroup>, BackendError> {
        let mut groups: BTreeMap<String, ResourceGroup> = BTreeMap::new();
        let machines: Vec<Machine> = match self.cloud.list(&format!("/v1/machines?region={region}"))
        {
            Err(_) if self.cloud.has(Defect::HalfListing) => Vec::new(),
            other => other?,
        };
        let disks: Vec<Disk> = self.cloud.list(&format!("/v1/disks?region={region}"))?;
        let mut add = |reference: &str, kind: &str, id: &str, name: &str| {
            let group = groups
                .entry(reference.to_owned())
                .or_insert_with(|| ResourceGroup {
                    provider_ref: reference.to_owned(),
                    region: region.to_owned(),
                    primary_id: None,
                    created_at_us: None,
                    resources: Vec::new(),
                    backend_data: None,
                });
            if kind == "machine" && !self.cloud.has(Defect::NoPrimary) {
                group.primary_id = Some(id.to_owned());
            }
            group.resources.push(CloudResource {
                kind: kind.to_owned(),
                id: id.to_owned(),
                name: Some(name.to_owned()),
            });
        };
        for machine in machines
            .iter()
            .filter(|machine| machine.state != "deleting")
        {
            add(&machine.reference, "machine", &machine.id, &machine.name);
        }
        for disk in &disks {
            add(&disk.reference, "disk", &disk.id, &disk.name);
        }
        Ok(groups.into_values().collect())
    }
}

impl ResourceListing for Wrong {
    fn list_resource_groups(
        &self,
        request: &ListResourceGroupsRequest,
    ) -> Result<ListResourceGroupsReply, BackendError> {
        let mut reply = ListResourceGroupsReply::default();
        for region in REGIONS {
            if !request.regions.is_empty() && !request.regions.iter().any(|asked| asked == region) {
                continue;
            }
            match self.groups_of(region) {
                Ok(groups) => reply.groups.extend(groups),
                Err(error) => reply.failures.push(RegionFailure {
                    region: (*region).to_owned(),
                    message: error.message,
                }),
            }
        }
        Ok(reply)
    }

    fn delete_resource_group(
        &self,
        request: &DeleteResourceGroupRequest,
    ) -> Result<Done, BackendError> {
        let reference = &request.group.provider_ref;
        let wanted = |known: &str| known == reference || self.cloud.has(Defect::DeletesOthers);
        let mut is_under_way = false;
        for machine in self.cloud.list::<Machine>("/v1/machines")? {
            if wanted(&machine.reference) {
                is_under_way = true;
                if machine.state != "deleting" {
                    self.cloud.delete(&format!("/v1/machines/{}", machine.id))?;
                }
            }
        }
        if is_under_way {
            return Err(BackendError::not_yet_terminated(
                "the machine is shutting down",
            ));
        }
        let mut deleted = 0;
        for disk in self.cloud.list::<Disk>("/v1/disks")? {
            if wanted(&disk.reference) {
                deleted += 1;
                self.cloud.delete(&format!("/v1/disks/{}", disk.id))?;
            }
        }
        if deleted == 0 && self.cloud.has(Defect::DeletesOnce) {
            return Err(BackendError::not_found("nothing with that reference"));
        }
        Ok(Done {})
    }
}

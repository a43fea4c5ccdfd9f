//! Placement groups: machines close together.

use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::types::{InstanceOffer, PlacementGroupProvisioningData};

use crate::backend::Aws;
use crate::errors;
use crate::params::Params;

/// Families that cannot be placed. Source: "Placement groups" of the EC2 user guide.
const UNPLACED: &[&str] = &["t2.", "t3.", "t3a.", "t4g."];

fn can_be_placed(instance_type: &str) -> bool {
    !UNPLACED
        .iter()
        .any(|family| instance_type.starts_with(family))
}

fn suits(group_region: &str, offer: &InstanceOffer) -> bool {
    offer.region == group_region && can_be_placed(&offer.instance.name)
}

impl PlacementGroups for Aws {
    fn create_placement_group(
        &self,
        request: &CreatePlacementGroupRequest,
    ) -> Result<CreatePlacementGroupReply> {
        let group = &request.placement_group;
        let instance_type = &request.master_offer.instance.name;
        if !can_be_placed(instance_type) {
            return Err(BackendError::new(
                ErrorKind::PlacementGroupNotSupported,
                format!("machines of type {instance_type} cannot be placed in a group"),
            ));
        }
        let mut base = tags::Tags::from([
            ("owner".to_owned(), "dstack".to_owned()),
            ("dstack_project".to_owned(), group.project_name.clone()),
        ]);
        let reference = group.provider_ref.as_ref();
        base.extend(reference.map(|it| (names::PROVIDER_REF_TAG.to_owned(), it.clone())));
        let params = Params::new()
            .set("GroupName", &group.name)
            .set("Strategy", "cluster")
            .tags(
                "placement-group",
                &tags::merge(&base, Some(&self.config.tags()), None),
            );
        let ec2 = self.apis.ec2(&group.configuration.region)?;
        match ec2.done("CreatePlacementGroup", &params) {
            // Made by an earlier call: names are unique.
            Err(error) if errors::is(&error, &["InvalidPlacementGroup.Duplicate"]) => {}
            other => other?,
        }
        Ok(CreatePlacementGroupReply {
            provisioning_data: PlacementGroupProvisioningData {
                backend: BackendType::new("aws"),
                backend_data: None,
            },
        })
    }

    fn delete_placement_group(&self, request: &DeletePlacementGroupRequest) -> Result<Done> {
        let group = &request.placement_group;
        let ec2 = self.apis.ec2(&group.configuration.region)?;
        let params = Params::new().set("GroupName", &group.name);
        match ec2.done("DeletePlacementGroup", &params) {
            Err(error) if errors::is(&error, &["InvalidPlacementGroup.Unknown"]) => Ok(Done {}),
            other => other.map(|()| Done {}),
        }
    }

    fn is_suitable_placement_group(
        &self,
        request: &IsSuitablePlacementGroupRequest,
    ) -> Result<IsSuitablePlacementGroupReply> {
        let region = &request.placement_group.configuration.region;
        Ok(IsSuitablePlacementGroupReply {
            suitable: suits(region, &request.offer),
        })
    }

    fn placement_groups_compatible_with_reservation(
        &self,
        request: &PlacementGroupsCompatibleWithReservationRequest,
    ) -> Result<PlacementGroupsCompatibleWithReservationReply> {
        let (region, id) = (&request.offer.region, &request.reservation);
        let found = self.reservation(region, id)?;
        let found = found.ok_or_else(|| {
            BackendError::not_found(format!("there is no active reservation {id} in {region}"))
        })?;
        // A capacity block is placed as it was bought.
        Ok(PlacementGroupsCompatibleWithReservationReply {
            compatible: !found.is_capacity_block,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::can_be_placed;

    #[test]
    fn cheap_families_cannot_be_placed() {
        assert!(!can_be_placed("t3.micro") && !can_be_placed("t2.small"));
        assert!(can_be_placed("p5.48xlarge") && can_be_placed("m5.large"));
    }
}

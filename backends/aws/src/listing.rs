//! What stands in the account, by attempt; and its deletion.

use std::collections::BTreeMap;

use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::types::RegionFailure;

use crate::addresses;
use crate::backend::Aws;
use crate::balancers;
use crate::client::Api;
use crate::machines::{self, Machine};
use crate::params::Params;
use crate::regions::in_each;

const ADDRESS: &str = "ip";

impl ResourceListing for Aws {
    fn list_resource_groups(
        &self,
        request: &ListResourceGroupsRequest,
    ) -> Result<ListResourceGroupsReply> {
        let regions = if request.regions.is_empty() {
            self.config.regions()
        } else {
            request.regions.clone()
        };
        let mut reply = ListResourceGroupsReply::default();
        for (region, groups) in in_each(&regions, |region| self.groups(region)) {
            match groups {
                Ok(groups) => reply.groups.extend(groups),
                Err(error) if error.kind == ErrorKind::Cancelled => return Err(error),
                Err(error) => reply.failures.push(RegionFailure {
                    region,
                    message: error.message,
                }),
            }
        }
        Ok(reply)
    }

    fn delete_resource_group(&self, request: &DeleteResourceGroupRequest) -> Result<Done> {
        let group = &request.group;
        let reference = group.provider_ref.as_str();
        let ec2 = self.apis.ec2(&group.region)?;
        let mut waits = false;
        // Asked anew: only what carries the reference is touched, whatever the group says.
        for machine in machines::of_attempt(&ec2, reference)? {
            machines::terminate(&ec2, &machine.instance_id)?;
            waits = true;
        }
        let addresses = addresses::of_attempt(&ec2, reference)?;
        if waits && !addresses.is_empty() {
            return Err(provisioning::still_there(reference));
        }
        for address in &addresses {
            addresses::release(&ec2, address)?;
        }
        // Only the ledger knows of these.
        if group.resources.iter().any(|it| it.kind == balancers::KIND) {
            balancers::delete_of_attempt(self, &group.region, reference)?;
        }
        Ok(Done {})
    }
}

impl Aws {
    /// All groups of a region, or none.
    fn groups(&self, region: &str) -> Result<Vec<ResourceGroup>> {
        let ec2 = self.apis.ec2(region)?;
        let machines = tagged_machines(&ec2)?;
        let tagged = Params::new().filter("tag-key", [names::PROVIDER_REF_TAG]);
        let addresses = addresses::list(&ec2, &tagged)?;
        let mut groups: BTreeMap<String, ResourceGroup> = BTreeMap::new();
        for machine in &machines {
            let Some(reference) = machine.reference() else {
                continue;
            };
            let of_machine = ResourceGroup {
                created_at_us: machine.started_at_us(),
                ..provisioning::group(reference, region, &machine.instance_id)
            };
            match groups.get_mut(reference) {
                Some(group) => group.resources.extend(of_machine.resources),
                None => drop(groups.insert(reference.to_owned(), of_machine)),
            }
        }
        for address in addresses {
            let (Some(reference), Some(id)) = (address.reference(), &address.allocation_id) else {
                continue;
            };
            let group = groups
                .entry(reference.to_owned())
                .or_insert_with(|| ResourceGroup {
                    primary_id: None,
                    resources: Vec::new(),
                    ..provisioning::group(reference, region, "")
                });
            group.resources.push(resource(ADDRESS, id));
        }
        Ok(groups.into_values().collect())
    }
}

fn resource(kind: &str, id: &str) -> CloudResource {
    CloudResource {
        kind: kind.to_owned(),
        id: id.to_owned(),
        name: None,
    }
}

/// Machines with a reference that are not being deleted.
fn tagged_machines(ec2: &Api) -> Result<Vec<Machine>> {
    let params = Params::new()
        .filter("tag-key", [names::PROVIDER_REF_TAG])
        .filter(
            "instance-state-name",
            ["pending", "running", "stopping", "stopped"],
        );
    machines::list(ec2, &params)
}

//! Public addresses (elastic IPs) of machines that the provider gives none: the only thing made beside a machine.

use dstack_backend_sdk::host::ledger;
use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::types::services::SideResource;
use serde::{Deserialize, Serialize};

use crate::backend::Aws;
use crate::client::Api;
use crate::errors;
use crate::machines::{self, Machine, Tag};
use crate::params::Params;
use crate::xml::Set;

const KIND: &str = "ip";
/// Codes for an address that is not there.
const UNKNOWN: &[&str] = &["InvalidAllocationID.NotFound", "InvalidAddress.NotFound"];
const NOT_ASSOCIATED: &[&str] = &["InvalidAssociationID.NotFound"];
/// Tag with the id of the machine that an address was made for.
const MACHINE_TAG: &str = "dstack_instance";

/// What is kept of an address with its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    eip_allocation_id: String,
}

/// An address that a machine has got.
pub(crate) struct Given {
    pub(crate) ip: String,
    pub(crate) backend_data: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Addresses {
    #[serde(default)]
    addresses_set: Set<Address>,
}

/// An address of the account.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Address {
    pub(crate) allocation_id: Option<String>,
    public_ip: String,
    association_id: Option<String>,
    instance_id: Option<String>,
    #[serde(default)]
    tag_set: Set<Tag>,
}

impl Address {
    pub(crate) fn reference(&self) -> Option<&str> {
        machines::reference(&self.tag_set)
    }
}

/// Addresses that fit.
pub(crate) fn list(ec2: &Api, params: &Params) -> Result<Vec<Address>> {
    let found: Addresses = ec2.read("DescribeAddresses", params)?;
    Ok(found.addresses_set.items)
}

/// Addresses of one attempt.
pub(crate) fn of_attempt(ec2: &Api, reference: &str) -> Result<Vec<Address>> {
    let tag = format!("tag:{}", names::PROVIDER_REF_TAG);
    let mut found = list(ec2, &Params::new().filter(&tag, [reference]))?;
    found.retain(|address| address.reference() == Some(reference));
    Ok(found)
}

/// The entry of the ledger for the address of a machine.
fn entry(reference: &str, region: &str, machine: &str, id: Option<&str>) -> SideResource {
    SideResource {
        provider_ref: reference.to_owned(),
        kind: KIND.to_owned(),
        name: machine.to_owned(),
        region: region.to_owned(),
        id: id.map(str::to_owned),
        ..SideResource::default()
    }
}

/// Takes an address off its machine and gives it back.
pub(crate) fn release(ec2: &Api, address: &Address) -> Result<()> {
    let gone = |answer: Result<()>, codes: &[&str]| match answer {
        Err(error) if errors::is(&error, codes) => Ok(()),
        other => other,
    };
    if let Some(id) = address
        .association_id
        .as_deref()
        .filter(|id| !id.is_empty())
    {
        let params = Params::new().set("AssociationId", id);
        gone(ec2.done("DisassociateAddress", &params), NOT_ASSOCIATED)?;
    }
    let Some(id) = &address.allocation_id else {
        return Ok(());
    };
    let params = Params::new().set("AllocationId", id);
    gone(ec2.done("ReleaseAddress", &params), UNKNOWN)
}

impl Aws {
    /// A public address for a running machine: the one that was made for it, or a new one.
    pub(crate) fn give_address(
        &self,
        ec2: &Api,
        machine: &Machine,
        data: &JobProvisioningData,
    ) -> Result<Given> {
        let id = &machine.instance_id;
        let found = list(
            ec2,
            &Params::new().filter(&format!("tag:{MACHINE_TAG}"), [id]),
        )?;
        let address = match found.into_iter().next() {
            Some(address) => address,
            None => self.make_address(ec2, machine, data)?,
        };
        let allocation = address.allocation_id.clone().unwrap_or_default();
        if address.instance_id.as_deref().is_none_or(str::is_empty) {
            let mut cards = machine.network_interface_set.items.iter();
            let card = cards.find(|card| card.is_primary()).ok_or_else(|| {
                BackendError::provisioning(format!("{id} has no primary network interface"))
            })?;
            let params = Params::new()
                .set("AllocationId", &allocation)
                .set("NetworkInterfaceId", &card.network_interface_id);
            ec2.done("AssociateAddress", &params)?;
        }
        let kept = Kept {
            eip_allocation_id: allocation,
        };
        Ok(Given {
            ip: address.public_ip,
            backend_data: serde_json::to_string(&kept)
                .map_err(|error| BackendError::internal(error.to_string()))?,
        })
    }

    fn make_address(
        &self,
        ec2: &Api,
        machine: &Machine,
        data: &JobProvisioningData,
    ) -> Result<Address> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Made {
            allocation_id: String,
            public_ip: String,
        }
        let id = &machine.instance_id;
        let reference = machine.reference();
        if let Some(reference) = reference {
            ledger::declare(&entry(reference, &data.region, id, None))?;
        }
        let mut own = tags::Tags::from([
            ("owner".to_owned(), "dstack".to_owned()),
            (MACHINE_TAG.to_owned(), id.clone()),
        ]);
        own.extend(reference.map(|it| (names::PROVIDER_REF_TAG.to_owned(), it.to_owned())));
        own.extend(
            machine
                .tag("dstack_project")
                .map(|it| ("dstack_project".to_owned(), it.to_owned())),
        );
        let tags = tags::merge(&own, Some(&self.config.tags()), None);
        let params = Params::new().set("Domain", "vpc").tags("elastic-ip", &tags);
        let made: Made = ec2.change("AllocateAddress", &params).map_err(|error| {
            if errors::is(&error, &["AddressLimitExceeded"]) {
                return BackendError::provisioning(format!(
                    "the account may have no more elastic IPs in {}, and {id} needs one: raise the quota of EC2-VPC Elastic IPs, or set public_ips: false",
                    data.region
                ));
            }
            error
        })?;
        if let Some(reference) = reference {
            ledger::declare(&entry(
                reference,
                &data.region,
                id,
                Some(&made.allocation_id),
            ))?;
        }
        Ok(Address {
            allocation_id: Some(made.allocation_id),
            public_ip: made.public_ip,
            association_id: None,
            instance_id: None,
            tag_set: Set::default(),
        })
    }

    /// Gives back the address that was made for a machine.
    pub(crate) fn release_addresses(
        &self,
        ec2: &Api,
        region: &str,
        machine: &str,
        backend_data: Option<&str>,
    ) -> Result<()> {
        // Most machines have none: nothing is asked for them.
        let kept: Option<Kept> = backend_data.and_then(|text| serde_json::from_str(text).ok());
        let Some(kept) = kept else { return Ok(()) };
        let params = Params::new().list("AllocationId", [&kept.eip_allocation_id]);
        let found = match list(ec2, &params) {
            Err(error) if errors::is(&error, UNKNOWN) => Vec::new(),
            other => other?,
        };
        for address in found {
            let reference = address.reference().map(str::to_owned);
            release(ec2, &address)?;
            if let Some(reference) = reference {
                ledger::settle(&entry(&reference, region, machine, None))?;
            }
        }
        Ok(())
    }
}

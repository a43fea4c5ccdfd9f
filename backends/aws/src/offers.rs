//! What can be rented: rows of the catalog, with quotas and zones of the account.

use std::collections::BTreeMap;
use std::time::Duration;

use dstack_backend_sdk::host::cache;
use dstack_backend_sdk::offers::{HostCatalog, from_rows};
use dstack_backend_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::backend::Aws;
use crate::client::Service;
use crate::params::Params;
use crate::regions::in_each;
use crate::xml::Set;

/// Families that were tried with this backend: beginnings of the names of types.
const FAMILIES: &[&str] = &[
    "m7i.", "c7i.", "r7i.", "t3.", "t2.small", "c5.", "m5.", "p6-b300.", "p6-b200.", "p5.", "p5e.",
    "p5en.", "p4d.", "p4de.", "g7.", "g7e.", "g6.", "g6e.", "gr6.", "g5.", "g4dn.",
];
/// Sizes of the first disk, in GB.
const DISK_GB: (u32, u32) = (100, 16 * 1024);
const QUOTAS_REMEMBERED: Duration = Duration::from_secs(600);
/// Zones of a region do not change; nothing is remembered longer.
const ZONES_REMEMBERED: Duration = Duration::from_secs(3600);

/// Groups of types with a limit of virtual processors each, with the code of the limit.
///
/// Source: "Amazon EC2 instance type quotas": running on-demand instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Family {
    Standard,
    P,
    G,
}

impl Family {
    const ALL: [Self; 3] = [Self::Standard, Self::P, Self::G];

    fn of(instance_type: &str) -> Self {
        match instance_type.chars().next() {
            Some('p') => Self::P,
            Some('g') => Self::G,
            _ => Self::Standard,
        }
    }

    const fn code(self) -> &'static str {
        match self {
            Self::Standard => "L-1216C47A",
            Self::P => "L-417A185B",
            Self::G => "L-DB2E81BA",
        }
    }
}

/// What the account has in a region.
struct Facts {
    zones: Vec<String>,
    /// Limits that could be read.
    quotas: BTreeMap<Family, f64>,
}

impl Facts {
    fn availability(&self, instance_type: &str) -> InstanceAvailability {
        match self.quotas.get(&Family::of(instance_type)) {
            Some(limit) if *limit <= 0.0 => InstanceAvailability::NoQuota,
            _ => InstanceAvailability::Unknown,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Zones {
    #[serde(default)]
    availability_zone_info: Set<Zone>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Zone {
    zone_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct QuotaAnswer {
    quota: Quota,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Quota {
    value: f64,
}

impl Aws {
    /// Offers that fit the request.
    pub(crate) fn offers(&self, request: &GetOffersRequest) -> Result<GetOffersReply> {
        let mut reply = self.offers.get_offers(self, request)?;
        if let Some(id) = &request.requirements.reservation {
            reply.offers = self.reserved(id, reply.offers)?;
        }
        Ok(reply)
    }

    fn is_offered(&self, instance_type: &str) -> bool {
        let more = self.config.experimental_instance_types.iter().flatten();
        let mut families = FAMILIES.iter().copied().chain(more.map(String::as_str));
        families.any(|family| !family.is_empty() && instance_type.starts_with(family))
    }

    /// Names of the zones of a region.
    pub(crate) fn zones(&self, region: &str) -> Result<Vec<String>> {
        cache::get_or_compute(&format!("zones/{region}"), ZONES_REMEMBERED, || {
            let params = Params::new()
                .filter("region-name", [region])
                .filter("state", ["available"]);
            let found: Zones = self
                .apis
                .ec2(region)?
                .read("DescribeAvailabilityZones", &params)?;
            let zones = found.availability_zone_info.items.into_iter();
            Ok(zones.map(|zone| zone.zone_name).collect())
        })
    }

    fn facts(&self, region: &str) -> Result<Facts> {
        Ok(Facts {
            zones: self.zones(region)?,
            quotas: self.quotas(region)?,
        })
    }

    fn quotas(&self, region: &str) -> Result<BTreeMap<Family, f64>> {
        let found = cache::get_or_compute(&format!("quotas/{region}"), QUOTAS_REMEMBERED, || {
            let quotas = self.apis.of(Service::Quotas, region)?;
            let mut found = Vec::new();
            for family in Family::ALL {
                let query = json!({"ServiceCode": "ec2", "QuotaCode": family.code()});
                let answer = quotas.json("ServiceQuotasV20190624.GetServiceQuota", &query);
                let answer: Result<QuotaAnswer> = answer;
                match answer {
                    Ok(answer) => found.push((family, answer.quota.value)),
                    Err(error) if error.kind == ErrorKind::Cancelled => return Err(error),
                    // Whoever may not read limits can still rent machines.
                    Err(error) => {
                        tracing::debug!(region, %error, "a quota cannot be read");
                    }
                }
            }
            Ok(found)
        })?;
        Ok(found.into_iter().collect())
    }

    /// Those of the offers that the reservation takes, in its zone.
    fn reserved(
        &self,
        id: &str,
        offers: Vec<InstanceOfferWithAvailability>,
    ) -> Result<Vec<InstanceOfferWithAvailability>> {
        let regions: std::collections::BTreeSet<String> =
            offers.iter().map(|offer| offer.region.clone()).collect();
        let regions: Vec<String> = regions.into_iter().collect();
        let mut found = BTreeMap::new();
        for (region, reservation) in in_each(&regions, |region| self.reservation(region, id)) {
            if let Some(reservation) = reservation? {
                found.insert(region, reservation);
            }
        }
        let fitting = offers.into_iter().filter_map(|mut offer| {
            let reservation = found.get(&offer.region)?;
            if offer.instance.resources.spot || !reservation.fits(&offer.instance.name) {
                return None;
            }
            offer.availability = InstanceAvailability::Available;
            offer.availability_zones = Some(vec![reservation.zone.clone()]);
            Some(offer)
        });
        Ok(fitting.collect())
    }
}

impl AllOffers for Aws {
    fn all_offers(&self, request: &GetOffersRequest) -> Result<Vec<InstanceOfferWithAvailability>> {
        let regions = self.config.regions();
        let mut items = HostCatalog::new("aws").items(&request.requirements)?;
        items.retain(|item| self.is_offered(&item.instance_name));
        let mut facts = BTreeMap::new();
        let mut failure = None;
        for (region, found) in in_each(&regions, |region| self.facts(region)) {
            match found {
                Ok(found) => drop(facts.insert(region, found)),
                Err(error) if error.kind == ErrorKind::Cancelled => return Err(error),
                Err(error) => {
                    tracing::warn!(region, %error, "a region is left out of the offers");
                    failure.get_or_insert(error);
                }
            }
        }
        if let (true, Some(error)) = (facts.is_empty(), failure) {
            return Err(error);
        }
        let rows = items.into_iter().filter_map(|item| {
            let availability = facts.get(&item.location)?.availability(&item.instance_name);
            Some((item, availability))
        });
        let mut offers = from_rows("aws", rows, &regions);
        for offer in &mut offers {
            let zones = facts.get(&offer.region).map(|facts| facts.zones.clone());
            offer.availability_zones = zones.filter(|zones| !zones.is_empty());
        }
        Ok(offers)
    }

    fn disk(&self, _offer: &InstanceOfferWithAvailability) -> DiskPolicy {
        DiskPolicy::configurable(DISK_GB.0, DISK_GB.1)
    }
}

#[cfg(test)]
mod tests {
    use super::{FAMILIES, Facts, Family};
    use dstack_backend_sdk::types::InstanceAvailability;

    #[test]
    fn only_a_limit_of_nothing_takes_an_offer_away() {
        let facts = Facts {
            zones: Vec::new(),
            quotas: [(Family::P, 0.0), (Family::Standard, 32.0)].into(),
        };
        for (name, expected) in [
            ("p5.48xlarge", InstanceAvailability::NoQuota),
            ("m5.large", InstanceAvailability::Unknown),
            ("g6.xlarge", InstanceAvailability::Unknown),
        ] {
            assert_eq!(facts.availability(name), expected, "{name}");
        }
    }

    #[test]
    fn families_are_beginnings_of_names() {
        let is = |name: &str| FAMILIES.iter().any(|family| name.starts_with(family));
        assert!(is("t2.small") && is("p5en.48xlarge") && is("gr6.4xlarge"));
        assert!(!is("t2.micro") && !is("m7i-flex.large") && !is("p3.2xlarge"));
    }
}

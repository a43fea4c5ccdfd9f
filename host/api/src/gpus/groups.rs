//! Offers in groups.

use std::collections::BTreeMap;

use dstack_backend_types::{
    AcceleratorVendor, BackendType, CpuArchitecture, InstanceOfferWithAvailability as Offer,
};

use super::{CpuGroup, GpuGroup, GpuGroupBy, Span};

/// What the offers of a group have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    name: String,
    memory_mib: u64,
    vendor: String,
    backend: Option<BackendType>,
    region: Option<String>,
    count: Option<usize>,
}

/// Groups of the offers with accelerators, the one with the cheapest accelerator first.
pub fn of_gpus(offers: &[Offer], by: &[GpuGroupBy]) -> Vec<GpuGroup> {
    let mut groups = gpu_groups(offers, by);
    groups.sort_by(|a, b| {
        let price = |group: &GpuGroup| group.price.min.unwrap_or(f64::INFINITY);
        price(a).total_cmp(&price(b))
    });
    groups
}

fn gpu_groups(offers: &[Offer], by: &[GpuGroupBy]) -> Vec<GpuGroup> {
    let mut groups: BTreeMap<Key, Vec<&Offer>> = BTreeMap::new();
    for offer in offers {
        let gpus = &offer.instance.resources.gpus;
        let Some(gpu) = gpus.first() else { continue };
        let key = Key {
            name: gpu.name.clone(),
            memory_mib: gpu.memory_mib,
            vendor: AcceleratorVendor::as_str(gpu.vendor()).to_owned(),
            backend: by
                .contains(&GpuGroupBy::Backend)
                .then(|| offer.backend.clone()),
            region: by
                .contains(&GpuGroupBy::Region)
                .then(|| offer.region.clone()),
            count: by.contains(&GpuGroupBy::Count).then_some(gpus.len()),
        };
        groups.entry(key).or_default().push(offer);
    }
    groups
        .into_iter()
        .map(|(key, offers)| gpu_group(key, &offers))
        .collect()
}

fn gpu_group(key: Key, offers: &[&Offer]) -> GpuGroup {
    let count =
        |offer: &&Offer| u32::try_from(offer.instance.resources.gpus.len()).unwrap_or(u32::MAX);
    let places = Places::of(offers, key.backend, key.region);
    GpuGroup {
        name: key.name,
        memory_mib: key.memory_mib,
        vendor: key.vendor,
        availability: distinct(offers.iter().map(|offer| offer.availability.as_str())),
        spot: distinct(offers.iter().map(|offer| spot(offer))),
        count: span(offers.iter().map(count), Ord::cmp),
        price: span(
            offers
                .iter()
                .map(|offer| offer.price / f64::from(count(offer).max(1))),
            f64::total_cmp,
        ),
        offer_price: Some(span(offers.iter().map(|offer| offer.price), f64::total_cmp)),
        backends: places.backends,
        backend: places.backend,
        regions: places.regions,
        region: places.region,
    }
}

/// Groups of the offers without accelerators.
pub fn of_cpus(offers: &[Offer], by: &[GpuGroupBy]) -> Vec<CpuGroup> {
    let mut groups: BTreeMap<(Option<BackendType>, Option<String>), Vec<&Offer>> = BTreeMap::new();
    for offer in offers
        .iter()
        .filter(|offer| offer.instance.resources.gpus.is_empty())
    {
        let backend = by
            .contains(&GpuGroupBy::Backend)
            .then(|| offer.backend.clone());
        let region = by
            .contains(&GpuGroupBy::Region)
            .then(|| offer.region.clone());
        groups.entry((backend, region)).or_default().push(offer);
    }
    let group =
        |((backend, region), offers): ((Option<BackendType>, Option<String>), Vec<&Offer>)| {
            let places = Places::of(&offers, backend, region);
            CpuGroup {
                cpu_arch: distinct(
                    offers
                        .iter()
                        .filter_map(|offer| offer.instance.resources.cpu_arch)
                        .map(CpuArchitecture::as_str),
                ),
                count: span(
                    offers.iter().map(|offer| offer.instance.resources.cpus),
                    Ord::cmp,
                ),
                memory_mib: span(
                    offers
                        .iter()
                        .map(|offer| offer.instance.resources.memory_mib),
                    Ord::cmp,
                ),
                price: span(offers.iter().map(|offer| offer.price), f64::total_cmp),
                availability: distinct(offers.iter().map(|offer| offer.availability.as_str())),
                spot: distinct(offers.iter().map(|offer| spot(offer))),
                backends: places.backends,
                backend: places.backend,
                regions: places.regions,
                region: places.region,
            }
        };
    groups.into_iter().map(group).collect()
}

/// Where the offers of a group are: what it is grouped by, else all of them.
struct Places {
    backends: Option<Vec<BackendType>>,
    backend: Option<BackendType>,
    regions: Option<Vec<String>>,
    region: Option<String>,
}

impl Places {
    fn of(offers: &[&Offer], backend: Option<BackendType>, region: Option<String>) -> Self {
        let mut backends: Vec<BackendType> =
            offers.iter().map(|offer| offer.backend.clone()).collect();
        backends.sort();
        backends.dedup();
        let regions = distinct(offers.iter().map(|offer| offer.region.as_str()));
        Self {
            backends: backend.is_none().then_some(backends),
            regions: (backend.is_some() && region.is_none()).then_some(regions),
            backend,
            region,
        }
    }
}

const fn spot(offer: &Offer) -> &'static str {
    if offer.instance.resources.spot {
        "spot"
    } else {
        "on-demand"
    }
}

/// Values in the order in which they first appear.
fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for value in values {
        if !found.iter().any(|known| known == value) {
            found.push(value.to_owned());
        }
    }
    found
}

fn span<T: Copy>(
    values: impl Iterator<Item = T> + Clone,
    order: impl Fn(&T, &T) -> std::cmp::Ordering,
) -> Span<T> {
    Span {
        min: values.clone().min_by(&order),
        max: values.max_by(&order),
    }
}

//! Why offers of a backend are turned down, gathered by reason.

use std::borrow::Cow;
use std::collections::BTreeMap;

use dstack_api::explain::{Candidate, CandidateKind};
use dstack_backend_types::matching::{machine_fits, matches};
use dstack_backend_types::{
    InstanceAvailability, InstanceOfferWithAvailability as Offer, Requirements, ResourcesSpec,
};

use crate::combine::Wanted;
use crate::preview::Ask;

/// The offers of one backend that the job does not take, one row for each reason, with the cheapest offer of each;
/// and one row without a reason for those that it may take. The offers must have been asked for without conditions.
pub fn rejected(fleet: Option<&str>, backend: &str, ask: &Ask, offers: &[Offer]) -> Vec<Candidate> {
    let mut rows: BTreeMap<Option<Cow<'static, str>>, Candidate> = BTreeMap::new();
    for offer in offers {
        let reason = why_not(offer, &ask.wanted);
        let row = rows.entry(reason.clone()).or_insert_with(|| Candidate {
            fleet: fleet.map(str::to_owned),
            reason: reason.map(Cow::into_owned),
            count: 0,
            ..Candidate::new(CandidateKind::Offer, backend)
        });
        row.count += 1;
        if row.price.is_none_or(|price| offer.price < price) {
            row.price = Some(offer.price);
            row.region = Some(offer.region.clone());
            row.example = Some(offer.instance.name.clone());
        }
    }
    let mut rows: Vec<Candidate> = rows.into_values().collect();
    rows.sort_by(|a, b| {
        a.reason
            .is_some()
            .cmp(&b.reason.is_some())
            .then(b.count.cmp(&a.count))
    });
    rows
}

/// The first condition that an offer does not meet; `None`: it may be taken.
fn why_not(offer: &Offer, wanted: &Wanted) -> Option<Cow<'static, str>> {
    if let Some(why) = lacking(offer, &wanted.machine) {
        return Some(why);
    }
    if wanted.narrow(offer.clone()).is_none() {
        return Some(elsewhere(offer, wanted).unwrap_or_else(|| "its zones are not wanted".into()));
    }
    match offer.availability {
        InstanceAvailability::NoQuota => Some("no quota for it".into()),
        InstanceAvailability::NoBalance => Some("the account has no balance".into()),
        InstanceAvailability::NotAvailable => Some("no capacity".into()),
        InstanceAvailability::Unknown
        | InstanceAvailability::Available
        | InstanceAvailability::Idle
        | InstanceAvailability::Busy => None,
    }
}

/// What a machine lacks: the first of the resources, then price, then spot.
pub(super) fn lacking(offer: &Offer, needs: &Requirements) -> Option<Cow<'static, str>> {
    if matches(offer, needs) {
        return None;
    }
    let any = ResourcesSpec::unconstrained;
    let wants = &needs.resources;
    let parts = [
        (
            "gpu",
            ResourcesSpec {
                gpu: wants.gpu.clone(),
                ..any()
            },
        ),
        (
            "cpu",
            ResourcesSpec {
                cpu: wants.cpu.clone(),
                ..any()
            },
        ),
        (
            "memory",
            ResourcesSpec {
                memory: wants.memory,
                ..any()
            },
        ),
    ];
    for (name, part) in parts {
        if !machine_fits(&offer.instance, &part) {
            return Some(format!("its {name} is not what `resources` asks for").into());
        }
    }
    if let Some(max) = needs.max_price.filter(|max| offer.price > *max) {
        return Some(format!("above `max_price` of ${max}").into());
    }
    match needs.spot {
        Some(true) if !offer.instance.resources.spot => Some("not a spot machine".into()),
        Some(false) if offer.instance.resources.spot => Some("a spot machine".into()),
        _ => Some("its disk is not what `resources` asks for".into()),
    }
}

/// Which of the places and types that are wanted an offer is not of.
pub(super) fn elsewhere(offer: &Offer, wanted: &Wanted) -> Option<Cow<'static, str>> {
    let params = &wanted.profile.params;
    let without = |list: &Option<Vec<String>>, word: &str| {
        list.as_ref()
            .is_some_and(|list| !list.iter().any(|item| item.eq_ignore_ascii_case(word)))
    };
    if params
        .backends
        .as_ref()
        .is_some_and(|list| !list.contains(&offer.backend))
    {
        return Some("other `backends` are wanted".into());
    }
    if without(&params.regions, &offer.region) {
        return Some("other `regions` are wanted".into());
    }
    if without(&params.instance_types, &offer.instance.name) {
        return Some("other `instance_types` are wanted".into());
    }
    let beside = wanted.fixed.as_ref();
    if beside.is_some_and(|fixed| fixed.backend != offer.backend || fixed.region != offer.region) {
        return Some("the other machines of the cluster are elsewhere".into());
    }
    let far =
        |place: &crate::volumes::mounts::Place| !place.reaches(&offer.backend, &offer.region, None);
    wanted
        .volumes
        .iter()
        .any(|mount| mount.iter().all(far))
        .then(|| "the run's volumes are elsewhere".into())
}

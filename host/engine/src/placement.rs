//! Existing machines for a job.

use dstack_api::config::{InstanceSelector, ProfileParams};
use dstack_api::instances::HealthStatus;
use dstack_backend_types::InstanceOfferWithAvailability as Offer;

use crate::combine::Wanted;
use crate::model::{FleetRow, InstanceRow};
use crate::offers;

/// The machines of a fleet's pool that fit, cheapest first, then by number. The offers are whole machines; `blocks`
/// says how many the job takes.
pub fn fitting<'a>(
    pool: &'a [InstanceRow],
    wanted: &Wanted,
    run: &ProfileParams,
    fleet: &FleetRow,
) -> Vec<(&'a InstanceRow, Offer)> {
    let mut out: Vec<(&InstanceRow, Offer)> = pool
        .iter()
        .filter(|instance| is_named(run.instances.as_deref(), instance, fleet))
        .filter_map(|instance| Some((instance, fit(instance, wanted)?)))
        .collect();
    out.sort_by(|(a, x), (b, y)| {
        x.price
            .total_cmp(&y.price)
            .then(a.instance_num.cmp(&b.instance_num))
    });
    out
}

/// The machine as an offer with the blocks that the job would take, or `None` if it does not fit.
pub fn fit(instance: &InstanceRow, wanted: &Wanted) -> Option<Offer> {
    let usable = !instance.unreachable
        && !instance.deleted
        && instance.status.is_available()
        && instance.health != HealthStatus::Failure;
    let (offer, data) = (
        instance.offer.as_deref()?,
        instance.provisioning_data.as_deref()?,
    );
    let total = instance.total_blocks?;
    if !usable || !instance.has_shim() || !wanted.accepts_machine(offer, data) {
        return None;
    }
    let blocks = offers::fit(
        offer,
        total,
        instance.free_blocks(),
        &wanted.requirements,
        wanted.whole,
    )?;
    Some(Offer {
        blocks,
        total_blocks: total,
        ..offer.clone()
    })
}

/// Whether the run asked for this instance, or for none in particular.
pub(crate) fn is_named(
    selectors: Option<&[InstanceSelector]>,
    instance: &InstanceRow,
    fleet: &FleetRow,
) -> bool {
    selectors.is_none_or(|list| {
        list.iter().any(|selector| match selector {
            InstanceSelector::Name { name } => *name == *instance.name,
            InstanceSelector::Hostname { hostname } => {
                let data = instance.provisioning_data.as_deref();
                data.is_some_and(|d| {
                    d.hostname.as_ref() == Some(hostname)
                        || d.internal_ip.as_ref() == Some(hostname)
                })
            }
            InstanceSelector::Number {
                fleet: wanted,
                instance: number,
            } => *wanted.name == *fleet.name && *number == instance.instance_num,
        })
    })
}

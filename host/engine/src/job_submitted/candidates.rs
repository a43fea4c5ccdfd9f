//! The fleets that may take a job, and what each could give.

use dstack_backend_types::{BackendType, InstanceOfferWithAvailability as Offer};

use super::{OfferAsk, View};
use crate::combine::{Fixed, Wanted};
use crate::model::InstanceRow;
use crate::offers::Sharing;
use crate::view::{FleetFacts, FleetOffers};
use crate::volumes::mounts::{self, Choices};
use crate::{placement, spec};

/// A fleet that this job may be placed in, with what it would need there.
pub(super) struct Need<'a> {
    pub(super) facts: &'a FleetFacts,
    /// What a new machine must be; `None` when fleet and run contradict each other.
    pub(super) wanted: Option<Wanted>,
    pub(super) has_room: bool,
    /// Idle machines that fit, cheapest first.
    pub(super) pool: Vec<(&'a InstanceRow, Offer)>,
    pub(super) enough: bool,
}

impl Need<'_> {
    pub(super) fn ask(&self, view: &View) -> Option<OfferAsk> {
        let wanted = self
            .wanted
            .as_ref()
            .filter(|_| !spec::is_ssh(&self.facts.fleet.spec))?;
        let backends: Vec<BackendType> = view
            .backends
            .iter()
            .filter(|b| wanted.accepts_backend(b))
            .map(|b| b.name.clone())
            .collect();
        (!backends.is_empty()).then(|| OfferAsk {
            fleet_id: self.facts.fleet.id,
            backends,
            wanted: wanted.clone(),
            sharing: spec::sharing(&self.facts.fleet.spec),
        })
    }
}

/// The fleets that may take the job, each with its needs and fitting machines.
pub(super) fn candidates<'a>(view: &'a View, volumes: &Choices) -> Result<Vec<Need<'a>>, String> {
    let (job, run) = (&view.job, &view.run);
    let required = if run.fleet_id.is_some() {
        1
    } else {
        spec::required_nodes(&run.spec)
    };
    let multinode = job.spec.jobs_per_replica > 1;
    let fixed = view
        .siblings
        .iter()
        .find(|other| other.job_num == 0)
        .and_then(|master| master.provisioning_data.as_deref())
        .map(Fixed::to);
    let profile = spec::run_profile(&run.spec);
    let mut needs = Vec::new();
    let mut too_small = false;
    for facts in &view.fleets {
        let fleet = &facts.fleet;
        let placed = view
            .instance
            .as_ref()
            .is_none_or(|i| i.fleet_id == fleet.id);
        if run.fleet_id.is_some_and(|id| id != fleet.id)
            || !placed
            || !spec::fleet_is_named(
                &profile,
                &fleet.name,
                &facts.project_name,
                &view.project_name,
            )
            || (multinode && !spec::is_cluster(&fleet.spec))
        {
            continue;
        }
        let master = facts
            .master
            .as_ref()
            .filter(|_| spec::is_cluster(&fleet.spec));
        let beside = fixed.clone().or_else(|| {
            master
                .and_then(|m| m.provisioning_data.as_deref())
                .map(Fixed::to)
        });
        let mut reuse = Wanted::of_job(fleet.id, &profile, &job.spec, beside.clone());
        reuse.volumes = mounts::places(volumes);
        let mut wanted = Wanted::combine(fleet.id, &fleet.spec, &profile, &job.spec, beside);
        if let Some(wanted) = &mut wanted {
            wanted.volumes.clone_from(&reuse.volumes);
        }
        let max = spec::nodes_max(&fleet.spec);
        let ssh = spec::is_ssh(&fleet.spec);
        let whole = spec::sharing(&fleet.spec) == Sharing::Count(1);
        if !ssh
            && whole
            && max.is_some_and(|max| max.saturating_sub(facts.taken) < required)
            && view.instance.is_none()
        {
            too_small = true;
            continue;
        }
        let pool = placement::fitting(&facts.pool, &reuse, &profile, fleet);
        let enough = pool.len() >= usize::try_from(required).unwrap_or(usize::MAX);
        let has_room =
            !ssh && (max.is_none_or(|max| facts.living < max) || view.instance.is_some());
        if wanted.is_none() && pool.is_empty() {
            // Fleet and run contradict each other, and no machine of the fleet fits anyway.
            continue;
        }
        needs.push(Need {
            facts,
            wanted,
            has_room,
            pool,
            enough,
        });
    }
    if needs.is_empty() {
        return Err(if too_small {
            "No matching fleet found: the fleets that fit have no free nodes".into()
        } else {
            "No matching fleet found".into()
        });
    }
    Ok(needs)
}

pub(super) fn none_to_ask(needs: &[Need<'_>]) -> String {
    if needs.iter().any(|n| n.has_room) {
        "no backend of the project can do what the run asks for".into()
    } else {
        "no idle instance fits, and the fleet is at its maximum".into()
    }
}

/// The cheapest fleet by its first available offer.
pub(super) fn cheapest<'a, 'b>(
    needs: &'a [Need<'b>],
    answers: &'a [FleetOffers],
) -> Option<(&'a Need<'b>, &'a Wanted, &'a [Offer])> {
    needs
        .iter()
        .filter_map(|need| {
            let wanted = need.wanted.as_ref()?;
            let found = answers.iter().find(|a| a.fleet_id == need.facts.fleet.id)?;
            let first = found
                .offers
                .iter()
                .find(|o| o.availability.is_available())?;
            Some((first.price, need, wanted, found.offers.as_slice()))
        })
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, need, wanted, offers)| (need, wanted, offers))
}

/// The offers to try, `most` at most: as they are ranked, or, if so many spot machines are to be tried first, those
/// before the regular ones.
pub(super) fn in_turn(offers: &[Offer], spot_tries: Option<u32>, most: usize) -> Vec<Offer> {
    let available = offers
        .iter()
        .filter(|offer| offer.availability.is_available());
    let Some(tries) = spot_tries else {
        return available.take(most).cloned().collect();
    };
    let (spot, regular): (Vec<&Offer>, Vec<&Offer>) =
        available.partition(|offer| offer.instance.resources.spot);
    let tries = usize::try_from(tries).unwrap_or(usize::MAX);
    spot.into_iter()
        .take(tries)
        .chain(regular)
        .take(most)
        .cloned()
        .collect()
}

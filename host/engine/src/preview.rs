//! The offers that a plan shows: which fleet a job would be placed in, and what it could get there.
//!
//! It looks at fleets like [`job_submitted`](crate::job_submitted), but shows all offers instead of taking one.

use std::sync::Arc;

use dstack_api::config::ProfileParams;
use dstack_api::jobs::JobSpec;
use dstack_api::runs::RunSpec;
use dstack_backend_types::{
    BackendType, InstanceAvailability, InstanceOfferWithAvailability as Offer,
};

use crate::combine::{Fixed, Wanted};
use crate::ids::FleetId;
use crate::offers::{self, Sharing, share_of};
use crate::view::{BackendAbilities, FleetFacts};
use crate::volumes::mounts::{self, Named, Place};
use crate::{placement, spec};

/// What to ask the backends on behalf of one fleet, or of none.
#[derive(Debug, Clone)]
pub struct Ask {
    /// What is needed; its `fleet_id` is the asking fleet.
    pub wanted: Wanted,
    /// What an existing machine must be: the run's needs alone.
    pub reuse: Wanted,
    /// How the fleet shares machines.
    pub sharing: Sharing,
    /// The backends to ask; may be none.
    pub backends: Vec<BackendType>,
    /// Machines of the fleet that fit, as offers.
    pub pool: Vec<Offer>,
    /// The fleet has idle machines for all nodes.
    pub enough: bool,
}

/// One question for each fleet that may take the job.
pub fn asks(
    run: &RunSpec,
    job: &JobSpec,
    fleets: &[FleetFacts],
    (backends, volumes): (&[BackendAbilities], &[Named]),
    project: &str,
) -> Vec<Ask> {
    let profile = spec::run_profile(run);
    let required = usize::try_from(spec::required_nodes(run)).unwrap_or(usize::MAX);
    fleets
        .iter()
        .filter_map(|facts| {
            let near = places_of(job, volumes);
            ask(facts, &profile, (job, near), required, backends, project)
        })
        .collect()
}

fn ask(
    facts: &FleetFacts,
    profile: &ProfileParams,
    (job, near): (&JobSpec, Vec<Vec<Place>>),
    required: usize,
    backends: &[BackendAbilities],
    project: &str,
) -> Option<Ask> {
    let fleet = &facts.fleet;
    let is_cluster = spec::is_cluster(&fleet.spec);
    if !spec::fleet_is_named(profile, &fleet.name, &facts.project_name, project)
        || (job.jobs_per_replica > 1 && !is_cluster)
    {
        return None;
    }
    let fixed = facts
        .master
        .as_ref()
        .filter(|_| is_cluster)
        .and_then(|master| master.provisioning_data.as_deref());
    let mut wanted = Wanted::combine(fleet.id, &fleet.spec, profile, job, fixed.map(Fixed::to))?;
    let mut reuse = Wanted::of_job(fleet.id, profile, job, wanted.fixed.clone());
    reuse.volumes.clone_from(&near);
    wanted.volumes = near;
    let fitting = placement::fitting(&facts.pool, &reuse, profile, fleet);
    let enough = fitting.len() >= required;
    let pool = fitting
        .into_iter()
        .map(|(instance, mut offer)| {
            offer.availability = match instance.busy_blocks {
                0 => InstanceAvailability::Idle,
                _ if offer.total_blocks > 1 => InstanceAvailability::Idle,
                _ => InstanceAvailability::Busy,
            };
            share(offer)
        })
        .collect();
    let full = spec::nodes_max(&fleet.spec).is_some_and(|max| facts.living >= max);
    let asked = if spec::is_ssh(&fleet.spec) || full {
        Vec::new()
    } else {
        able(&wanted, backends)
    };
    Some(Ask {
        wanted,
        reuse,
        sharing: spec::sharing(&fleet.spec),
        backends: asked,
        pool,
        enough,
    })
}

/// The question of a run that is not tied to fleets: `dstack offer`.
pub fn ask_anywhere(
    run: &RunSpec,
    job: &JobSpec,
    backends: &[BackendAbilities],
    volumes: &[Named],
) -> Ask {
    let profile = spec::run_profile(run).into_owned();
    let wanted = Wanted {
        fleet_id: FleetId(uuid::Uuid::nil()),
        profile: dstack_api::config::Profile {
            params: profile,
            name: String::new(),
            default: false,
        },
        requirements: job.requirements.clone(),
        machine: job.requirements.clone(),
        whole: job.jobs_per_replica > 1,
        privileged: job.privileged,
        instance_mounts: false,
        fixed: None,
        volumes: places_of(job, volumes),
    };
    let backends = able(&wanted, backends);
    Ask {
        reuse: wanted.clone(),
        wanted,
        sharing: Sharing::Count(1),
        backends,
        pool: Vec::new(),
        enough: false,
    }
}

/// Where the job's volumes are. A plan shows where they tie a run to, even while another job has them.
fn places_of(job: &JobSpec, volumes: &[Named]) -> Vec<Vec<Place>> {
    let free: Vec<Named> = volumes
        .iter()
        .map(|named| Named {
            volume: Arc::clone(&named.volume),
            holders: Vec::new(),
        })
        .collect();
    mounts::choices(job, &free).map_or_else(|_| Vec::new(), |choices| mounts::places(&choices))
}

fn able(wanted: &Wanted, backends: &[BackendAbilities]) -> Vec<BackendType> {
    backends
        .iter()
        .filter(|backend| wanted.accepts_backend(backend))
        .map(|backend| backend.name.clone())
        .collect()
}

/// The offers of one question, best first: own machines, then what the backends answered; available ones first.
pub fn offers(ask: &Ask, answers: Vec<Vec<Offer>>, limit: usize) -> Vec<Offer> {
    let mut all = ask.pool.clone();
    all.extend(
        offers::select(answers, &ask.wanted, ask.sharing, limit)
            .into_iter()
            .map(share),
    );
    all.sort_by_key(|offer| !offer.availability.is_available());
    all
}

/// The share that the job takes, as people see it.
fn share(offer: Offer) -> Offer {
    let (blocks, total) = (offer.blocks, offer.total_blocks);
    if blocks == total {
        offer
    } else {
        share_of(&offer, blocks, total)
    }
}

/// Which of several fleets' offers to show: the fleet that has idle machines for all nodes, else the cheapest one.
pub fn best(found: Vec<(bool, Vec<Offer>)>) -> Vec<Offer> {
    let price = |offers: &[Offer]| {
        offers
            .iter()
            .find(|offer| offer.availability.is_available())
            .map_or(f64::INFINITY, |offer| offer.price)
    };
    found
        .into_iter()
        .min_by(|(a_enough, a), (b_enough, b)| {
            b_enough
                .cmp(a_enough)
                .then(price(a).total_cmp(&price(b)))
                .then(a.is_empty().cmp(&b.is_empty()))
        })
        .map(|(_, offers)| offers)
        .unwrap_or_default()
}

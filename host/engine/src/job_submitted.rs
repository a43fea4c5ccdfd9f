//! Submitted jobs: from the wish to a machine.
//!
//! ```text
//!                     ┌─ idle machine fits ──────────────────────────► provisioning (machine is ready)
//! submitted ─ fleet ──┤
//!                     └─ placeholder + provider_ref stored ─ offers ─► provisioning (machine boots)
//!                                                             └ none ► terminating (no capacity)
//! ```
//!
//! A machine is asked for only after a placeholder instance with a [`CloudAttempt`] is stored. So a step that
//! finds an attempt without a result knows that an earlier one died in between; it hands that attempt's
//! reference to cleanup and tries again under a new one. The same happens when a provider gives no answer.

mod candidates;
mod outcome;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dstack_api::instances::InstanceStatus;
use dstack_api::jobs::{JobStatus, JobTerminationReason};
use dstack_api::runs::RunStatus;
use dstack_backend_types::{
    BackendType, InstanceOfferWithAvailability as Offer, JobProvisioningData, JobRuntimeData,
    NetworkMode,
};
use jiff::Timestamp;

use crate::changes::{Changes, CleanupRow, Guard, NewInstance, Pipeline};
use crate::combine::Wanted;
use crate::ids::{FleetId, Ids, InstanceId};
use crate::model::{CloudAttempt, InstanceRow, JobRow, RunRow, VolumeRow};
use crate::offers::{Sharing, share_of};
use crate::view::{BackendAbilities, FleetFacts, FleetOffers, JobNetwork, Limits};
use crate::volumes::mounts::{self, Choices, Lack, Named};
use crate::{idle, spec};
use candidates::{Need, candidates, cheapest, in_turn, none_to_ask};

pub use outcome::conclude;
pub(crate) use outcome::failure_text;

/// The run statuses in which jobs may start.
pub(crate) const ACTIVE: [RunStatus; 4] = [
    RunStatus::Pending,
    RunStatus::Submitted,
    RunStatus::Provisioning,
    RunStatus::Running,
];

/// What the decision reads.
#[derive(Debug, Clone)]
pub struct View {
    /// Now.
    pub now: Timestamp,
    /// The project's name, as fleet references write it.
    pub project_name: Arc<str>,
    /// The job.
    pub job: JobRow,
    /// Its run.
    pub run: RunRow,
    /// The newest submissions of the other jobs of the replica, by job number.
    pub siblings: Vec<JobRow>,
    /// The placeholder that an earlier step stored for this job.
    pub instance: Option<InstanceRow>,
    /// The project's backends.
    pub backends: Arc<Vec<BackendAbilities>>,
    /// Own and imported fleets that are active; only the run's fleet when it has one.
    pub fleets: Vec<FleetFacts>,
    /// The project's volumes that the job names.
    pub volumes: Vec<Named>,
    /// What the backends answered to [`Plan::AskOffers`]; `None` before the question.
    pub offers: Option<Vec<FleetOffers>>,
    /// Limits.
    pub limits: Arc<Limits>,
}

/// What to do.
#[derive(Debug, Clone)]
#[allow(
    clippy::large_enum_variant,
    reason = "lives for one step and is moved twice"
)]
pub enum Plan {
    /// Write this.
    Change(Changes),
    /// Ask the backends, put the answers into [`View::offers`], plan again under the same lease.
    AskOffers(Vec<OfferAsk>),
    /// Make a machine.
    Provision(Box<Provision>),
}

/// A question to backends.
#[derive(Debug, Clone)]
pub struct OfferAsk {
    /// The fleet that asks.
    pub fleet_id: FleetId,
    /// The backends to ask.
    pub backends: Vec<BackendType>,
    /// What is needed; `machine` goes to the backends, the rest is for
    /// [`offers::select`](crate::offers::select), which turns the answers into [`FleetOffers`].
    pub wanted: Wanted,
    /// How the fleet shares machines; for `select`, too.
    pub sharing: Sharing,
}

/// An order for one machine.
#[derive(Debug, Clone)]
pub struct Provision {
    /// To be written first, keeping the lease. If that is refused, nothing is called.
    pub before: Changes,
    /// The instance row that stands for the machine.
    pub instance_id: InstanceId,
    /// The stored attempt; its reference goes into the call.
    pub attempt: CloudAttempt,
    /// The offers to try in this order until one holds, or one gives no answer. Backends that make instances get
    /// `create_instance`, others `run_job`.
    pub offers: Vec<Offer>,
    /// Needs, combined from fleet and run: requirements, reservation, tags.
    pub wanted: Wanted,
    /// The volumes that the job may take.
    pub volumes: Choices,
    /// Reasons of the offers that were tried before.
    pub refused: Vec<String>,
    /// How many offers there were in all.
    pub total: usize,
}

/// The answer to one tried offer.
#[derive(Debug, Clone)]
pub enum Attempt {
    /// The machine is being made.
    Made(Box<JobProvisioningData>),
    /// Surely nothing was made.
    Refused(String),
    /// The backend knew that it makes no sense now; not counted as tried.
    Skipped,
    /// No answer: something may have been made.
    Unknown(String),
}

/// What the answers to a [`Provision`] mean.
#[derive(Debug, Clone)]
#[allow(
    clippy::large_enum_variant,
    reason = "lives for one step and is moved twice"
)]
pub enum Conclusion {
    /// Write this.
    Done(Changes),
    /// Go on with the remaining offers under a new reference: write `before`, call.
    Again(Box<Provision>),
}

/// Decides what to try for a submitted job.
pub fn plan(view: &View, ids: &mut Ids) -> Plan {
    let (job, run) = (&view.job, &view.run);
    if job.status != JobStatus::Submitted || !ACTIVE.contains(&run.status) {
        // The run's own pipeline ends the job.
        return Plan::Change(Changes::nothing());
    }
    if job.job_num > 0 {
        let master = view.siblings.iter().find(|other| other.job_num == 0);
        let placed = master.is_some_and(|m| m.provisioning_data.is_some());
        if !placed || !job.released {
            // Job 0 wakes its siblings when it is placed; its end reaches them by the run.
            return Plan::Change(Changes::later(Duration::from_secs(30)));
        }
    }
    let volumes = match mounts::choices(&job.spec, &view.volumes) {
        Ok(volumes) => volumes,
        Err(Lack::Soon) => return Plan::Change(Changes::later(Duration::from_secs(4))),
        Err(Lack::Never(why)) => {
            return Plan::Change(fails(view, JobTerminationReason::VolumeError, why));
        }
    };
    let needs = match candidates(view, &volumes) {
        Ok(needs) => needs,
        Err(why) => return Plan::Change(no_capacity(view, why)),
    };
    if view.instance.is_none()
        && let Some(taken) = take_pool(view, &needs, &volumes)
    {
        return Plan::Change(taken);
    }
    if spec::reuse_only(&run.spec) {
        return Plan::Change(no_capacity(
            view,
            "no idle instance fits, and the run may only reuse".into(),
        ));
    }
    let Some(answers) = &view.offers else {
        let asks: Vec<OfferAsk> = needs
            .iter()
            .filter(|n| n.has_room)
            .filter_map(|n| n.ask(view))
            .collect();
        if asks.is_empty() {
            return Plan::Change(no_capacity(view, none_to_ask(&needs)));
        }
        return Plan::AskOffers(asks);
    };
    match cheapest(&needs, answers) {
        Some((need, ..)) if waits_for_first(view, need) => {
            Plan::Change(Changes::later(Duration::from_secs(2)))
        }
        Some((need, wanted, offers)) => {
            Plan::Provision(Box::new(order(view, need, wanted, offers, volumes, ids)))
        }
        None => Plan::Change(no_capacity(view, "no offers match the requirements".into())),
    }
}

/// The first machine of an empty cluster decides where the others go; while somebody else makes it, there is nothing to
/// decide yet.
fn waits_for_first(view: &View, need: &Need<'_>) -> bool {
    spec::is_cluster(&need.facts.fleet.spec)
        && need.facts.master.is_none()
        && need.facts.living > 0
        && view.instance.is_none()
}

/// Takes the cheapest fitting idle machine of the best fleet that has enough of them.
fn take_pool(view: &View, needs: &[Need<'_>], volumes: &Choices) -> Option<Changes> {
    let price = |n: &Need<'_>| {
        n.pool
            .first()
            .map_or(f64::INFINITY, |(_, offer)| offer.price)
    };
    let best = needs
        .iter()
        .filter(|n| n.enough)
        .min_by(|a, b| price(a).total_cmp(&price(b)))?;
    let (instance, offer) = best.pool.first()?;
    let data = instance.provisioning_data.clone()?;
    let zone = data.availability_zone.as_deref();
    let taken = mounts::choose(volumes, &data.backend, &data.region, zone)?;
    let mut changes = Changes::default();
    let job = &view.job;
    changes.guards = own_guards(view);
    mounts::hold(&mut changes, job.id, instance.id, &taken);
    changes
        .guards
        .push(Guard::InstanceHasRoom(instance.id, offer.blocks));
    changes.job_becomes(job, JobStatus::Provisioning);
    let patch = changes.job(job);
    patch.instance_id = Some(Some(instance.id));
    patch.provisioning_data = Some(Some(data));
    patch.runtime_data = Some(Some(Arc::new(runtime(view, offer, &taken))));
    patch.blocks = Some(offer.blocks);
    let patch = changes.instance(instance);
    patch.status = Some(InstanceStatus::Busy);
    patch.busy_blocks_delta = i32::try_from(offer.blocks).unwrap_or(i32::MAX);
    let busy = instance.busy_blocks + offer.blocks;
    let total = offer.total_blocks;
    changes.event(
        format!("Job assigned to instance. {busy}/{total} blocks busy"),
        &[job, *instance],
    );
    after_placement(view, best.facts.fleet.id, &mut changes);
    changes.hint(Pipeline::Instances, instance.id);
    Some(changes)
}

fn order(
    view: &View,
    need: &Need<'_>,
    wanted: &Wanted,
    offers: &[Offer],
    volumes: Choices,
    ids: &mut Ids,
) -> Provision {
    let usable = in_turn(
        offers,
        spec::spot_tries(&view.run.spec),
        view.limits.offers_tried,
    );
    let attempt = new_attempt(&usable, view.now, ids);
    let mut before = Changes {
        guards: own_guards(view),
        ..Changes::default()
    };
    let instance_id = match &view.instance {
        Some(instance) => {
            if let Some(lost) = &instance.attempt {
                abandon(view, lost, &mut before);
            }
            before.instance(instance).attempt = Some(Some(attempt.clone()));
            instance.id
        }
        None => {
            let row = placeholder(view, need, wanted, attempt.clone(), InstanceId(ids.uuid()));
            let id = row.id;
            let fleet = &need.facts.fleet;
            let max = spec::nodes_max(&fleet.spec);
            // Two first machines of one cluster would stand in two places.
            let is_first = spec::is_cluster(&fleet.spec) && need.facts.master.is_none();
            let max = if is_first { Some(1) } else { max };
            before.guards.push(Guard::FleetHasRoom(fleet.id, max));
            before.job(&view.job).instance_id = Some(Some(id));
            before.event(
                "Instance created for job. Instance status: PENDING",
                &[&row, &view.job],
            );
            before.new_instances.push(NewInstance {
                row,
                number_it: true,
            });
            id
        }
    };
    Provision {
        before,
        instance_id,
        attempt,
        total: offers.len(),
        offers: usable,
        wanted: wanted.clone(),
        volumes,
        refused: Vec::new(),
    }
}

pub(crate) fn new_attempt(offers: &[Offer], now: Timestamp, ids: &mut Ids) -> CloudAttempt {
    let mut seen = BTreeSet::new();
    let places = offers
        .iter()
        .filter(|offer| seen.insert((offer.backend.as_str().to_owned(), offer.region.clone())))
        .map(|offer| (offer.backend.clone(), offer.region.clone()))
        .collect();
    CloudAttempt {
        provider_ref: ids.provider_ref(),
        places,
        started_at: now,
    }
}

/// Hands what an attempt may have made to cleanup.
fn abandon(view: &View, lost: &CloudAttempt, changes: &mut Changes) {
    changes.cleanup.extend(lost_rows(
        lost,
        &view.job.project_id,
        view.now,
        &view.limits,
    ));
}

/// The cleanup rows of an attempt that has no result.
pub(crate) fn lost_rows<'a>(
    lost: &'a CloudAttempt,
    project_id: &'a crate::ids::ProjectId,
    now: Timestamp,
    limits: &'a Limits,
) -> impl Iterator<Item = CleanupRow> + 'a {
    lost.places.iter().map(move |(backend, region)| CleanupRow {
        project_id: *project_id,
        backend: backend.clone(),
        region: region.clone(),
        provider_ref: lost.provider_ref.clone(),
        machine: None,
        not_before: now.saturating_add(limits.call_echo).unwrap_or(now),
    })
}

fn placeholder(
    view: &View,
    need: &Need<'_>,
    wanted: &Wanted,
    attempt: CloudAttempt,
    id: InstanceId,
) -> InstanceRow {
    let fleet = &need.facts.fleet;
    let mut row = InstanceRow::pending(id, fleet, view.now);
    row.attempt = Some(attempt);
    row.owner_job = Some(view.job.id);
    row.requirements = Some(Arc::new(wanted.machine.clone()));
    row.idle_limit = idle::limit(wanted.profile.params.idle_duration, idle::RUN_DEFAULT);
    row.profile = Some(Arc::new(wanted.profile.clone()));
    row
}

fn own_guards(view: &View) -> Vec<Guard> {
    vec![
        Guard::JobIs(view.job.id, vec![JobStatus::Submitted]),
        Guard::RunIs(view.run.id, ACTIVE.to_vec()),
    ]
}

/// What every placed job does for its run and siblings.
fn after_placement(view: &View, fleet_id: FleetId, changes: &mut Changes) {
    if view.run.fleet_id.is_none() {
        changes.run(&view.run).fleet_id = Some(Some(fleet_id));
    }
    for sibling in &view.siblings {
        if lets_go(&view.job, sibling)
            && !sibling.released
            && sibling.status == JobStatus::Submitted
        {
            changes.job(sibling).released = Some(true);
            changes.hint(Pipeline::JobsSubmitted, sibling.id);
        } else if Pipeline::of_job(sibling.status) == Some(Pipeline::JobsRunning) {
            // It may be waiting for this job's address.
            changes.hint(Pipeline::JobsRunning, sibling.id);
        }
    }
    changes.hint(Pipeline::Runs, view.run.id);
}

/// Whether the placement of a job releases another one: the first job of a group of nodes releases the others of the
/// group, and the first one of the next group.
fn lets_go(job: &JobRow, other: &JobRow) -> bool {
    let (group, other_group) = (job.spec.node_group_index, other.spec.node_group_index);
    job.spec.node_group_job_index == 0
        && (other_group == group
            || (other_group == group + 1 && other.spec.node_group_job_index == 0))
}

/// The share of the machine that a job gets: everything and the machine's network, or a limited container.
///
/// This machine's own network is never shared: the server, other jobs and other servers have their ports there.
pub(crate) fn runtime(view: &View, offer: &Offer, volumes: &[Arc<VolumeRow>]) -> JobRuntimeData {
    let whole = offer.blocks == offer.total_blocks;
    let takes_network = whole
        && offer.backend != BackendType::LOCAL
        && match view.limits.job_network {
            JobNetwork::HostForMultinode => view.job.spec.jobs_per_replica > 1,
            JobNetwork::HostForWhole => true,
            JobNetwork::Bridge => false,
        };
    let part = share_of(offer, offer.blocks, offer.total_blocks);
    let resources = &part.instance.resources;
    JobRuntimeData {
        network_mode: if takes_network {
            NetworkMode::Host
        } else {
            NetworkMode::Bridge
        },
        gpu: (!whole).then(|| u32::try_from(resources.gpus.len()).unwrap_or(u32::MAX)),
        cpu: (!whole).then(|| f64::from(resources.cpus)),
        #[allow(
            clippy::cast_precision_loss,
            reason = "memory of a machine is far below 2^52 MiB"
        )]
        memory: (!whole).then(|| resources.memory_mib as f64 / 1024.0),
        ports: None,
        volume_names: (!volumes.is_empty())
            .then(|| volumes.iter().map(|it| it.name.to_string()).collect()),
        offer: Some(part.clone()),
        working_dir: None,
        username: None,
    }
}

fn patch_of(changes: &mut Changes, id: InstanceId) -> &mut crate::changes::InstancePatch {
    let at = changes
        .instances
        .iter()
        .position(|p| p.id == id)
        .unwrap_or_else(|| {
            changes
                .instances
                .push(crate::changes::InstancePatch::of(id));
            changes.instances.len() - 1
        });
    &mut changes.instances[at]
}

fn no_capacity(view: &View, why: String) -> Changes {
    let reason = JobTerminationReason::FailedToStartDueToNoCapacity;
    fails(view, reason, why)
}

/// The job ends without a machine; its placeholder goes.
fn fails(view: &View, reason: JobTerminationReason, why: String) -> Changes {
    let mut changes = Changes {
        guards: own_guards(view),
        ..Changes::default()
    };
    if let Some(instance) = &view.instance {
        if let Some(lost) = &instance.attempt {
            abandon(view, lost, &mut changes);
        }
        let patch = changes.instance(instance);
        patch.status = Some(InstanceStatus::Terminated);
        patch.attempt = Some(None);
        patch.finished_at = Some(Some(view.now));
        patch.deleted = Some(true);
        changes.job(&view.job).instance_id = Some(None);
    }
    changes.job_ends(&view.job, reason, Some(why));
    changes
}

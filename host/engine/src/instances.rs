//! Machines: made, watched, given back.
//!
//! ```text
//! pending ─ order held ─► provisioning ─ answers ─► idle ◄─► busy
//!    │                         │                      │       │
//!    └ none held ► terminated  └── too late, gone, idle, unreachable, job done, user ──► terminating ─ confirmed ─► terminated
//! ```
//!
//! A row is `terminated` only after the provider confirmed that the machine is gone or never was.
//! While it is `pending` with a living `owner_job`, the job's pipeline makes the machine and this one waits.

mod ending;
mod own_host;
mod provision;

use std::sync::Arc;
use std::time::Duration;

use dstack_api::fleets::FleetStatus;
use dstack_api::instances::{
    HealthStatus, InstanceStatus as Status, InstanceTerminationReason as Reason,
};
use dstack_api::jobs::JobStatus;
use dstack_backend_types::{
    BackendType, InstanceOfferWithAvailability as Offer, JobProvisioningData,
};
use jiff::Timestamp;

use crate::changes::{Changes, Guard, InstancePatch, Pipeline};
use crate::combine::Wanted;
use crate::events::{loud, moved};
use crate::ids::Ids;
use crate::job_running::{secs, signed};
use crate::job_submitted::lost_rows;
use crate::model::{CloudAttempt, FleetRow, InstanceRow, JobRow};
use crate::offers::Sharing;
use crate::ssh_hosts::HostFacts;
use crate::view::{BackendAbilities, Limits};
use crate::{idle, spec};
use ending::{not_ended, terminating};
use provision::pending;

pub use provision::conclude_provision;

/// How often a ready machine is checked.
const CHECK_EVERY: Duration = Duration::from_secs(14);
/// How often a machine is checked that has just fallen silent.
const CHECK_AGAIN: Duration = Duration::from_secs(3);
/// How long a machine may be silent before it counts as unreachable.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(15);
/// What the decision reads.
#[derive(Debug, Clone)]
pub struct View {
    /// Now.
    pub now: Timestamp,
    /// The instance.
    pub instance: InstanceRow,
    /// Its fleet.
    pub fleet: Arc<FleetRow>,
    /// Instances of the fleet that are neither terminating nor terminated, this one included.
    pub living: u32,
    /// Jobs that are not finished and name this instance.
    pub jobs: Vec<JobRow>,
    /// For a cluster: the instance that fixes backend, region and zone, when it is another one.
    pub master: Option<InstanceRow>,
    /// For a cluster: no living instance of the fleet has a lower number.
    pub first_of_cluster: bool,
    /// The project's backends.
    pub backends: Arc<Vec<BackendAbilities>>,
    /// What the backends answered to [`Plan::AskOffers`]; `None` before the question.
    pub offers: Option<Vec<Offer>>,
    /// How long the machine may take to be ready; by backend and offer.
    pub provisioning_timeout: Duration,
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
    /// Ask the backends, select by [`offers::select`](crate::offers::select), put the result into
    /// [`View::offers`], plan again under the same lease.
    AskOffers {
        /// The backends to ask.
        backends: Vec<BackendType>,
        /// What is needed.
        wanted: Box<Wanted>,
        /// How the fleet shares machines.
        sharing: Sharing,
    },
    /// Make the machine.
    Provision(Box<Provision>),
    /// Ask somebody, then conclude.
    Ask(Ask),
}

/// An order for the machine.
#[derive(Debug, Clone)]
pub struct Provision {
    /// To be written first, keeping the lease. If that is refused, nothing is called.
    pub before: Changes,
    /// The stored attempt; its reference goes into the call.
    pub attempt: CloudAttempt,
    /// The offers to try with `create_instance`, in this order, until one holds or one gives no answer.
    pub offers: Vec<Offer>,
    /// Requirements, reservation, tags.
    pub wanted: Wanted,
    /// Reasons of the offers that were tried before.
    pub refused: Vec<String>,
    /// How many offers there were in all.
    pub total: usize,
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

/// A question about the machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// Backend: `update_provisioning_data`, until there is an address.
    Address(Arc<JobProvisioningData>),
    /// Shim: is it up? Also: health, and which of its tasks nobody knows (they are removed).
    Health {
        /// Ask for the health report, too.
        report: bool,
    },
    /// Backend: `terminate_instance`.
    Terminate(Arc<JobProvisioningData>),
    /// Own host: bring the agents there and start them.
    Prepare,
    /// Own host: take away all that is ours.
    Clear,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The provisioning data as the backend knows it now.
    Address(Box<JobProvisioningData>),
    /// The provider says that this machine will never be ready, or is gone.
    Lost(String),
    /// The agent is there; the health report if it was asked for and there is one.
    Healthy(Option<(HealthStatus, Option<String>)>),
    /// The machine is gone for the provider.
    Ended,
    /// The provider works on it: ask again.
    NotYet,
    /// No answer, or an error that says nothing about the machine.
    Failed(String),
    /// The own host is ready.
    Prepared(Box<HostFacts>),
    /// The own host cannot be prepared or cleared.
    Unprepared {
        /// At which step, why, and what helps.
        why: String,
        /// Somebody has to do something first.
        is_final: bool,
        /// Something of ours may be on the host.
        was_entered: bool,
    },
}

/// Decides the next step of an instance.
pub fn plan(view: &View, ids: &mut Ids) -> Plan {
    let instance = &view.instance;
    match instance.status {
        Status::Pending => pending(view, ids),
        Status::Provisioning => provisioning(view),
        Status::Idle | Status::Busy => ready(view),
        Status::Terminating => terminating(view),
        Status::Terminated => Plan::Change(Changes::nothing()),
    }
}

fn provisioning(view: &View) -> Plan {
    let instance = &view.instance;
    if let Some(change) = unwanted(view) {
        return Plan::Change(change);
    }
    let started = instance.started_at.unwrap_or(instance.created_at);
    if secs(view.now, started) > signed(view.provisioning_timeout) {
        let after = view.provisioning_timeout.as_secs();
        let why = format!("the machine was not ready within {after} s");
        return Plan::Change(ends(view, Reason::ProvisioningTimeout, Some(why)));
    }
    let Some(data) = &instance.provisioning_data else {
        return Plan::Change(ends(
            view,
            Reason::Error,
            Some("nothing is known of the machine".into()),
        ));
    };
    match (&data.hostname, instance.has_shim()) {
        (None, _) => Plan::Ask(Ask::Address(Arc::clone(data))),
        (Some(_), true) => Plan::Ask(Ask::Health { report: true }),
        (Some(_), false) => Plan::Change(is_ready(view)),
    }
}

/// A machine that was made for a job that is gone.
fn unwanted(view: &View) -> Option<Changes> {
    let instance = &view.instance;
    let jobless = instance.busy_blocks == 0 && view.jobs.is_empty();
    if instance.owner_job.is_some() && jobless && instance.status == Status::Provisioning {
        let mut changes = ends(view, Reason::JobFinished, None);
        changes.guards.push(Guard::InstanceUnused(instance.id));
        return Some(changes);
    }
    None
}

fn ready(view: &View) -> Plan {
    let instance = &view.instance;
    if instance.busy_blocks == 0 && instance.status == Status::Busy {
        let mut changes;
        if instance.has_shim() {
            changes = Changes {
                guards: vec![own_guard(view)],
                ..Changes::default()
            };
            changes.instance_becomes(instance, Status::Idle);
            changes.look_again = Some(look(view));
        } else {
            changes = ends(view, Reason::JobFinished, None);
        }
        changes.guards.push(Guard::InstanceUnused(instance.id));
        return Plan::Change(changes);
    }
    let cloud = instance.ssh_host.is_none();
    if cloud && instance.give_up_at.is_some_and(|at| view.now >= at) {
        return Plan::Change(ends(view, Reason::Unreachable, None));
    }
    if cloud && instance.status == Status::Idle && instance.busy_blocks == 0 {
        let min = spec::nodes_min(&view.fleet.spec);
        if idle::seconds_left(instance, view.now).is_some_and(|left| left <= 0) && view.living > min
        {
            let mut changes = ends(view, Reason::IdleTimeout, None);
            changes.guards.push(Guard::InstanceUnused(instance.id));
            changes
                .guards
                .push(Guard::FleetHasMoreThan(instance.fleet_id, min));
            return Plan::Change(changes);
        }
    }
    if !instance.has_shim() {
        // Its runner is watched by the job.
        return Plan::Change(Changes::later(CHECK_EVERY));
    }
    let report = instance
        .health_checked_at
        .is_none_or(|at| secs(view.now, at) >= 60);
    Plan::Ask(Ask::Health { report })
}

/// The next look at a ready machine: its check, or the end of its idle time if that is sooner.
fn look(view: &View) -> Duration {
    let check = CHECK_EVERY;
    match idle::seconds_left(&view.instance, view.now) {
        Some(left) if left > 0 && view.instance.busy_blocks == 0 => {
            check.min(Duration::from_secs(u64::try_from(left).unwrap_or(0)))
        }
        _ => check,
    }
}

/// Turns an answer into changes.
pub fn conclude(view: &View, ask: &Ask, answer: &Answer) -> Changes {
    match (ask, answer) {
        (Ask::Address(_), Answer::Address(data)) => addressed(view, data),
        (Ask::Address(_), Answer::Lost(why)) => ends(view, Reason::Error, Some(why.clone())),
        (Ask::Address(_), _) => Changes::later(pace(view)),
        (Ask::Health { .. }, Answer::Healthy(report)) => healthy(view, report.as_ref()),
        (Ask::Health { .. }, Answer::Lost(why)) => lost(view, why),
        (Ask::Health { .. }, Answer::Failed(why)) => silent(view, why),
        (Ask::Health { .. }, _) => silent(view, "unexpected answer"),
        (Ask::Terminate(_), Answer::Ended | Answer::Lost(_)) => {
            let mut changes = Changes {
                guards: vec![own_guard(view)],
                ..Changes::default()
            };
            let reason = view
                .instance
                .termination_reason
                .unwrap_or(Reason::TerminatedByUser);
            gone(
                view,
                &mut changes,
                reason,
                view.instance.termination_reason_message.clone(),
            );
            changes
        }
        (Ask::Terminate(_), Answer::NotYet) => Changes::later(Duration::from_secs(5)),
        (Ask::Terminate(_), Answer::Failed(why)) => not_ended(view, why),
        (Ask::Terminate(_), _) => not_ended(view, "unexpected answer"),
        (Ask::Prepare, Answer::Prepared(facts)) => own_host::prepared(view, facts),
        (
            Ask::Prepare,
            Answer::Unprepared {
                why,
                is_final,
                was_entered,
            },
        ) => own_host::unprepared(view, why, *is_final, *was_entered),
        (Ask::Prepare, _) => own_host::unprepared(view, "unexpected answer", false, true),
        (Ask::Clear, answer) => own_host::cleared(view, answer),
    }
}

fn addressed(view: &View, data: &JobProvisioningData) -> Changes {
    let instance = &view.instance;
    if instance.provisioning_data.as_deref() == Some(data) {
        return Changes::later(pace(view));
    }
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        ..Changes::default()
    };
    let shared = Arc::new(data.clone());
    changes.instance(instance).provisioning_data = Some(Some(Arc::clone(&shared)));
    for job in &view.jobs {
        if job.status == JobStatus::Provisioning {
            changes.job(job).provisioning_data = Some(Some(Arc::clone(&shared)));
            changes
                .guards
                .push(Guard::JobIs(job.id, vec![JobStatus::Provisioning]));
            changes.hint(Pipeline::JobsRunning, job.id);
            // Siblings wait for this address, and the run wakes them.
            changes.hint(Pipeline::Runs, job.run_id);
        }
    }
    changes.look_again = Some(if data.hostname.is_some() {
        Duration::ZERO
    } else {
        pace(view)
    });
    changes
}

/// The first answer of a machine that was being made.
fn is_ready(view: &View) -> Changes {
    let instance = &view.instance;
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        ..Changes::default()
    };
    let next = if instance.busy_blocks > 0 || !instance.has_shim() {
        Status::Busy
    } else {
        Status::Idle
    };
    changes.instance_becomes(instance, next);
    if next == Status::Idle {
        changes.freed.push(instance.fleet_id);
    }
    for job in &view.jobs {
        changes.hint(Pipeline::JobsRunning, job.id);
    }
    changes.look_again = Some(CHECK_EVERY);
    changes
}

fn healthy(view: &View, report: Option<&(HealthStatus, Option<String>)>) -> Changes {
    let instance = &view.instance;
    let mut changes = if instance.status == Status::Provisioning {
        is_ready(view)
    } else {
        Changes {
            guards: vec![own_guard(view)],
            look_again: Some(look(view)),
            ..Changes::default()
        }
    };
    if instance.give_up_at.is_some() {
        changes.instance(instance).give_up_at = Some(None);
    }
    if instance.unreachable {
        changes.instance(instance).unreachable = Some(false);
        changes.event("Instance became reachable", &[instance]);
        changes.freed.push(instance.fleet_id);
        for job in &view.jobs {
            changes.hint(Pipeline::JobsRunning, job.id);
        }
    }
    if let Some((health, message)) = report {
        changes.instance(instance).health_checked_at = Some(Some(view.now));
        if *health != instance.health {
            changes.instance(instance).health = Some(*health);
            if instance.health == HealthStatus::Failure
                && !changes.freed.contains(&instance.fleet_id)
            {
                changes.freed.push(instance.fleet_id);
            }
            let why = message
                .as_deref()
                .map(|m| format!(": {m}"))
                .unwrap_or_default();
            changes.event(
                format!(
                    "Instance health changed {} -> {health}{why}",
                    instance.health
                ),
                &[instance],
            );
        }
    }
    changes
}

fn silent(view: &View, why: &str) -> Changes {
    let instance = &view.instance;
    if instance.status == Status::Provisioning {
        return Changes::later(pace(view));
    }
    if instance.unreachable {
        return Changes::later(CHECK_EVERY);
    }
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        look_again: Some(CHECK_EVERY),
        ..Changes::default()
    };
    let Some(give_up_at) = instance.give_up_at else {
        let at = view
            .now
            .saturating_add(view.limits.instance_silence)
            .unwrap_or(view.now);
        changes.instance(instance).give_up_at = Some(Some(at));
        changes.look_again = Some(CHECK_AGAIN);
        return changes;
    };
    // An agent that is being restarted is back in a few seconds; runs need not be turned away for that.
    let silent_for = signed(view.limits.instance_silence) - secs(give_up_at, view.now);
    if silent_for < signed(UNREACHABLE_AFTER) {
        return Changes::later(CHECK_AGAIN);
    }
    changes.instance(instance).unreachable = Some(true);
    changes.event(format!("Instance became unreachable: {why}"), &[instance]);
    changes
}

/// The machine is gone, or another one answers at its address.
fn lost(view: &View, why: &str) -> Changes {
    ends(view, Reason::Unreachable, Some(why.to_owned()))
}

/// Often at first, then as often as providers like it.
fn pace(view: &View) -> Duration {
    match secs(
        view.now,
        view.instance.started_at.unwrap_or(view.instance.created_at),
    ) {
        ..10 => Duration::from_millis(500),
        10..60 => Duration::from_secs(2),
        _ => Duration::from_secs(7),
    }
}

fn own_guard(view: &View) -> Guard {
    Guard::InstanceIs(view.instance.id, vec![view.instance.status])
}

/// Begins the end of the machine and wakes its jobs, which then notice.
fn ends(view: &View, reason: Reason, message: Option<String>) -> Changes {
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        ..Changes::default()
    };
    changes.instance_ends(&view.instance, reason, message);
    for job in &view.jobs {
        changes.hint(Pipeline::JobsRunning, job.id);
    }
    changes
}

/// A pending instance ends without ever having had a machine.
fn never_was(view: &View, reason: Reason, message: Option<String>) -> Changes {
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        ..Changes::default()
    };
    if let Some(lost) = &view.instance.attempt {
        changes.cleanup.extend(lost_rows(
            lost,
            &view.instance.project_id,
            view.now,
            &view.limits,
        ));
    }
    gone(view, &mut changes, reason, message);
    changes
}

fn gone(view: &View, changes: &mut Changes, reason: Reason, message: Option<String>) {
    let instance = &view.instance;
    let why = message
        .as_deref()
        .map(|m| format!(" ({m})"))
        .unwrap_or_default();
    let patch: &mut InstancePatch = changes.instance(instance);
    patch.status = Some(Status::Terminated);
    patch.termination_reason = Some(Some(reason));
    patch.termination_reason_message = Some(message);
    patch.attempt = Some(None);
    patch.finished_at = Some(Some(view.now));
    // A host that could not be prepared stays in sight until its user has dealt with it.
    let failed = matches!(reason, Reason::Error | Reason::ProvisioningTimeout);
    let is_seen = failed && instance.ssh_host.is_some() && view.fleet.status == FleetStatus::Active;
    patch.deleted = Some(!is_seen);
    changes.event(
        format!(
            "{}. Termination reason: {}{why}",
            moved("Instance", &instance.status, &Status::Terminated),
            loud(&reason)
        ),
        &[instance],
    );
    if view.fleet.status == FleetStatus::Terminating {
        // Others are looked at by the clock: a fleet of thousands must not be read for each of its machines.
        changes.hint(Pipeline::Fleets, instance.fleet_id);
    } else if spec::nodes_max(&view.fleet.spec).is_some() && instance.status == Status::Terminating
    {
        // There is room for another machine.
        changes.freed.push(instance.fleet_id);
    }
    for job in &view.jobs {
        if let Some(pipeline) = Pipeline::of_job(job.status) {
            changes.hint(pipeline, job.id);
        }
    }
}

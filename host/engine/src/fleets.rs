//! Fleets: as many machines as their rule says.
//!
//! ```text
//! active ── deleted by the user, or the project is gone ─► terminating ─ no machine left ─► terminated
//!    │▲
//!    └┘ consolidation, when due: below min create, above max end idle ones, end what no longer fits
//! ```

use std::sync::Arc;
use std::time::Duration;

use dstack_api::fleets::FleetStatus;
use dstack_api::instances::{InstanceStatus as Status, InstanceTerminationReason as Reason};
use jiff::Timestamp;

use crate::changes::{Changes, FleetPatch, Guard, NewInstance, Pipeline};
use crate::combine::Wanted;
use crate::ids::{Ids, InstanceId};
use crate::job_running::{secs, signed};
use crate::model::{FleetRow, InstanceRow};
use crate::{idle, spec};

/// Delays between consolidations, by attempt, in seconds; the last one repeats.
const DELAYS: [u64; 5] = [60, 120, 300, 600, 1800];
/// After this many consolidations in a row that had to change something, only an update of the fleet resumes.
const ATTEMPTS: u32 = 15;

/// What the decision reads.
#[derive(Debug, Clone)]
pub struct View {
    /// Now.
    pub now: Timestamp,
    /// The fleet.
    pub fleet: Arc<FleetRow>,
    /// Its instances that are not deleted, by number. A step may leave them out when [`looks_at_instances`] says so.
    pub instances: Vec<InstanceRow>,
    /// Runs that are not finished and name this fleet.
    pub active_runs: u32,
    /// The project is deleted.
    pub project_deleted: bool,
}

/// Whether the next step of a fleet reads its instances; they may be thousands, and most steps come too early to need
/// them.
pub fn looks_at_instances(fleet: &FleetRow, now: Timestamp) -> bool {
    match fleet.status {
        FleetStatus::Submitted | FleetStatus::Active => {
            due_in(fleet, now).is_some_and(|left| left <= 0)
        }
        FleetStatus::Terminating => true,
        FleetStatus::Terminated | FleetStatus::Failed => false,
    }
}

/// Decides what a fleet does next. It never calls anybody.
pub fn plan(view: &View, ids: &mut Ids) -> Changes {
    let fleet = &view.fleet;
    match fleet.status {
        FleetStatus::Submitted | FleetStatus::Active if view.project_deleted => {
            let mut changes = Changes::later(Duration::ZERO);
            let patch = FleetPatch {
                status: Some(FleetStatus::Terminating),
                ..FleetPatch::of(fleet.id)
            };
            changes.fleets.push(patch);
            changes.event("Fleet status changed ACTIVE -> TERMINATING", &[&**fleet]);
            changes
        }
        FleetStatus::Submitted | FleetStatus::Active => consolidate(view, ids),
        FleetStatus::Terminating => terminating(view),
        FleetStatus::Terminated | FleetStatus::Failed => Changes::nothing(),
    }
}

fn terminating(view: &View) -> Changes {
    let fleet = &view.fleet;
    let mut changes = Changes::default();
    for instance in view.instances.iter().filter(|i| i.is_living()) {
        if instance.status == Status::Pending && instance.owner_job.is_some() {
            // Its job ends it, or provisions it and it is ended then.
            continue;
        }
        if instance.busy_blocks > 0 {
            continue;
        }
        changes
            .guards
            .push(Guard::InstanceIs(instance.id, vec![instance.status]));
        changes.guards.push(Guard::InstanceUnused(instance.id));
        changes.instance_ends(instance, Reason::TerminatedByUser, None);
    }
    // Own hosts that could not be prepared were kept to be seen.
    let failed = view
        .instances
        .iter()
        .filter(|i| i.status == Status::Terminated);
    let mut left = view.instances.len();
    for instance in failed {
        changes.instance(instance).deleted = Some(true);
        left -= 1;
    }
    if left == 0 && view.active_runs == 0 {
        changes.guards.push(Guard::FleetUnused(fleet.id));
        changes.fleets.push(FleetPatch {
            status: Some(FleetStatus::Terminated),
            deleted: Some(true),
            ..FleetPatch::of(fleet.id)
        });
        changes.event(
            "Fleet status changed TERMINATING -> TERMINATED",
            &[&**fleet],
        );
    } else {
        changes.look_again = Some(Duration::from_secs(15));
    }
    changes
}

/// When consolidation is due next, in seconds from now; `None`: not before an update.
fn due_in(fleet: &FleetRow, now: Timestamp) -> Option<i64> {
    if spec::is_ssh(&fleet.spec) || fleet.consolidation_attempt >= ATTEMPTS {
        return None;
    }
    let Some(last) = fleet.consolidated_at else {
        return Some(0);
    };
    let at = usize::try_from(fleet.consolidation_attempt)
        .unwrap_or(usize::MAX)
        .min(DELAYS.len() - 1);
    Some(signed(Duration::from_secs(DELAYS[at])) - secs(now, last))
}

fn consolidate(view: &View, ids: &mut Ids) -> Changes {
    let fleet = &view.fleet;
    match due_in(fleet, view.now) {
        None => return Changes::nothing(),
        Some(left) if left > 0 => {
            return Changes::later(Duration::from_secs(u64::try_from(left).unwrap_or(60)));
        }
        Some(_) => {}
    }
    let mut changes = Changes::default();
    let mut living: Vec<&InstanceRow> = view.instances.iter().filter(|i| i.is_living()).collect();
    let wanted = Wanted::of_fleet(fleet.id, &fleet.spec, None);
    let mismatch = |i: &InstanceRow| {
        matches!(i.status, Status::Idle | Status::Provisioning)
            && i.busy_blocks == 0
            && i.offer
                .as_deref()
                .is_some_and(|offer| !wanted.still_fits(offer))
    };
    for instance in living.iter().filter(|i| mismatch(i)) {
        unused_ends(&mut changes, instance, Reason::FleetSpecMismatch);
    }
    living.retain(|i| !mismatch(i));
    let count = u32::try_from(living.len()).unwrap_or(u32::MAX);
    let min = spec::nodes_min(&fleet.spec);
    // `target` counted when the fleet was made.
    for _ in count..min {
        let row = new_instance(fleet, view.now, InstanceId(ids.uuid()));
        changes.hint(Pipeline::Instances, row.id);
        changes.event(
            "Instance created to reach the number of nodes",
            &[&row, &**fleet],
        );
        changes.new_instances.push(NewInstance {
            row,
            number_it: true,
        });
    }
    if let Some(max) = spec::nodes_max(&fleet.spec) {
        let surplus = usize::try_from(count.saturating_sub(max)).unwrap_or(0);
        let idle = living
            .iter()
            .rev()
            .filter(|i| i.status == Status::Idle && i.busy_blocks == 0);
        for instance in idle.take(surplus) {
            unused_ends(&mut changes, instance, Reason::MaxInstancesLimit);
        }
    }
    let changed = !changes.is_quiet() && fleet.consolidated_at.is_some();
    let attempt = if changed {
        fleet.consolidation_attempt + 1
    } else {
        0
    };
    if fleet.consolidated_at.is_none() || changed || fleet.consolidation_attempt != attempt {
        changes.fleets.push(FleetPatch {
            consolidation_attempt: Some(attempt),
            consolidated_at: Some(Some(view.now)),
            status: (fleet.status == FleetStatus::Submitted).then_some(FleetStatus::Active),
            ..FleetPatch::of(fleet.id)
        });
    } else {
        changes.fleets.push(FleetPatch {
            consolidated_at: Some(Some(view.now)),
            ..FleetPatch::of(fleet.id)
        });
    }
    if attempt >= ATTEMPTS {
        changes.event(
            "Fleet consolidation stopped after 15 attempts; an update of the fleet resumes it",
            &[&**fleet],
        );
    } else {
        let at = usize::try_from(attempt)
            .unwrap_or(usize::MAX)
            .min(DELAYS.len() - 1);
        changes.look_again = Some(Duration::from_secs(DELAYS[at]));
    }
    changes
}

fn unused_ends(changes: &mut Changes, instance: &InstanceRow, reason: Reason) {
    changes
        .guards
        .push(Guard::InstanceIs(instance.id, vec![instance.status]));
    changes.guards.push(Guard::InstanceUnused(instance.id));
    changes.instance_ends(instance, reason, None);
}

/// An own host goes.
pub(crate) fn host_ends(changes: &mut Changes, instance: &InstanceRow) {
    unused_ends(changes, instance, Reason::TerminatedByUser);
}

/// A machine that the fleet itself wants.
fn new_instance(fleet: &FleetRow, now: Timestamp, id: InstanceId) -> InstanceRow {
    let mut row = InstanceRow::pending(id, fleet, now);
    row.idle_limit = idle::limit(spec::fleet_idle(&fleet.spec), idle::FLEET_DEFAULT);
    let wanted = Wanted::of_fleet(fleet.id, &fleet.spec, None);
    row.requirements = Some(Arc::new(wanted.requirements));
    row.profile = Some(Arc::new(wanted.profile));
    row
}

/// Why a fleet may not be deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InUse {
    /// An instance has jobs.
    #[error("instance {0} of the fleet is in use; stop its runs first")]
    Instance(Arc<str>),
    /// A run waits for the fleet.
    #[error("{0} runs of the fleet are active; stop them first")]
    Runs(u32),
}

/// Deletes a fleet, or some of its instances (`numbers`), for a user.
///
/// # Errors
/// [`InUse`] when a job or a run needs what would go.
pub fn delete(view: &View, numbers: Option<&[u32]>) -> Result<Changes, InUse> {
    let chosen =
        |i: &&InstanceRow| i.is_living() && numbers.is_none_or(|n| n.contains(&i.instance_num));
    let mut changes = Changes::default();
    for instance in view.instances.iter().filter(chosen) {
        let placeholder = instance.status == Status::Pending && instance.owner_job.is_some();
        if instance.busy_blocks > 0 || placeholder {
            return Err(InUse::Instance(Arc::clone(&instance.name)));
        }
        unused_ends(&mut changes, instance, Reason::TerminatedByUser);
    }
    let failed = |i: &&InstanceRow| {
        i.status == Status::Terminated && numbers.is_some_and(|n| n.contains(&i.instance_num))
    };
    for instance in view.instances.iter().filter(failed) {
        changes.instance(instance).deleted = Some(true);
    }
    if numbers.is_none() {
        if view.active_runs > 0 {
            return Err(InUse::Runs(view.active_runs));
        }
        changes.guards.push(Guard::FleetUnused(view.fleet.id));
        let patch = FleetPatch {
            status: Some(FleetStatus::Terminating),
            ..FleetPatch::of(view.fleet.id)
        };
        changes.fleets.push(patch);
        changes.event(
            "Fleet status changed ACTIVE -> TERMINATING",
            &[&*view.fleet],
        );
        changes.hint(Pipeline::Fleets, view.fleet.id);
    }
    Ok(changes)
}

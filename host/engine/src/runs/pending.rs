//! Runs without jobs at work: between two tries, before their time, or services without replicas.

use std::collections::BTreeMap;

use dstack_api::runs::{RunStatus, RunTerminationReason};
use jiff::Timestamp;

use super::replicas::{self, Replica};
use super::{LOOK, View, again, scale, unmakeable};
use crate::admit::AdmitError;
use crate::changes::Changes;
use crate::ids::Ids;
use crate::retry;

pub(super) fn pending(view: &View, ids: &mut Ids) -> Changes {
    let run = &view.run;
    let mut changes = Changes::later(LOOK);
    let replicas = replicas::of(view);
    let made = if run.resubmission_attempt > 0 {
        if let Some(due) = not_yet(view) {
            again::look_at(view, due, &mut changes);
            return changes;
        }
        again::forget_superseded(view, &replicas, &mut changes);
        next_try(view, &replicas, &mut changes, ids)
    } else if let Some(at) = run.next_triggered_at {
        if view.now < at {
            changes.look_again = None;
            again::look_at(view, at, &mut changes);
            return changes;
        }
        again::forget_superseded(view, &replicas, &mut changes);
        next_round(view, &replicas, &mut changes, ids)
    } else {
        // A service at zero waits for its traffic, and whoever stores the traffic wakes it.
        scale::groups(view, &replicas, &mut changes, ids)
    };
    if let Err(why) = made {
        return unmakeable(view, &why);
    }
    if !changes.new_jobs.is_empty() {
        if run.capacity_at.is_some() {
            changes.run(run).capacity_at = Some(None);
        }
        changes.run_becomes(run, RunStatus::Submitted);
    } else if run.resubmission_attempt > 0 || run.next_triggered_at.is_some() {
        // Nothing is left to do: all replicas ended well or were scaled down.
        changes.run_ends(run, RunTerminationReason::AllJobsDone);
    }
    changes
}

/// When the next try is due, if that is later than now. A machine that turned free meanwhile ends the wait.
fn not_yet(view: &View) -> Option<Timestamp> {
    let run = &view.run;
    if run.capacity_at.is_some() {
        return None;
    }
    let last = view
        .jobs
        .iter()
        .map(|job| job.finished_at.unwrap_or(job.last_processed_at))
        .max();
    let delay = retry::pending_delay(run.resubmission_attempt - 1);
    let due = last
        .unwrap_or(run.submitted_at)
        .saturating_add(delay)
        .unwrap_or(view.now);
    (view.now < due).then_some(due)
}

/// Every replica that did not end well once more; of a service no more than it wants now.
fn next_try(
    view: &View,
    replicas: &[Replica<'_>],
    changes: &mut Changes,
    ids: &mut Ids,
) -> Result<(), AdmitError> {
    let wanted = scale::wanted_now(view);
    let mut made: BTreeMap<usize, u32> = BTreeMap::new();
    for replica in replicas.iter().filter(|replica| !replica.ended_well()) {
        let Some(group) = replica.group else { continue };
        let made = made.entry(group).or_default();
        if wanted.get(group).is_some_and(|wanted| *made < *wanted) {
            *made += 1;
            again::submit(
                view,
                replica.num,
                Some(replica),
                group,
                "on retry",
                changes,
                ids,
            )?;
        }
    }
    Ok(())
}

/// The jobs of a new round of a schedule: as many replicas as at the start.
fn next_round(
    view: &View,
    replicas: &[Replica<'_>],
    changes: &mut Changes,
    ids: &mut Ids,
) -> Result<(), AdmitError> {
    let mut num = 0;
    for (group, (least, _)) in dstack_api::plan::replica_bounds(&view.run.spec.configuration)
        .into_iter()
        .enumerate()
    {
        for _ in 0..least {
            let before = replicas.iter().find(|replica| replica.num == num);
            again::submit(view, num, before, group, "on new submission", changes, ids)?;
            num += 1;
        }
    }
    Ok(())
}

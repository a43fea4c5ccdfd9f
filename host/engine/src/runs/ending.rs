//! The end of a run: all its jobs end, then it does, or it waits for its next round.

use dstack_api::jobs::{JobStatus, JobTerminationReason as Reason};
use dstack_api::runs::{RunStatus, RunTerminationReason};

use super::{LOOK, View};
use crate::changes::{Actor, Changes, Guard, Pipeline};
use crate::ids::UserId;
use crate::model::{RunRow, Stop};
use crate::{schedule, spec};

pub(super) fn terminating(view: &View) -> Changes {
    let run = &view.run;
    let reason = run
        .termination_reason
        .unwrap_or(RunTerminationReason::ServerError);
    let mut changes = Changes::later(LOOK);
    let mut all_finished = true;
    for job in view.jobs.iter().filter(|job| !job.status.is_finished()) {
        all_finished = false;
        if job.status == JobStatus::Terminating {
            // Its user lost patience: the grace time that the stop gave is over.
            if reason == RunTerminationReason::AbortedByUser
                && job.termination_reason == Some(Reason::TerminatedByUser)
            {
                changes.guards.push(Guard::JobIs(job.id, vec![job.status]));
                let patch = changes.job(job);
                patch.termination_reason = Some(Some(Reason::AbortedByUser));
                patch.stop = Some(Stop::Hard);
                changes.hint(Pipeline::JobsTerminating, job.id);
            }
            continue;
        }
        changes.guards.push(Guard::JobIs(job.id, vec![job.status]));
        changes.job_ends(job, reason.job_reason(), None);
        let asked = !matches!(
            reason.job_reason(),
            Reason::AbortedByUser | Reason::DoneByRunner
        );
        if job.status == JobStatus::Running && asked {
            changes.job(job).stop = Some(Stop::Requested);
        }
    }
    if !all_finished {
        return changes;
    }
    let by_user = matches!(
        reason,
        RunTerminationReason::StoppedByUser | RunTerminationReason::AbortedByUser
    );
    if let (Some(crons), false) = (spec::schedule(&run.spec), by_user) {
        changes.run_becomes(run, RunStatus::Pending);
        let patch = changes.run(run);
        patch.next_triggered_at = Some(schedule::next(&crons, view.now));
        patch.termination_reason = Some(None);
        patch.fleet_id = Some(None);
        patch.resubmission_attempt = Some(0);
        patch.capacity_at = Some(None);
        patch.desired_replicas = Some(std::collections::BTreeMap::new());
    } else {
        changes.run_becomes(run, reason.status());
        changes.look_again = None;
    }
    changes
}

/// Stops a run for a user; `abort` gives its jobs no time. `None` when it is finished already.
///
/// A later reason replaces an earlier one while the run is terminating.
pub fn stop(run: &RunRow, abort: bool, user: UserId) -> Option<Changes> {
    if run.status.is_finished() {
        return None;
    }
    let reason = if abort {
        RunTerminationReason::AbortedByUser
    } else {
        RunTerminationReason::StoppedByUser
    };
    let mut changes = Changes::default();
    changes.guards.push(Guard::RunIs(run.id, vec![run.status]));
    if run.status == RunStatus::Terminating {
        changes.run(run).termination_reason = Some(Some(reason));
        changes.hint(Pipeline::Runs, run.id);
    } else {
        changes.run_ends(run, reason);
    }
    for event in &mut changes.events {
        event.actor = Actor::User(user);
    }
    Some(changes)
}

/// Ends a service that no running replica of its gateway took. `None` when the run ends anyway.
pub fn gateway_failed(run: &RunRow) -> Option<Changes> {
    if run.status.is_finished() || run.status == RunStatus::Terminating {
        return None;
    }
    let mut changes = Changes::default();
    changes.guards.push(Guard::RunIs(run.id, vec![run.status]));
    changes.run_ends(run, RunTerminationReason::GatewayError);
    Some(changes)
}

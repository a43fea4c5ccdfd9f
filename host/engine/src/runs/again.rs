//! Trying again: one replica while others go on, and the submissions that a new try leaves behind.

use std::sync::Arc;
use std::time::Duration;

use dstack_api::jobs::{JobStatus, JobTerminationReason as Reason};
use jiff::Timestamp;

use super::View;
use super::replicas::{Replica, this_round};
use crate::admit::{self, AdmitError};
use crate::changes::{Changes, Guard, Pipeline};
use crate::ids::{Ids, JobId};
use crate::model::JobRow;
use crate::retry;

/// Multi-node is all or nothing: a replica that is tried again loses its living jobs.
pub(super) fn end_unfinished(replica: &Replica<'_>, changes: &mut Changes) {
    for job in replica.latest() {
        if !job.status.is_finished() && job.status != JobStatus::Terminating {
            changes.guards.push(Guard::JobIs(job.id, vec![job.status]));
            changes.job_ends(
                job,
                Reason::TerminatedByServer,
                Some("to be resubmitted".into()),
            );
        }
    }
}

/// Submits the replicas that are to be tried again, each in its turn: at once after it had machines, else the later the
/// more often none was to be had.
pub(super) fn replicas(
    view: &View,
    replicas: &[Replica<'_>],
    changes: &mut Changes,
    ids: &mut Ids,
) -> Result<(), AdmitError> {
    for replica in replicas.iter().filter(|replica| replica.told.retry) {
        let Some(group) = replica.group else { continue };
        let due = due(view, replica);
        if due <= view.now {
            submit(
                view,
                replica.num,
                Some(replica),
                group,
                "for a retry",
                changes,
                ids,
            )?;
        } else {
            look_at(view, due, changes);
        }
    }
    Ok(())
}

/// Has the run looked at when this time comes, if that is sooner than planned.
pub(super) fn look_at(view: &View, due: Timestamp, changes: &mut Changes) {
    let left = u64::try_from(due.duration_since(view.now).as_millis()).unwrap_or(0);
    let left = Duration::from_millis(left + 1);
    changes.look_again = Some(changes.look_again.map_or(left, |planned| planned.min(left)));
}

fn due(view: &View, replica: &Replica<'_>) -> Timestamp {
    let over = |job: &JobRow| job.finished_at.unwrap_or(job.last_processed_at);
    let last = replica.latest().map(over).max().unwrap_or(view.now);
    let without = replica
        .jobs
        .values()
        .map(|submissions| tries_without_machine(submissions))
        .max()
        .unwrap_or(0);
    match without.checked_sub(1) {
        None => last,
        Some(attempt) => last
            .saturating_add(retry::pending_delay(attempt))
            .unwrap_or(view.now),
    }
}

/// How often in a row this job got no machine. Superseded submissions are gone, their numbers are not.
fn tries_without_machine(submissions: &[&JobRow]) -> u32 {
    let Some(newest) = submissions.last() else {
        return 0;
    };
    if newest.termination_reason != Some(Reason::FailedToStartDueToNoCapacity) {
        return 0;
    }
    let had_one = submissions
        .iter()
        .rev()
        .find(|job| job.provisioning_data.is_some());
    match had_one {
        Some(job) => newest.submission_num - job.submission_num,
        None => newest.submission_num + 1,
    }
}

/// The next submissions of all jobs of a replica, made from the run as it is now.
pub(super) fn submit(
    view: &View,
    replica_num: u32,
    before: Option<&Replica<'_>>,
    group: usize,
    why: &str,
    changes: &mut Changes,
    ids: &mut Ids,
) -> Result<(), AdmitError> {
    let run = &view.run;
    for spec in admit::replica(run, &view.defaults, replica_num, group)? {
        let old = before
            .and_then(|replica| replica.jobs.get(&spec.job_num))
            .and_then(|submissions| submissions.last());
        let id = JobId(ids.uuid());
        let mut new = admit::first(run, spec, id, view.now);
        if let Some(old) = old {
            changes.guards.push(Guard::LatestSubmission(old.id));
            new.submission_num = old.submission_num + 1;
        }
        changes.event(format!("Job created {why}. Status: SUBMITTED"), &[&new]);
        changes.hint(Pipeline::JobsSubmitted, new.id);
        changes.new_jobs.push(new);
    }
    Ok(())
}

/// Old tries that never had a machine are noise, except the last one before the newest, and the first one of a round
/// whose tries are counted.
pub(super) fn forget_superseded(view: &View, replicas: &[Replica<'_>], changes: &mut Changes) {
    for submissions in replicas.iter().flat_map(|replica| replica.jobs.values()) {
        let keep = submissions.len().saturating_sub(2);
        let counted = submissions
            .last()
            .and_then(|job| job.spec.retry.as_ref())
            .is_some_and(|policy| policy.max_attempts.is_some());
        let first = this_round(view, submissions)
            .first()
            .filter(|_| counted)
            .map(|job| job.id);
        for job in submissions.iter().take(keep) {
            let never = job.provisioning_data.is_none()
                && job.termination_reason == Some(Reason::FailedToStartDueToNoCapacity);
            if never && job.status.is_finished() && Some(job.id) != first {
                changes.delete_jobs.push(job.id);
            }
        }
    }
}

/// Whether a running job may be taken over by the newest deployment as it is: nothing of it would change. Earlier
/// servers wrote the architecture they inferred into jobs; that it is gone is no change.
pub(super) fn is_same(
    old: &Arc<dstack_api::jobs::JobSpec>,
    new: &dstack_api::jobs::JobSpec,
) -> bool {
    let mut old = dstack_api::jobs::JobSpec::clone(old);
    old.ssh_key = None;
    if new.requirements.resources.cpu.arch.is_none() {
        old.requirements.resources.cpu.arch = None;
    }
    old == *new
}

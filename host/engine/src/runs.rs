//! Runs: the sum of their jobs.
//!
//! ```text
//!              ┌───────────── whole retry, next round of a schedule ────────────┐
//!              ▼                                                                │
//! pending ─► submitted ◄─► provisioning ◄─► running ─► terminating ─► terminated | failed | done
//! ```
//!
//! The newest submission of each job counts. First match wins:
//!
//! | | condition | result |
//! |---|---|---|
//! | 1 | a replica failed for good | terminating: `job_failed`, or `retry_limit_exceeded` if only the time is over |
//! | 2 | master-done, and a job 0 is done | terminating: `all_jobs_done` |
//! | 3 | any running; else any provisioning or pulling; else any submitted | that status |
//! | 4 | some done, none to retry | terminating: `all_jobs_done` |
//! | 5 | nothing else | pending |

use std::collections::BTreeMap;
use std::time::Duration;

use dstack_api::jobs::{JobStatus, JobTerminationReason as Reason};
use dstack_api::runs::{RunStatus, RunTerminationReason};
use jiff::Timestamp;

use crate::changes::{Actor, Changes, Guard, Pipeline};
use crate::ids::{Ids, JobId, UserId};
use crate::model::{JobRow, RunRow, Stop};
use crate::retry::{self, Verdict};
use crate::{admit, schedule, spec};

/// How often an active run is looked at when nothing wakes it.
const LOOK: Duration = Duration::from_secs(30);

/// What the decision reads.
#[derive(Debug, Clone)]
pub struct View {
    /// Now.
    pub now: Timestamp,
    /// The run.
    pub run: RunRow,
    /// All its submissions, in any order.
    pub jobs: Vec<JobRow>,
    /// For runs that a schedule fires: what the server fills in.
    pub defaults: std::sync::Arc<admit::JobDefaults>,
}

/// The submissions of one job, oldest first.
type Job<'a> = Vec<&'a JobRow>;

/// What one replica says about the run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Contribution {
    failed: bool,
    too_late: bool,
    retry: bool,
    done: bool,
    master_done: bool,
    running: bool,
    provisioning: bool,
    submitted: bool,
}

/// Decides what a run does next. It never calls anybody.
pub fn plan(view: &View, ids: &mut Ids) -> Changes {
    let mut changes = match view.run.status {
        RunStatus::Pending => pending(view, ids),
        RunStatus::Submitted | RunStatus::Provisioning | RunStatus::Running => active(view, ids),
        RunStatus::Terminating => terminating(view),
        RunStatus::Terminated | RunStatus::Failed | RunStatus::Done => return Changes::nothing(),
    };
    changes
        .guards
        .insert(0, Guard::RunIs(view.run.id, vec![view.run.status]));
    changes
}

fn replicas(view: &View) -> BTreeMap<u32, BTreeMap<u32, Job<'_>>> {
    let mut out: BTreeMap<u32, BTreeMap<u32, Job<'_>>> = BTreeMap::new();
    for job in &view.jobs {
        out.entry(job.replica_num)
            .or_default()
            .entry(job.job_num)
            .or_default()
            .push(job);
    }
    for jobs in out.values_mut().flat_map(BTreeMap::values_mut) {
        jobs.sort_by_key(|job| job.submission_num);
    }
    out
}

fn contribution(view: &View, jobs: &BTreeMap<u32, Job<'_>>) -> Contribution {
    let mut sum = Contribution::default();
    for (job_num, submissions) in jobs {
        let Some(job) = submissions.last() else {
            continue;
        };
        match job.status {
            JobStatus::Submitted => sum.submitted = true,
            JobStatus::Provisioning | JobStatus::Pulling => sum.provisioning = true,
            JobStatus::Running => sum.running = true,
            JobStatus::Done => done(&mut sum, *job_num),
            JobStatus::Terminating
            | JobStatus::Terminated
            | JobStatus::Aborted
            | JobStatus::Failed => {
                if job.termination_reason == Some(Reason::ScaledDown) {
                    continue;
                }
                let round = this_round(view, submissions);
                match retry::judge(&view.run, job, &round, view.now) {
                    Verdict::Fine => done(&mut sum, *job_num),
                    Verdict::Retry => sum.retry = true,
                    Verdict::Fail => sum.failed = true,
                    Verdict::TooLate => sum.too_late = true,
                }
            }
        }
    }
    if sum.failed || sum.too_late {
        Contribution {
            failed: sum.failed,
            too_late: sum.too_late,
            ..Contribution::default()
        }
    } else if sum.retry {
        Contribution {
            retry: true,
            ..Contribution::default()
        }
    } else {
        sum
    }
}

fn done(sum: &mut Contribution, job_num: u32) {
    sum.done = true;
    sum.master_done |= job_num == 0;
}

/// Rounds of a schedule are judged apart from each other.
fn this_round<'a>(view: &View, submissions: &[&'a JobRow]) -> Vec<&'a JobRow> {
    let start = view.run.next_triggered_at;
    submissions
        .iter()
        .filter(|job| start.is_none_or(|start| job.submitted_at >= start))
        .copied()
        .collect()
}

fn active(view: &View, ids: &mut Ids) -> Changes {
    let run = &view.run;
    let replicas = replicas(view);
    let told: BTreeMap<u32, Contribution> = replicas
        .iter()
        .map(|(num, jobs)| (*num, contribution(view, jobs)))
        .collect();
    let any = |test: fn(&Contribution) -> bool| told.values().any(test);
    let mut changes = Changes::later(LOOK);
    forget_superseded(&replicas, &mut changes);
    if any(|c| c.failed) {
        changes.run_ends(run, RunTerminationReason::JobFailed);
        return changes;
    }
    if any(|c| c.too_late) {
        changes.run_ends(run, RunTerminationReason::RetryLimitExceeded);
        return changes;
    }
    if any(|c| c.master_done) && spec::master_done(&run.spec) {
        changes.run_ends(run, RunTerminationReason::AllJobsDone);
        return changes;
    }
    let next = if any(|c| c.running) {
        RunStatus::Running
    } else if any(|c| c.provisioning) {
        RunStatus::Provisioning
    } else if any(|c| c.submitted) {
        RunStatus::Submitted
    } else if any(|c| c.done) && !any(|c| c.retry) {
        changes.run_ends(run, RunTerminationReason::AllJobsDone);
        return changes;
    } else {
        RunStatus::Pending
    };
    let again: Vec<&BTreeMap<u32, Job<'_>>> = replicas
        .iter()
        .filter(|(num, _)| told.get(num).is_some_and(|c| c.retry))
        .map(|(_, jobs)| jobs)
        .collect();
    for jobs in &again {
        end_unfinished(jobs, &mut changes);
    }
    if next == RunStatus::Pending {
        changes.run_becomes(run, RunStatus::Pending);
        let patch = changes.run(run);
        patch.resubmission_attempt = Some(run.resubmission_attempt + 1);
        patch.fleet_id = Some(None);
        return changes;
    }
    for jobs in again {
        submit_again(view, jobs, &mut changes, ids);
    }
    if next != run.status {
        changes.run_becomes(run, next);
        if next == RunStatus::Provisioning && run.resubmission_attempt != 0 {
            changes.run(run).resubmission_attempt = Some(0);
        }
    }
    wake_siblings(&replicas, &mut changes);
    changes
}

/// Nodes of a replica wait for each other's addresses, which the instances bring.
fn wake_siblings(replicas: &BTreeMap<u32, BTreeMap<u32, Job<'_>>>, changes: &mut Changes) {
    for jobs in replicas.values().filter(|jobs| jobs.len() > 1) {
        let latest: Vec<&JobRow> = jobs
            .values()
            .filter_map(|job| job.last().copied())
            .collect();
        let addressed = |job: &&JobRow| {
            job.provisioning_data
                .as_ref()
                .is_some_and(|data| data.hostname.is_some())
        };
        if latest.iter().all(addressed) {
            for job in latest
                .iter()
                .filter(|job| job.status == JobStatus::Provisioning)
            {
                changes.hint(Pipeline::JobsRunning, job.id);
            }
        }
    }
}

/// Multi-node is all or nothing: a replica that is tried again loses its living jobs.
fn end_unfinished(jobs: &BTreeMap<u32, Job<'_>>, changes: &mut Changes) {
    for job in jobs.values().filter_map(|job| job.last()) {
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

/// A replica that is not tried again with the others. The reasons of its siblings do not tell: a replica that is
/// tried again as a whole has jobs that the server ended.
fn ended_well(jobs: &BTreeMap<u32, Job<'_>>) -> bool {
    jobs.values().filter_map(|job| job.last()).all(|job| {
        matches!(
            job.termination_reason,
            Some(Reason::DoneByRunner | Reason::ScaledDown)
        )
    })
}

fn submit_again(view: &View, jobs: &BTreeMap<u32, Job<'_>>, changes: &mut Changes, ids: &mut Ids) {
    for job in jobs.values().filter_map(|job| job.last()) {
        let new = admit::again(job, JobId(ids.uuid()), view.run.deployment_num, view.now);
        changes.guards.push(Guard::LatestSubmission(job.id));
        changes.event("job created for a retry", &[&new, &view.run]);
        changes.hint(Pipeline::JobsSubmitted, new.id);
        changes.new_jobs.push(new);
    }
}

/// Old tries that never had a machine are noise, except the last one before the newest.
fn forget_superseded(replicas: &BTreeMap<u32, BTreeMap<u32, Job<'_>>>, changes: &mut Changes) {
    for submissions in replicas.values().flat_map(BTreeMap::values) {
        let keep = submissions.len().saturating_sub(2);
        for job in submissions.iter().take(keep) {
            let never = job.provisioning_data.is_none()
                && job.termination_reason == Some(Reason::FailedToStartDueToNoCapacity);
            if never && job.status.is_finished() {
                changes.delete_jobs.push(job.id);
            }
        }
    }
}

fn pending(view: &View, ids: &mut Ids) -> Changes {
    let run = &view.run;
    let due = if run.resubmission_attempt > 0 {
        let last = view
            .jobs
            .iter()
            .map(|job| job.finished_at.unwrap_or(job.last_processed_at))
            .max();
        let delay = retry::pending_delay(run.resubmission_attempt - 1);
        last.unwrap_or(run.submitted_at)
            .saturating_add(delay)
            .unwrap_or(view.now)
    } else {
        match run.next_triggered_at {
            Some(at) => at,
            // A service at zero waits for its traffic.
            None if !view.jobs.is_empty() => return Changes::later(LOOK),
            None => view.now,
        }
    };
    if view.now < due {
        let left = u64::try_from(due.duration_since(view.now).as_millis()).unwrap_or(0);
        return Changes::later(Duration::from_millis(left + 1));
    }
    let mut changes = Changes::later(LOOK);
    let replicas = replicas(view);
    forget_superseded(&replicas, &mut changes);
    if replicas.is_empty() {
        match admit::jobs(run, &view.defaults, view.now, ids) {
            Ok(jobs) => {
                for job in jobs {
                    changes.event("job created", &[&job, run]);
                    changes.hint(Pipeline::JobsSubmitted, job.id);
                    changes.new_jobs.push(job);
                }
            }
            Err(why) => {
                changes.event(format!("jobs could not be made: {why}"), &[run]);
                changes.run_ends(run, RunTerminationReason::ServerError);
                return changes;
            }
        }
    }
    for jobs in replicas.values() {
        if run.resubmission_attempt > 0 && ended_well(jobs) {
            continue;
        }
        submit_again(view, jobs, &mut changes, ids);
    }
    if changes.new_jobs.is_empty() {
        // Nothing is left to do: all replicas ended well or were scaled down.
        changes.run_ends(run, RunTerminationReason::AllJobsDone);
    } else {
        changes.run_becomes(run, RunStatus::Submitted);
    }
    changes
}

fn terminating(view: &View) -> Changes {
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

//! Runs: the sum of their jobs.
//!
//! ```text
//!              ┌───────────── whole retry, next round of a schedule, no replicas ────────────┐
//!              ▼                                                                             │
//! pending ─► submitted ◄─► provisioning ◄─► running ─► terminating ─► terminated | failed | done
//! ```
//!
//! The newest submission of each job counts. First match wins:
//!
//! | | condition | result |
//! |---|---|---|
//! | 1 | a replica failed for good | terminating: `job_failed`, or `retry_limit_exceeded` if only the time is over |
//! | 2 | the gateway did not take the service ([`gateway_failed`]) | terminating: `gateway_error` |
//! | 3 | master-done, and a job 0 is done | terminating: `all_jobs_done` |
//! | 4 | any running; else any provisioning or pulling; else any submitted | that status |
//! | 5 | some done, none to retry | terminating: `all_jobs_done` |
//! | 6 | nothing else | pending |
//!
//! While a run is active, single replicas are tried again ([`again`]), brought to the newest deployment ([`rollout`]),
//! and their number follows the load ([`scale`]).

mod again;
mod ending;
mod pending;
mod replicas;
mod rollout;
mod scale;

use std::time::Duration;

use dstack_api::jobs::JobStatus;
use dstack_api::runs::{RunStatus, RunTerminationReason};
use jiff::Timestamp;

use crate::admit;
use crate::changes::{Changes, Guard, Pipeline};
use crate::ids::Ids;
use crate::model::{JobRow, RunRow};
use crate::scaling::Traffic;
use crate::spec;
use replicas::Replica;

pub use ending::{gateway_failed, stop};

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
    /// For runs whose jobs are made later: what the server fills in.
    pub defaults: std::sync::Arc<admit::JobDefaults>,
    /// Requests to a service; none as long as not everybody who forwards them has reported.
    pub traffic: Option<Traffic>,
}

/// Decides what a run does next. It never calls anybody.
pub fn plan(view: &View, ids: &mut Ids) -> Changes {
    let mut changes = match view.run.status {
        RunStatus::Pending => pending::pending(view, ids),
        RunStatus::Submitted | RunStatus::Provisioning | RunStatus::Running => active(view, ids),
        RunStatus::Terminating => ending::terminating(view),
        RunStatus::Terminated | RunStatus::Failed | RunStatus::Done => return Changes::nothing(),
    };
    changes
        .guards
        .insert(0, Guard::RunIs(view.run.id, vec![view.run.status]));
    changes
}

/// What the sum of the replicas means.
enum Sum {
    Ends(RunTerminationReason),
    Is(RunStatus),
}

fn sum(run: &RunRow, replicas: &[Replica<'_>]) -> Sum {
    let any = |test: fn(&replicas::Contribution) -> bool| replicas.iter().any(|r| test(&r.told));
    if any(|c| c.failed) {
        Sum::Ends(RunTerminationReason::JobFailed)
    } else if any(|c| c.too_late) {
        Sum::Ends(RunTerminationReason::RetryLimitExceeded)
    } else if any(|c| c.master_done) && spec::master_done(&run.spec) {
        Sum::Ends(RunTerminationReason::AllJobsDone)
    } else if any(|c| c.running) {
        Sum::Is(RunStatus::Running)
    } else if any(|c| c.provisioning) {
        Sum::Is(RunStatus::Provisioning)
    } else if any(|c| c.submitted) {
        Sum::Is(RunStatus::Submitted)
    } else if any(|c| c.done) && !any(|c| c.retry) {
        Sum::Ends(RunTerminationReason::AllJobsDone)
    } else {
        Sum::Is(RunStatus::Pending)
    }
}

fn active(view: &View, ids: &mut Ids) -> Changes {
    let run = &view.run;
    let replicas = replicas::of(view);
    let mut changes = Changes::later(LOOK);
    again::forget_superseded(view, &replicas, &mut changes);
    let next = match sum(run, &replicas) {
        Sum::Ends(reason) => {
            changes.run_ends(run, reason);
            return changes;
        }
        Sum::Is(next) => next,
    };
    for replica in replicas.iter().filter(|replica| replica.told.retry) {
        again::end_unfinished(replica, &mut changes);
    }
    if next == RunStatus::Pending {
        let retries = replicas.iter().any(|replica| replica.told.retry);
        changes.run_becomes(run, RunStatus::Pending);
        let patch = changes.run(run);
        // A service whose replicas were all scaled down waits for traffic, not for its next try.
        patch.resubmission_attempt = Some(if retries {
            run.resubmission_attempt + 1
        } else {
            0
        });
        patch.fleet_id = Some(None);
        patch.capacity_at = Some(None);
        return changes;
    }
    if next != run.status {
        changes.run_becomes(run, next);
        if next == RunStatus::Provisioning && run.resubmission_attempt != 0 {
            changes.run(run).resubmission_attempt = Some(0);
        }
    }
    let failed = again::replicas(view, &replicas, &mut changes, ids)
        .and_then(|()| scale::groups(view, &replicas, &mut changes, ids));
    if let Err(why) = failed {
        return unmakeable(view, &why);
    }
    wake_siblings(&replicas, &mut changes);
    changes
}

/// The jobs of a run could be made when it was submitted, so this is the server's own fault.
fn unmakeable(view: &View, why: &admit::AdmitError) -> Changes {
    let mut changes = Changes::later(LOOK);
    changes.event(format!("Jobs could not be made: {why}"), &[&view.run]);
    changes.run_ends(&view.run, RunTerminationReason::ServerError);
    changes
}

/// Nodes of a replica wait for each other's addresses, which the instances bring.
fn wake_siblings(replicas: &[Replica<'_>], changes: &mut Changes) {
    for replica in replicas.iter().filter(|replica| replica.jobs.len() > 1) {
        let addressed = |job: &JobRow| {
            job.provisioning_data
                .as_ref()
                .is_some_and(|data| data.hostname.is_some())
        };
        if replica.latest().all(addressed) {
            for job in replica
                .latest()
                .filter(|job| job.status == JobStatus::Provisioning)
            {
                changes.hint(Pipeline::JobsRunning, job.id);
            }
        }
    }
}

//! The replicas of a run, and what each says about it.

use std::collections::BTreeMap;

use dstack_api::jobs::{JobStatus, JobTerminationReason as Reason};
use dstack_api::plan::replica_group_names;

use super::View;
use crate::model::JobRow;
use crate::retry::{self, Verdict};

/// What one replica says about the run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "a set of small facts")]
pub(super) struct Contribution {
    pub(super) failed: bool,
    pub(super) too_late: bool,
    pub(super) retry: bool,
    pub(super) done: bool,
    pub(super) master_done: bool,
    pub(super) running: bool,
    pub(super) provisioning: bool,
    pub(super) submitted: bool,
}

/// A replica with the submissions of each of its jobs, oldest first.
pub(super) struct Replica<'a> {
    pub(super) num: u32,
    /// Position of its group in the configuration; none if the group is there no more.
    pub(super) group: Option<usize>,
    pub(super) jobs: BTreeMap<u32, Vec<&'a JobRow>>,
    pub(super) told: Contribution,
}

impl<'a> Replica<'a> {
    /// The newest submission of each job.
    pub(super) fn latest(&self) -> impl Iterator<Item = &'a JobRow> + '_ {
        self.jobs.values().filter_map(|job| job.last().copied())
    }

    /// All its jobs are on their way or at work.
    pub(super) fn is_active(&self) -> bool {
        self.latest()
            .all(|job| !job.status.is_finished() && job.status != JobStatus::Terminating)
    }

    /// Some job of it still is there.
    pub(super) fn is_unfinished(&self) -> bool {
        self.latest().any(|job| !job.status.is_finished())
    }

    /// It takes requests.
    pub(super) fn has_traffic(&self) -> bool {
        self.jobs
            .get(&0)
            .and_then(|job| job.last())
            .is_some_and(|job| job.registered && job.status == JobStatus::Running)
    }

    /// It was made for an earlier deployment.
    pub(super) fn is_outdated(&self, deployment_num: u32) -> bool {
        self.latest().any(|job| job.deployment_num < deployment_num)
    }

    /// How far it has come: 3 with traffic, 2 running, 1 on its way, 0 without a machine. Its slowest job counts.
    pub(super) fn importance(&self) -> u8 {
        if self.has_traffic() {
            return 3;
        }
        let of = |job: &JobRow| match job.status {
            JobStatus::Running => 2,
            JobStatus::Provisioning | JobStatus::Pulling => 1,
            JobStatus::Submitted
            | JobStatus::Terminating
            | JobStatus::Terminated
            | JobStatus::Aborted
            | JobStatus::Failed
            | JobStatus::Done => 0,
        };
        self.latest().map(of).min().unwrap_or(0)
    }

    /// It is not tried again with the others. The reasons of its siblings do not tell: a replica that is tried again as
    /// a whole has jobs that the server ended.
    pub(super) fn ended_well(&self) -> bool {
        self.latest().all(|job| {
            matches!(
                job.termination_reason,
                Some(Reason::DoneByRunner | Reason::ScaledDown)
            )
        })
    }
}

/// The replicas, by number.
pub(super) fn of(view: &View) -> Vec<Replica<'_>> {
    let names = replica_group_names(&view.run.spec.configuration);
    let mut by_num: BTreeMap<u32, BTreeMap<u32, Vec<&JobRow>>> = BTreeMap::new();
    for job in &view.jobs {
        by_num
            .entry(job.replica_num)
            .or_default()
            .entry(job.job_num)
            .or_default()
            .push(job);
    }
    let mut out = Vec::with_capacity(by_num.len());
    for (num, mut jobs) in by_num {
        for submissions in jobs.values_mut() {
            submissions.sort_by_key(|job| job.submission_num);
        }
        let told = contribution(view, &jobs);
        let group = jobs
            .values()
            .filter_map(|job| job.last())
            .next()
            .and_then(|job| {
                names
                    .iter()
                    .position(|name| *name == job.spec.replica_group)
            });
        out.push(Replica {
            num,
            group,
            jobs,
            told,
        });
    }
    out
}

fn contribution(view: &View, jobs: &BTreeMap<u32, Vec<&JobRow>>) -> Contribution {
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
                let round = this_round(view, submissions);
                // What a round before this one left says nothing.
                if job.termination_reason == Some(Reason::ScaledDown) || round.is_empty() {
                    continue;
                }
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
pub(super) fn this_round<'a>(view: &View, submissions: &[&'a JobRow]) -> Vec<&'a JobRow> {
    let start = view.run.next_triggered_at;
    submissions
        .iter()
        .filter(|job| start.is_none_or(|start| job.submitted_at >= start))
        .copied()
        .collect()
}

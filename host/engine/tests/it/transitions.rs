//! The transition tables are whole: every question in every state has a way on whatever the answer is, no state is
//! without an exit, and every reason to end can come true.

use std::collections::{BTreeMap, BTreeSet};

use dstack_api::instances::{HealthStatus, InstanceStatus, InstanceTerminationReason};
use dstack_api::jobs::{JobStatus, JobTerminationReason as Reason};
use dstack_api::runs::{RunStatus, RunTerminationReason};
use dstack_engine::changes::Changes;
use dstack_engine::job_running::{self, Ended, Pulled, TaskState};
use dstack_engine::{instances, job_terminating};
use serde_json::json;

use crate::support::{Bed, at, machine, offer};

/// Whether somebody will look at the row again, or it has moved on.
fn goes_on(changes: &Changes) -> bool {
    changes.look_again.is_some()
        || !changes.hints.is_empty()
        || changes.jobs.iter().any(|patch| patch.status.is_some())
        || changes.instances.iter().any(|patch| patch.status.is_some())
}

fn pulled(ended: Option<bool>, stored: bool) -> Pulled {
    Pulled {
        stored,
        news: false,
        last_updated: 1,
        no_connections_secs: None,
        ended: ended.map(|done| Ended {
            done,
            reason: String::new(),
            message: String::new(),
            exit_status: None,
        }),
    }
}

#[test]
fn every_answer_to_a_placed_job_has_a_way_on() {
    use job_running::Answer;
    let task = |running, ended: Option<&str>| {
        Answer::Task(TaskState {
            running,
            ended: ended.map(|reason| (reason.to_owned(), String::new())),
            ports: None,
        })
    };
    let answers = [
        Answer::Unreachable("no".into()),
        Answer::NotUp,
        Answer::TaskTaken,
        task(false, None),
        task(true, None),
        task(false, Some("executor_error")),
        task(false, Some("unheard of")),
        Answer::Started {
            working_dir: None,
            username: None,
        },
        Answer::Impossible("no".into()),
        Answer::Pulled(pulled(None, true)),
        Answer::Pulled(pulled(None, false)),
        Answer::Pulled(pulled(Some(true), true)),
        Answer::Pulled(pulled(Some(false), true)),
    ];
    for status in [
        JobStatus::Provisioning,
        JobStatus::Pulling,
        JobStatus::Running,
    ] {
        for silent_for in [None, Some(10), Some(500)] {
            for answer in &answers {
                let mut bed = Bed::new(json!({}), json!({}));
                let id = bed.job(0);
                bed.place(id, &offer(1.0, false), at(0));
                bed.set(id, |job| {
                    job.status = status;
                    job.disconnected_at = silent_for.map(|seconds| at(550 - seconds));
                });
                let view = bed.world.job_running(id, at(550)).unwrap();
                let job_running::Plan::Ask(ask) = job_running::plan(&view) else {
                    panic!("{status} asks its machine");
                };
                let changes = job_running::conclude(&view, &ask, answer);
                assert!(
                    goes_on(&changes),
                    "{status}, {ask:?}, {answer:?}: {changes:?}"
                );
                bed.world.request(changes, at(550)).unwrap();
            }
        }
    }
}

#[test]
fn every_answer_to_a_terminating_job_has_a_way_on() {
    use dstack_engine::model::Stop;
    use job_terminating::{Answer, Plan};
    for stop in [Stop::Hard, Stop::Requested, Stop::Sent, Stop::Removed] {
        for reason in Reason::ALL {
            for answer in [
                Answer::Done,
                Answer::Failed("no".into()),
                Answer::Pulled(pulled(None, true), true),
                Answer::Pulled(pulled(None, true), false),
                Answer::Pulled(pulled(None, false), false),
            ] {
                let mut bed = Bed::new(json!({}), json!({}));
                let id = bed.job(0);
                bed.place(id, &offer(1.0, false), at(0));
                bed.set(id, |job| {
                    job.status = JobStatus::Terminating;
                    job.termination_reason = Some(*reason);
                    job.stop = stop;
                    job.remove_at = Some(at(30));
                });
                let view = bed.world.job_terminating(id, at(10)).unwrap();
                let changes = match job_terminating::plan(&view) {
                    Plan::Change(changes) => changes,
                    Plan::Ask(ask) => job_terminating::conclude(&view, &ask, &answer),
                };
                assert!(goes_on(&changes), "{stop:?}, {answer:?}: {changes:?}");
                bed.world.request(changes, at(10)).unwrap();
            }
        }
    }
}

#[test]
fn every_answer_to_an_instance_has_a_way_on() {
    use instances::{Answer, Plan};
    let data = |host| Box::new(machine(&offer(1.0, false), host));
    let answers = [
        Answer::Address(data(None)),
        Answer::Address(data(Some("host"))),
        Answer::Lost("gone".into()),
        Answer::Healthy(None),
        Answer::Healthy(Some((HealthStatus::Failure, None))),
        Answer::Ended,
        Answer::NotYet,
        Answer::Failed("no".into()),
        Answer::Unprepared {
            why: "no".into(),
            is_final: true,
            was_entered: false,
        },
    ];
    let states = [
        (InstanceStatus::Provisioning, None),
        (InstanceStatus::Provisioning, Some("host")),
        (InstanceStatus::Idle, Some("host")),
        (InstanceStatus::Busy, Some("host")),
        (InstanceStatus::Terminating, Some("host")),
    ];
    for (status, host) in states {
        for answer in &answers {
            let mut bed = Bed::new(json!({}), json!({"fleets": ["other"]}));
            let id = bed.idle_machine(&offer(1.0, false), 0);
            bed.set_instance(id, |row| {
                row.status = status;
                row.started_at = Some(at(0));
                row.busy_blocks = u32::from(status == InstanceStatus::Busy);
                row.provisioning_data =
                    Some(std::sync::Arc::new(machine(&offer(1.0, false), host)));
            });
            let view = bed.world.instance_view(id, at(10)).unwrap();
            let Plan::Ask(ask) = instances::plan(&view, &mut bed.ids) else {
                panic!("{status} asks somebody");
            };
            let changes = instances::conclude(&view, &ask, answer);
            assert!(
                goes_on(&changes),
                "{status}, {ask:?}, {answer:?}: {changes:?}"
            );
            bed.world.request(changes, at(10)).unwrap();
        }
    }
}

/// Which states can be reached from the first one, and which have an exit.
fn whole<S: Copy + Ord + std::fmt::Debug>(
    all: &[S],
    first: &[S],
    is_final: impl Fn(S) -> bool,
    can_become: impl Fn(S, S) -> bool,
) {
    let next: BTreeMap<S, Vec<S>> = all
        .iter()
        .map(|from| {
            (
                *from,
                all.iter()
                    .copied()
                    .filter(|to| can_become(*from, *to))
                    .collect(),
            )
        })
        .collect();
    let mut reached: BTreeSet<S> = first.iter().copied().collect();
    let mut todo: Vec<S> = first.to_vec();
    while let Some(state) = todo.pop() {
        todo.extend(next[&state].iter().filter(|to| reached.insert(**to)));
    }
    assert_eq!(reached.len(), all.len(), "reached are {reached:?}");
    // From every state there is a way to an end.
    for start in all {
        let mut seen = BTreeSet::from([*start]);
        let mut todo = vec![*start];
        let mut ends = false;
        while let Some(state) = todo.pop() {
            ends |= is_final(state);
            todo.extend(next[&state].iter().filter(|to| seen.insert(**to)));
        }
        assert!(ends, "{start:?} never ends");
        assert_eq!(is_final(*start), next[start].is_empty(), "{start:?}");
    }
}

#[test]
fn no_state_is_without_an_exit() {
    let order = |all: &'static [JobStatus]| (0..all.len()).collect::<Vec<_>>();
    let jobs = JobStatus::ALL;
    whole(
        &order(jobs),
        &[0],
        |at| jobs[at].is_finished(),
        |a, b| jobs[a].can_become(jobs[b]),
    );
    let runs = RunStatus::ALL;
    let first: Vec<usize> = (0..runs.len())
        .filter(|at| matches!(runs[*at], RunStatus::Pending | RunStatus::Submitted))
        .collect();
    let all: Vec<usize> = (0..runs.len()).collect();
    whole(
        &all,
        &first,
        |at| runs[at].is_finished(),
        |a, b| runs[a].can_become(runs[b]),
    );
    let instances = InstanceStatus::ALL;
    let first: Vec<usize> = (0..instances.len())
        .filter(|at| instances[*at] == InstanceStatus::Pending)
        .collect();
    let all: Vec<usize> = (0..instances.len()).collect();
    whole(
        &all,
        &first,
        |at| instances[at] == InstanceStatus::Terminated,
        |a, b| instances[a].can_become(instances[b]),
    );
}

/// Every reason of a job that an agent may tell is taken over; the others are given by decisions that have their own
/// tests, named here.
#[test]
fn every_reason_of_a_job_can_come_true() {
    let decided = [
        (Reason::FailedToStartDueToNoCapacity, "s4_failure_text"),
        (
            Reason::InterruptedByNoCapacity,
            "silence_is_an_interruption_on_spot_and_unreachable_elsewhere",
        ),
        (
            Reason::InstanceUnreachable,
            "silence_is_an_interruption_on_spot_and_unreachable_elsewhere",
        ),
        (
            Reason::InstanceAccessRevoked,
            "s3_ends_by_the_clock_and_by_rows",
        ),
        (
            Reason::WaitingInstanceLimitExceeded,
            "s3_ends_by_the_clock_and_by_rows",
        ),
        (
            Reason::WaitingRunnerLimitExceeded,
            "s3_ends_by_the_clock_and_by_rows",
        ),
        (Reason::TerminatedByUser, "s2_reason_mapping"),
        (Reason::AbortedByUser, "s2_reason_mapping"),
        (Reason::TerminatedByServer, "s2_reason_mapping"),
        (Reason::DoneByRunner, "s3_ends_by_answers"),
        (Reason::ScaledDown, "s9_removal_order"),
        (Reason::InactivityDurationExceeded, "s3_ends_by_answers"),
        (
            Reason::TerminatedDueToUtilizationPolicy,
            "s3_running_utilization_policy",
        ),
        // Given by the volumes' and the gateways' decisions.
        (Reason::VolumeError, ""),
        (Reason::GatewayError, ""),
    ];
    for reason in Reason::ALL {
        if decided.iter().any(|(known, _)| known == reason) {
            continue;
        }
        let mut bed = Bed::new(json!({}), json!({}));
        let id = bed.job(0);
        bed.place(id, &offer(1.0, false), at(0));
        bed.set(id, |job| job.status = JobStatus::Running);
        let view = bed.world.job_running(id, at(1)).unwrap();
        let mut told = pulled(Some(false), true);
        told.ended.as_mut().unwrap().reason = reason.as_str().to_owned();
        let ask = job_running::Ask::Pull { since: 0 };
        let changes = job_running::conclude(&view, &ask, &job_running::Answer::Pulled(told));
        assert_eq!(changes.jobs[0].termination_reason, Some(Some(*reason)));
    }
    assert_eq!(
        RunTerminationReason::ALL.len(),
        7,
        "all are in s2_reason_mapping"
    );
    let foreign = [
        // A cluster's next machine takes the lead when the first one is not to be had, so none is given up for it.
        "master_failed",
        // Of the compatible server's own cloud.
        "no_balance",
    ];
    let given = [
        "idle_timeout",
        "provisioning_timeout",
        "error",
        "job_finished",
        "terminated_by_user",
        "no_offers",
        "unreachable",
        "fleet_spec_mismatch",
        "max_instances_limit",
    ];
    for reason in InstanceTerminationReason::ALL {
        let word = reason.as_str();
        assert!(given.contains(&word) != foreign.contains(&word), "{word}");
    }
}

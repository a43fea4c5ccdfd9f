//! `lifecycles`, section 2: runs. Each table of it is a table here; a row says which one it is.

use std::collections::BTreeMap;

use dstack_api::jobs::{JobStatus as J, JobTerminationReason as Reason};
use dstack_api::runs::{RunStatus as R, RunTerminationReason as End};
use dstack_engine::admit;
use dstack_engine::changes::Pipeline;
use dstack_engine::ids::JobId;
use dstack_engine::model::Stop;
use dstack_engine::retry;
use dstack_engine::runs;
use serde_json::{Value, json};

use crate::support::{Bed, State, at, offer};

const DONE: State = (J::Done, Some(Reason::DoneByRunner));
const CLOSING: State = (J::Terminating, Some(Reason::DoneByRunner));
const EXIT: State = (J::Failed, Some(Reason::ContainerExitedWithError));
const NO_CAPACITY: State = (J::Failed, Some(Reason::FailedToStartDueToNoCapacity));
const INTERRUPTED: State = (J::Failed, Some(Reason::InterruptedByNoCapacity));
const ABORTED: State = (J::Aborted, Some(Reason::AbortedByUser));
const fn is(status: J) -> State {
    (status, None)
}

fn nodes(run: Value, states: &[State]) -> Bed {
    let mut keys = json!({"nodes": states.len().max(1)});
    keys.as_object_mut()
        .unwrap()
        .extend(run.as_object().unwrap().clone());
    let mut bed = Bed::new(json!({"placement": "cluster"}), keys);
    for (num, state) in (0..).zip(states) {
        let had_machine = *state != NO_CAPACITY && state.0 != J::Submitted;
        let id = bed.job(num);
        bed.stand(id, *state, had_machine);
    }
    bed
}

#[test]
fn s2_active_status_first_match_wins() {
    let retry = json!({"retry": true});
    let short = json!({"retry": {"duration": 10}});
    let master = json!({"stop_criteria": "master-done"});
    let none = json!({});
    let over = |end| (R::Terminating, Some(end));
    let to = |status| (status, None);
    let table: &[(&str, &Value, &[State], (R, Option<End>))] = &[
        (
            "1 a job failed for good",
            &none,
            &[is(J::Running), EXIT],
            over(End::JobFailed),
        ),
        ("1 before 3", &master, &[DONE, EXIT], over(End::JobFailed)),
        (
            "1 aborted jobs are not retried",
            &retry,
            &[ABORTED],
            over(End::JobFailed),
        ),
        (
            "1 only the time is over",
            &short,
            &[EXIT],
            over(End::RetryLimitExceeded),
        ),
        (
            "3 master-done",
            &master,
            &[DONE, is(J::Running)],
            over(End::AllJobsDone),
        ),
        (
            "3 not for others",
            &none,
            &[DONE, is(J::Running)],
            to(R::Running),
        ),
        (
            "4 any running",
            &none,
            &[is(J::Submitted), is(J::Running)],
            to(R::Running),
        ),
        (
            "5 any provisioning",
            &none,
            &[is(J::Provisioning), is(J::Submitted)],
            to(R::Provisioning),
        ),
        (
            "5 any pulling",
            &none,
            &[is(J::Submitted), is(J::Pulling)],
            to(R::Provisioning),
        ),
        (
            "6 any submitted",
            &none,
            &[is(J::Submitted), DONE],
            to(R::Submitted),
        ),
        ("7 all done", &none, &[DONE, DONE], over(End::AllJobsDone)),
        (
            "7 closing counts as done",
            &none,
            &[CLOSING, DONE],
            over(End::AllJobsDone),
        ),
        ("8 all retrying", &retry, &[NO_CAPACITY], to(R::Pending)),
        (
            "8 some done, the rest retrying",
            &retry,
            &[DONE, INTERRUPTED],
            to(R::Pending),
        ),
    ];
    for (row, keys, states, wanted) in table {
        let mut bed = nodes((*keys).clone(), states);
        bed.step_run(at(60));
        assert_eq!(
            (bed.row().status, bed.row().termination_reason),
            *wanted,
            "{row}"
        );
    }
}

#[test]
fn s2_active_2_gateway_failed() {
    let mut bed = nodes(json!({}), &[is(J::Running)]);
    let changes = runs::gateway_failed(bed.row()).unwrap();
    bed.world.request(changes, at(1)).unwrap();
    assert_eq!(bed.row().termination_reason, Some(End::GatewayError));
    assert!(runs::gateway_failed(bed.row()).is_none());
}

#[test]
fn s2_detail_contribution_scaled_down_says_nothing() {
    let mut bed = Bed::service(json!({"replicas": 2}));
    let [first, second] = &bed.replicas()[..] else {
        panic!()
    };
    let (first, second) = (first.id, second.id);
    bed.stand(first, (J::Terminated, Some(Reason::ScaledDown)), true);
    bed.stand(second, is(J::Running), true);
    bed.step_run(at(1));
    assert_eq!(bed.row().status, R::Running);
}

#[test]
fn s2_detail_partial_retry_renews_the_whole_replica() {
    let mut bed = Bed::service(json!({"replicas": 2, "retry": true}));
    let ids: Vec<JobId> = bed.replicas().iter().map(|job| job.id).collect();
    bed.stand(ids[0], is(J::Running), true);
    bed.stand(ids[1], INTERRUPTED, true);
    bed.step_run(at(1));
    let new = &bed.replicas()[1];
    assert_eq!((new.submission_num, new.status), (1, J::Submitted));
    assert_eq!(bed.row().status, R::Running);
    assert_eq!(bed.row().resubmission_attempt, 0);
}

/// Without machines the tries come later and later, also while others run.
#[test]
fn s2_detail_partial_retry_without_capacity_backs_off() {
    let mut bed = Bed::service(json!({"replicas": 2, "retry": true}));
    let first = bed.replicas()[0].id;
    bed.stand(first, is(J::Running), true);
    let mut now = 0;
    for delay in [15, 30, 60, 120, 300, 600, 600] {
        let job = bed.replicas()[1].clone();
        bed.stand(job.id, NO_CAPACITY, false);
        bed.set(job.id, |job| job.finished_at = Some(at(now)));
        bed.step_run(at(now + delay - 1));
        assert_eq!(bed.replicas()[1].id, job.id, "not before {delay} s");
        now += delay;
        bed.step_run(at(now));
        assert_eq!(
            bed.replicas()[1].submission_num,
            job.submission_num + 1,
            "after {delay} s"
        );
    }
}

#[test]
fn s2_detail_whole_retry_and_reset() {
    let mut bed = nodes(json!({"retry": true}), &[is(J::Running), INTERRUPTED]);
    let fleet = bed.fleet;
    bed.set_run(|run| run.fleet_id = Some(fleet));
    bed.step_run(at(1));
    let run = bed.row();
    assert_eq!(
        (run.status, run.resubmission_attempt, run.fleet_id),
        (R::Pending, 1, None)
    );
    let sibling = bed.world.job(bed.job(0)).unwrap();
    assert_eq!(sibling.termination_reason, Some(Reason::TerminatedByServer));
    assert_eq!(
        sibling.termination_reason_message.as_deref(),
        Some("to be resubmitted")
    );
    bed.step_run(at(100));
    assert_eq!(bed.row().status, R::Submitted);
    let id = bed.job(0);
    bed.stand(id, is(J::Provisioning), true);
    bed.step_run(at(101));
    assert_eq!(
        (bed.row().status, bed.row().resubmission_attempt),
        (R::Provisioning, 0)
    );
}

#[test]
fn s2_detail_superseded_submissions_go_except_the_last_one() {
    let mut bed = nodes(json!({"retry": true}), &[NO_CAPACITY]);
    let mut now = 0;
    for _ in 0..4 {
        bed.step_run(at(now + 1));
        now += 700;
        bed.step_run(at(now));
        let id = bed.job(0);
        bed.stand(id, NO_CAPACITY, false);
    }
    let mut numbers: Vec<u32> = bed
        .world
        .jobs_of_run(bed.run)
        .map(|job| job.submission_num)
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3, 4]);
    bed.step_run(at(now + 1));
    let left = bed.world.jobs_of_run(bed.run).count();
    assert_eq!(left, 2, "the newest and its predecessor");
}

#[test]
fn s2_reason_mapping() {
    let table = [
        (End::AllJobsDone, R::Done, Reason::DoneByRunner, None),
        (End::JobFailed, R::Failed, Reason::TerminatedByServer, None),
        (
            End::RetryLimitExceeded,
            R::Failed,
            Reason::TerminatedByServer,
            Some("retry limit exceeded"),
        ),
        (
            End::StoppedByUser,
            R::Terminated,
            Reason::TerminatedByUser,
            None,
        ),
        (
            End::AbortedByUser,
            R::Terminated,
            Reason::AbortedByUser,
            None,
        ),
        (
            End::ServerError,
            R::Failed,
            Reason::TerminatedByServer,
            Some("server error"),
        ),
        (
            End::GatewayError,
            R::Failed,
            Reason::TerminatedByServer,
            Some("gateway error"),
        ),
    ];
    for (reason, status, for_jobs, error) in table {
        assert_eq!(reason.error(), error, "{reason}");
        let mut bed = nodes(json!({}), &[is(J::Running), is(J::Submitted)]);
        bed.set_run(|run| {
            run.status = R::Terminating;
            run.termination_reason = Some(reason);
        });
        bed.step_run(at(1));
        for num in [0, 1] {
            let job = bed.world.job(bed.job(num)).unwrap();
            assert_eq!(
                (job.status, job.termination_reason),
                (J::Terminating, Some(for_jobs)),
                "{reason}"
            );
            let graceful =
                num == 0 && !matches!(for_jobs, Reason::AbortedByUser | Reason::DoneByRunner);
            assert_eq!(job.stop == Stop::Requested, graceful, "{reason}");
        }
        for num in [0, 1] {
            let id = bed.job(num);
            bed.stand(id, (for_jobs.status(), Some(for_jobs)), false);
        }
        bed.step_run(at(2));
        assert_eq!(bed.row().status, status, "{reason}");
    }
}

#[test]
fn s2_retry_events_and_clocks() {
    let run =
        json!({"retry": {"on_events": ["no-capacity", "interruption", "error"], "duration": 100}});
    // Row, reason, whether it ever had a machine, since when the clock runs; none: it is not retried.
    let table = [
        (
            "no-capacity, never placed",
            Reason::FailedToStartDueToNoCapacity,
            false,
            Some(0),
        ),
        (
            "no-capacity after it once ran",
            Reason::FailedToStartDueToNoCapacity,
            true,
            Some(50),
        ),
        (
            "interruption",
            Reason::InterruptedByNoCapacity,
            true,
            Some(50),
        ),
        ("error", Reason::ExecutorError, true, Some(50)),
        ("none: by the user", Reason::TerminatedByUser, true, None),
        (
            "none: max_duration",
            Reason::MaxDurationExceeded,
            true,
            None,
        ),
        (
            "none: inactivity",
            Reason::InactivityDurationExceeded,
            true,
            None,
        ),
        (
            "none: utilization",
            Reason::TerminatedDueToUtilizationPolicy,
            true,
            None,
        ),
    ];
    for (row, reason, had_machine, clock) in table {
        let mut bed = nodes(run.clone(), &[is(J::Submitted)]);
        let id = bed.job(0);
        bed.stand(id, (J::Failed, Some(reason)), had_machine);
        bed.set(id, |job| job.finished_at = Some(at(50)));
        let job = bed.world.job(id).unwrap();
        let verdict = |now| retry::judge(bed.row(), job, &[job], at(now));
        match clock {
            Some(since) => {
                assert_eq!(verdict(since + 100), retry::Verdict::Retry, "{row}");
                assert_eq!(verdict(since + 101), retry::Verdict::TooLate, "{row}");
            }
            None => assert_eq!(verdict(60), retry::Verdict::Fail, "{row}"),
        }
    }
}

#[test]
fn s2_retry_only_named_events() {
    let events = [
        ("no-capacity", Reason::FailedToStartDueToNoCapacity),
        ("interruption", Reason::InterruptedByNoCapacity),
        ("error", Reason::ContainerExitedWithError),
    ];
    for (named, _) in events {
        for (event, reason) in events {
            let mut bed = nodes(
                json!({"retry": {"on_events": [named]}}),
                &[is(J::Submitted)],
            );
            let id = bed.job(0);
            bed.stand(id, (J::Failed, Some(reason)), event != "no-capacity");
            bed.step_run(at(1));
            let retried = bed.row().status == R::Pending;
            assert_eq!(retried, named == event, "{event} with {named}");
        }
    }
}

/// Ours: the number of tries is limited, too.
#[test]
fn s2_retry_max_attempts() {
    let mut bed = nodes(json!({"retry": {"max_attempts": 2}}), &[NO_CAPACITY]);
    let mut now = 0;
    for attempt in 1..=2 {
        bed.step_run(at(now + 1));
        assert_eq!(bed.row().status, R::Pending, "attempt {attempt}");
        now += 700;
        bed.step_run(at(now));
        assert_eq!(bed.row().status, R::Submitted);
        let id = bed.job(0);
        bed.stand(id, NO_CAPACITY, false);
    }
    bed.step_run(at(now + 1));
    assert_eq!(bed.row().termination_reason, Some(End::RetryLimitExceeded));
    // Each round of a schedule has its own tries.
    let mut bed = nodes(
        json!({"retry": {"max_attempts": 1}, "schedule": {"cron": "* * * * *"}}),
        &[],
    );
    bed.set_run(|run| run.next_triggered_at = Some(at(10)));
    bed.step_run(at(10));
    let id = bed.job(0);
    bed.set(id, |job| job.submission_num = 7);
    bed.stand(id, NO_CAPACITY, false);
    bed.step_run(at(11));
    assert_eq!(bed.row().status, R::Pending);
}

#[test]
fn s2_retry_pending_delays() {
    for (attempt, delay) in [
        (1, 15),
        (2, 30),
        (3, 60),
        (4, 120),
        (5, 300),
        (6, 600),
        (7, 600),
        (99, 600),
    ] {
        let mut bed = nodes(json!({"retry": {"duration": "10h"}}), &[NO_CAPACITY]);
        bed.set_run(|run| {
            run.status = R::Pending;
            run.resubmission_attempt = attempt;
        });
        let id = bed.job(0);
        bed.set(id, |job| job.finished_at = Some(at(0)));
        bed.step_run(at(delay - 1));
        assert_eq!(bed.row().status, R::Pending, "attempt {attempt}");
        bed.step_run(at(delay));
        assert_eq!(bed.row().status, R::Submitted, "attempt {attempt}");
    }
}

/// Nobody polls for a machine: one that turns free wakes those that wait.
#[test]
fn s2_retry_a_free_machine_ends_the_wait() {
    let mut bed = nodes(json!({"retry": true}), &[NO_CAPACITY]);
    bed.step_run(at(1));
    assert_eq!(bed.row().status, R::Pending);
    let mut freed = dstack_engine::changes::Changes::default();
    freed.freed.push(bed.fleet);
    bed.world.request(freed.clone(), at(2)).unwrap();
    assert_eq!(bed.row().capacity_at, Some(at(2)));
    let run = bed.run;
    bed.claim(Pipeline::Runs, run.0, at(2));
    bed.step_run(at(2));
    assert_eq!(
        (bed.row().status, bed.row().capacity_at),
        (R::Submitted, None)
    );
    bed.world.request(freed, at(3)).unwrap();
    assert_eq!(bed.row().capacity_at, None, "it does not wait any more");
}

#[test]
fn s2_pending_without_anything_left_ends() {
    let mut bed = nodes(json!({"retry": true}), &[DONE]);
    bed.set_run(|run| {
        run.status = R::Pending;
        run.resubmission_attempt = 1;
    });
    bed.step_run(at(100));
    assert_eq!(bed.row().termination_reason, Some(End::AllJobsDone));
}

#[test]
fn s2_schedule_waits_fires_and_waits_again() {
    let mut bed = nodes(json!({"schedule": {"cron": "*/10 * * * *"}}), &[]);
    assert_eq!(bed.row().status, R::Pending);
    assert_eq!(
        bed.world.jobs_of_run(bed.run).count(),
        0,
        "no jobs before the time"
    );
    bed.set_run(|run| run.next_triggered_at = Some(at(600)));
    bed.step_run(at(599));
    assert_eq!(bed.row().status, R::Pending);
    bed.step_run(at(600));
    assert_eq!(bed.row().status, R::Submitted);
    assert_eq!(
        bed.row().next_triggered_at,
        Some(at(600)),
        "it stays during the round"
    );
    let id = bed.job(0);
    bed.stand(id, DONE, true);
    bed.step_run(at(1900));
    bed.step_run(at(1900));
    let run = bed.row();
    assert_eq!((run.status, run.termination_reason), (R::Pending, None));
    assert_eq!(
        run.next_triggered_at,
        Some(at(2400)),
        "missed times are skipped"
    );
    bed.step_run(at(2400));
    let job = bed.world.job(bed.job(0)).unwrap();
    assert_eq!((job.submission_num, job.status), (1, J::Submitted));
}

#[test]
fn s2_schedule_ends_by_the_user_only() {
    for (reason, status) in [
        (End::StoppedByUser, R::Terminated),
        (End::AbortedByUser, R::Terminated),
        (End::JobFailed, R::Pending),
        (End::RetryLimitExceeded, R::Pending),
    ] {
        let mut bed = nodes(json!({"schedule": {"cron": "*/10 * * * *"}}), &[]);
        bed.set_run(|run| {
            run.status = R::Terminating;
            run.termination_reason = Some(reason);
            run.resubmission_attempt = 3;
            run.desired_replicas = BTreeMap::from([("0".to_owned(), 4)]);
        });
        bed.step_run(at(700));
        let run = bed.row();
        assert_eq!(run.status, status, "{reason}");
        if status == R::Pending {
            assert_eq!((run.resubmission_attempt, run.fleet_id), (0, None));
            assert!(
                run.desired_replicas.is_empty(),
                "services start with replicas.min"
            );
        }
    }
}

#[test]
fn s2_schedule_retry_window_starts_at_the_trigger() {
    let keys = json!({"schedule": {"cron": "*/10 * * * *"}, "retry": {"on_events": ["no-capacity"], "duration": 100}});
    let mut bed = nodes(keys, &[]);
    bed.set_run(|run| run.next_triggered_at = Some(at(600)));
    bed.step_run(at(600));
    let id = bed.job(0);
    bed.stand(id, NO_CAPACITY, false);
    bed.step_run(at(700));
    assert_eq!(
        bed.row().status,
        R::Pending,
        "100 s after the trigger, 700 after submission"
    );
    bed.set_run(|run| run.status = R::Submitted);
    bed.step_run(at(701));
    assert_eq!(bed.row().termination_reason, Some(End::RetryLimitExceeded));
}

/// A replica that only an earlier round had does not end this one.
#[test]
fn s2_schedule_rounds_are_judged_apart() {
    let keys =
        json!({"type": "service", "port": 80, "replicas": 2, "schedule": {"cron": "*/10 * * * *"}});
    let mut bed = Bed::new(json!({}), keys);
    bed.set_run(|run| run.next_triggered_at = Some(at(600)));
    bed.step_run(at(600));
    for job in bed.replicas() {
        bed.stand(
            job.id,
            (J::Terminated, Some(Reason::TerminatedByServer)),
            true,
        );
    }
    let only = bed.replicas()[0].id;
    bed.set_run(|run| run.next_triggered_at = Some(at(1200)));
    bed.stand(only, is(J::Running), true);
    bed.set(only, |job| job.submitted_at = at(1200));
    bed.step_run(at(1201));
    assert_eq!(
        (bed.row().status, bed.row().termination_reason),
        (R::Running, None)
    );
}

#[test]
fn s2_stop_and_abort() {
    for (abort, reason) in [(false, End::StoppedByUser), (true, End::AbortedByUser)] {
        for status in [
            R::Pending,
            R::Submitted,
            R::Provisioning,
            R::Running,
            R::Terminating,
        ] {
            let mut bed = nodes(json!({}), &[is(J::Running)]);
            bed.set_run(|run| run.status = status);
            let changes = runs::stop(bed.row(), abort, bed.row().user_id).unwrap();
            bed.world.request(changes, at(1)).unwrap();
            let run = bed.row();
            assert_eq!(
                (run.status, run.termination_reason),
                (R::Terminating, Some(reason)),
                "{status}"
            );
        }
        for status in [R::Terminated, R::Failed, R::Done] {
            let mut bed = nodes(json!({}), &[DONE]);
            bed.set_run(|run| run.status = status);
            assert!(
                runs::stop(bed.row(), abort, bed.row().user_id).is_none(),
                "{status}"
            );
        }
    }
}

#[test]
fn s2_submit_makes_one_job_a_node_and_the_least_of_each_group() {
    let count = |run: Value| {
        let bed = Bed::new(json!({}), run);
        bed.world.jobs_of_run(bed.run).count()
    };
    assert_eq!(count(json!({})), 1);
    assert_eq!(count(json!({"nodes": 3})), 3);
    let service = json!({"type": "service", "port": 80, "replicas": "2..5", "scaling": {"metric": "rps", "target": 1}});
    assert_eq!(count(service), 2);
    let groups = json!([{"replicas": 1, "commands": ["a"]}, {"replicas": 2, "commands": ["b"]}]);
    assert_eq!(
        count(json!({"type": "service", "port": 80, "groups": groups, "commands": []})),
        3
    );
}

#[test]
fn s2_update_in_place_is_taken_over_by_jobs_that_do_not_change() {
    let mut bed = nodes(json!({}), &[is(J::Running)]);
    let id = bed.job(0);
    bed.set_run(|run| {
        run.status = R::Running;
        run.deployment_num = 1;
        run.priority = 7;
    });
    bed.step_run(at(1));
    let job = bed.world.job(id).unwrap();
    assert_eq!((job.deployment_num, job.status), (1, J::Running));
    let view = bed.world.run_view(bed.run, at(1)).unwrap();
    let same = admit::replica(&view.run, &view.defaults, 0, 0).unwrap();
    assert_eq!(same.len(), 1);
}

#[test]
fn s2_a_replica_waits_for_all_addresses_and_the_run_wakes_it() {
    let mut bed = nodes(json!({}), &[is(J::Provisioning), is(J::Provisioning)]);
    bed.step_run(at(1));
    for num in [0, 1] {
        let id = bed.job(num);
        bed.claim(Pipeline::JobsRunning, id.0, at(1));
    }
    let _ = offer(1.0, false);
}

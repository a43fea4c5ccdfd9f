use std::collections::BTreeSet;
use std::path::PathBuf;

use dstack_api::jobs::{JobStatus, JobTerminationReason as Reason};
use dstack_engine::changes::Pipeline;
use dstack_engine::instances::{self, Ask, Plan};
use dstack_engine::job_running::{self, Answer};
use dstack_engine::retry::{self, Verdict};
use dstack_engine::{idle, names};
use serde_json::{Value, json};

use crate::support::{Bed, at, offer};

fn vectors(name: &str) -> Vec<Value> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = root
        .join("../../tests/contract/config-corpus/vectors")
        .join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn lowest_unused_numbers() {
    for case in vectors("lowest-unused-nums.json") {
        let numbers =
            |key: &str| -> Vec<u32> { serde_json::from_value(case[key].clone()).unwrap() };
        let used: BTreeSet<u32> = numbers("used").into_iter().collect();
        let found: Vec<u32> = names::lowest_unused(&used).take(3).collect();
        assert_eq!(found, numbers("first3"), "{case}");
    }
}

#[test]
fn idle_limits() {
    let cases = vectors("termination.json");
    let plain = cases
        .iter()
        .filter(|case| case["idle_duration"].is_null() || case["idle_duration"].is_number());
    for case in plain {
        let limit = idle::limit(
            case["idle_duration"].as_i64(),
            case["default"].as_i64().unwrap(),
        );
        assert_eq!(
            limit.unwrap_or(-1),
            case["idle_time"].as_i64().unwrap(),
            "{case}"
        );
    }
}

#[test]
fn generated_names_are_valid_and_free() {
    let mut ids = dstack_engine::ids::Ids::from_number(4);
    let mut taken = BTreeSet::new();
    for _ in 0..2000 {
        let name = names::generate(&mut ids, |name| taken.contains(name));
        assert!(dstack_api::config::names::is_resource_name(&name), "{name}");
        assert!(taken.insert(name));
    }
}

#[test]
fn policy_ends_are_never_retried_and_time_runs_out() {
    let bed = Bed::new(
        json!({}),
        json!({"retry": {"on_events": ["no-capacity", "error"], "duration": 100}}),
    );
    let run = bed.world.run(bed.run).unwrap();
    let verdict = |reason, ran_until: Option<i64>, now| {
        let mut job = bed.world.job(bed.job(0)).unwrap().clone();
        job.status = JobStatus::Terminating;
        job.termination_reason = Some(reason);
        if let Some(until) = ran_until {
            job.provisioning_data = Some(std::sync::Arc::new(crate::support::machine(
                &offer(1.0, false),
                None,
            )));
            job.finished_at = Some(at(until));
        }
        retry::judge(run, &job, &[&job], at(now))
    };
    for policy in [
        Reason::MaxDurationExceeded,
        Reason::InactivityDurationExceeded,
        Reason::TerminatedByUser,
    ] {
        assert_eq!(verdict(policy, Some(10), 20), Verdict::Fail, "{policy}");
    }
    assert_eq!(verdict(Reason::DoneByRunner, Some(10), 20), Verdict::Fine);
    assert_eq!(
        verdict(Reason::InterruptedByNoCapacity, Some(10), 20),
        Verdict::Fail,
        "not among the events"
    );
    assert_eq!(
        verdict(Reason::FailedToStartDueToNoCapacity, None, 100),
        Verdict::Retry
    );
    assert_eq!(
        verdict(Reason::FailedToStartDueToNoCapacity, None, 101),
        Verdict::TooLate,
        "since submission"
    );
    assert_eq!(
        verdict(Reason::ContainerExitedWithError, Some(50), 150),
        Verdict::Retry,
        "since it ran"
    );
    assert_eq!(
        verdict(Reason::ContainerExitedWithError, Some(50), 151),
        Verdict::TooLate
    );
}

#[test]
fn idle_time_never_takes_a_fleet_below_its_minimum() {
    let idle_among = |living: u32| {
        let mut bed = Bed::new(json!({"nodes": "2..4"}), json!({}));
        let job = bed.job(0);
        bed.place(job, &offer(1.0, false), at(1));
        let mut instance = bed
            .world
            .instances()
            .find(|i| i.busy_blocks > 0)
            .unwrap()
            .clone();
        instance.status = dstack_api::instances::InstanceStatus::Idle;
        instance.busy_blocks = 0;
        instance.idle_limit = Some(60);
        let id = instance.id;
        bed.world.put_instance(instance);
        let mut view = bed.world.instance_view(id, at(1000)).unwrap();
        view.living = living;
        instances::plan(&view, &mut bed.ids)
    };
    assert!(matches!(idle_among(3), Plan::Change(changes) if !changes.is_quiet()));
    assert!(matches!(idle_among(2), Plan::Ask(Ask::Health { .. })));
}

#[test]
fn silence_is_an_interruption_on_spot_and_unreachable_elsewhere() {
    for (spot, reason) in [
        (true, Reason::InterruptedByNoCapacity),
        (false, Reason::InstanceUnreachable),
    ] {
        let policy = json!({"spot_policy": "auto"});
        let mut bed = Bed::new(policy.clone(), policy);
        let id = bed.job(0);
        bed.place(id, &offer(1.0, spot), at(1));
        let mut job = bed.world.job(id).unwrap().clone();
        job.status = JobStatus::Running;
        bed.world.put_job(job);
        let silent = |bed: &mut Bed, now| {
            let view = bed.world.job_running(id, at(now)).unwrap();
            let job_running::Plan::Ask(ask) = job_running::plan(&view) else {
                panic!("the runner is asked")
            };
            let changes =
                job_running::conclude(&view, &ask, &Answer::Unreachable("no route".into()));
            bed.world.request(changes, at(now)).unwrap();
            bed.world.job(id).unwrap().clone()
        };
        assert_eq!(silent(&mut bed, 100).disconnected_at, Some(at(100)));
        assert_eq!(
            silent(&mut bed, 220).status,
            JobStatus::Running,
            "a short gap is forgiven"
        );
        let job = silent(&mut bed, 221);
        assert_eq!(
            (job.status, job.termination_reason),
            (JobStatus::Terminating, Some(reason))
        );
        bed.claim(Pipeline::JobsTerminating, id.0, at(221));
    }
}

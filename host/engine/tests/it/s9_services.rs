//! `lifecycles`, section 9: the number of replicas, rollouts, readiness.

use std::collections::BTreeMap;
use std::path::PathBuf;

use dstack_api::jobs::{JobStatus as J, JobTerminationReason as Reason};
use dstack_api::runs::{RunStatus as R, ServiceSpec};
use dstack_engine::changes::Changes;
use dstack_engine::ids::JobId;
use dstack_engine::job_running::{self, Answer, Ask, GpuSample, Pulled};
use dstack_engine::model::{JobRow, Stop};
use dstack_engine::scaling::{Load, Traffic, desired};
use serde_json::{Value, json};

use crate::support::{Bed, at};

fn rps(replicas: &str) -> Value {
    json!({"replicas": replicas, "scaling": {"metric": "rps", "target": 1, "scale_up_delay": 300, "scale_down_delay": 600}})
}

fn traffic(bed: &mut Bed, requests: u64) {
    let seen = Traffic {
        last_30: requests / 2,
        last_60: requests,
        last_300: requests * 5,
    };
    bed.world.traffic.insert(bed.run, seen);
}

/// All replicas that are on their way run and take requests.
fn all_run(bed: &mut Bed) {
    for job in bed.replicas() {
        if !job.status.is_finished() && job.status != J::Terminating {
            bed.stand(job.id, (J::Running, None), true);
            bed.set(job.id, |job| job.registered = true);
        }
    }
}

/// What ends has ended.
fn all_end(bed: &mut Bed) {
    for job in bed.replicas() {
        if job.status == J::Terminating {
            let status = job.termination_reason.unwrap().status();
            bed.set(job.id, |job| job.status = status);
        }
    }
}

fn active(bed: &Bed) -> Vec<u32> {
    let is_active = |job: &JobRow| !job.status.is_finished() && job.status != J::Terminating;
    bed.replicas()
        .iter()
        .filter(|job| is_active(job))
        .map(|job| job.replica_num)
        .collect()
}

#[test]
fn s9_autoscaler_vectors() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("../../tests/contract/config-corpus/vectors/autoscaler.json");
    let rows: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        let number = |key: &str| u32::try_from(row[key].as_u64().unwrap()).unwrap();
        let scaling = row.get("target").filter(|target| !target.is_null()).map(|target| {
            serde_json::from_value(json!({
                "metric": "rps", "target": target, "window": row["window"],
                "scale_up_delay": row["scale_up_delay"], "scale_down_delay": row["scale_down_delay"],
            }))
            .unwrap()
        });
        let load = Load {
            requests: row["requests_in_window"].as_u64(),
            since_scaled: row["seconds_since_last_scaled"].as_i64(),
        };
        let got = desired(
            (number("min"), number("max")),
            scaling.as_ref(),
            number("current"),
            load,
        );
        assert_eq!(got, number("desired"), "{row}");
    }
}

#[test]
fn s9_scale_up_and_down_with_delays() {
    let mut bed = Bed::service(rps("1..3"));
    assert_eq!(active(&bed), [0]);
    all_run(&mut bed);
    traffic(&mut bed, 150);
    bed.step_run(at(299));
    assert_eq!(active(&bed), [0], "the delay is not over");
    bed.step_run(at(300));
    assert_eq!(active(&bed), [0, 1, 2]);
    assert_eq!(
        bed.row().desired_replicas,
        BTreeMap::from([("0".to_owned(), 3)])
    );
    all_run(&mut bed);
    traffic(&mut bed, 0);
    bed.step_run(at(899));
    assert_eq!(active(&bed), [0, 1, 2]);
    bed.step_run(at(900));
    assert_eq!(active(&bed), [0], "the highest numbers go first");
    let gone = &bed.replicas()[2];
    assert_eq!(gone.termination_reason, Some(Reason::ScaledDown));
    assert_eq!(
        (gone.stop, gone.registered),
        (Stop::Requested, false),
        "drained first"
    );
    all_end(&mut bed);
    traffic(&mut bed, 100);
    bed.step_run(at(1300));
    assert_eq!(active(&bed), [0, 1], "numbers are used again");
    assert_eq!(bed.replicas()[1].submission_num, 1);
}

#[test]
fn s9_no_statistics_no_change() {
    let mut bed = Bed::service(rps("1..3"));
    all_run(&mut bed);
    bed.set_run(|run| run.desired_replicas = BTreeMap::from([("0".to_owned(), 1)]));
    bed.step_run(at(10_000));
    assert_eq!(active(&bed), [0]);
}

#[test]
fn s9_zero_replicas_wait_for_traffic_and_start_at_once() {
    let mut bed = Bed::service(rps("0..2"));
    assert!(active(&bed).is_empty());
    bed.step_run(at(1));
    assert_eq!(
        (bed.row().status, bed.row().resubmission_attempt),
        (R::Pending, 0)
    );
    bed.step_run(at(2));
    assert_eq!(bed.row().status, R::Pending);
    traffic(&mut bed, 1);
    bed.step_run(at(3));
    assert_eq!((bed.row().status, active(&bed)), (R::Submitted, vec![0]));
    all_run(&mut bed);
    traffic(&mut bed, 0);
    bed.step_run(at(700));
    assert!(active(&bed).is_empty());
    all_end(&mut bed);
    bed.step_run(at(701));
    assert_eq!(
        (bed.row().status, bed.row().resubmission_attempt),
        (R::Pending, 0)
    );
}

#[test]
fn s9_the_number_in_the_configuration_counts_at_once_without_scaling() {
    let mut bed = Bed::service(json!({"replicas": 1}));
    all_run(&mut bed);
    for (replicas, wanted) in [(3, vec![0, 1, 2]), (2, vec![0, 1])] {
        configure(&mut bed, json!({"replicas": replicas}));
        bed.step_run(at(10));
        assert_eq!(active(&bed), wanted);
        all_run(&mut bed);
    }
}

/// A new deployment with other keys.
fn configure(bed: &mut Bed, keys: Value) {
    bed.set_run(|run| {
        let mut spec = serde_json::to_value(&*run.spec).unwrap();
        let configuration = spec["configuration"].as_object_mut().unwrap();
        configuration.extend(keys.as_object().unwrap().clone());
        run.spec = std::sync::Arc::new(serde_json::from_value(spec).unwrap());
        run.deployment_num += 1;
    });
}

#[test]
fn s9_removal_order() {
    // In the order of the table: outdated first, then the least advanced, then the highest number.
    let mut bed = Bed::service(json!({"replicas": 5}));
    let ids: Vec<JobId> = bed.replicas().iter().map(|job| job.id).collect();
    bed.stand(ids[0], (J::Running, None), true);
    bed.stand(ids[1], (J::Pulling, None), true);
    bed.stand(ids[3], (J::Running, None), true);
    bed.stand(ids[4], (J::Running, None), true);
    bed.set(ids[4], |job| job.registered = true);
    // 2 is submitted, 1 pulls, 3 and 0 run, 4 has traffic.
    for (left, gone) in [(4, 2), (3, 1), (2, 3), (1, 0)] {
        configure(&mut bed, json!({"replicas": left}));
        bed.step_run(at(10));
        let ended = bed
            .replicas()
            .into_iter()
            .find(|job| job.replica_num == gone)
            .unwrap();
        assert_eq!(
            ended.termination_reason,
            Some(Reason::ScaledDown),
            "replica {gone} of {}",
            left + 1
        );
        assert_eq!(active(&bed).len(), left);
    }
}

#[test]
fn s9_rollout_in_place() {
    let mut bed = Bed::service(json!({"replicas": 2}));
    all_run(&mut bed);
    configure(&mut bed, json!({"priority": 3}));
    bed.step_run(at(1));
    let ids: Vec<u32> = bed
        .replicas()
        .iter()
        .map(|job| job.deployment_num)
        .collect();
    assert_eq!(ids, [1, 1], "nothing restarts");
    assert_eq!(active(&bed), [0, 1]);
}

#[test]
fn s9_rollout_replaces_one_after_the_other() {
    let mut bed = Bed::service(json!({"replicas": 2}));
    all_run(&mut bed);
    configure(&mut bed, json!({"commands": ["new"]}));
    let serving = |bed: &Bed| {
        bed.replicas()
            .iter()
            .filter(|job| job.registered && job.status == J::Running)
            .count()
    };
    let mut rounds = 0;
    while bed
        .replicas()
        .iter()
        .any(|job| job.deployment_num == 0 && !job.status.is_finished())
    {
        bed.step_run(at(rounds));
        let unfinished = bed
            .replicas()
            .iter()
            .filter(|job| !job.status.is_finished())
            .count();
        assert!(unfinished <= 3, "one more than wanted at most");
        assert!(serving(&bed) >= 2, "the service goes on");
        all_run(&mut bed);
        bed.step_run(at(rounds));
        all_end(&mut bed);
        rounds += 1;
        assert!(rounds < 20, "{:?}", bed.replicas());
    }
    assert_eq!(active(&bed).len(), 2);
    for job in bed.replicas().iter().filter(|job| job.status == J::Running) {
        assert_eq!(job.deployment_num, 1);
        assert!(job.spec.commands.iter().any(|part| part.contains("new")));
    }
    bed.step_run(at(rounds));
    assert_eq!(active(&bed).len(), 2, "it is over");
}

#[test]
fn s9_rollout_stops_outdated_replicas_without_traffic_at_once() {
    let mut bed = Bed::service(json!({"replicas": 2}));
    let ids: Vec<JobId> = bed.replicas().iter().map(|job| job.id).collect();
    bed.stand(ids[0], (J::Running, None), true);
    bed.set(ids[0], |job| job.registered = true);
    configure(&mut bed, json!({"commands": ["new"]}));
    bed.step_run(at(1));
    assert_eq!(bed.world.job(ids[0]).unwrap().status, J::Running);
    assert_eq!(
        bed.world.job(ids[1]).unwrap().termination_reason,
        Some(Reason::ScaledDown)
    );
}

#[test]
fn s9_rollout_suspends_scaling() {
    let mut bed = Bed::service(rps("2..9"));
    all_run(&mut bed);
    traffic(&mut bed, 600);
    configure(&mut bed, json!({"commands": ["new"]}));
    bed.set_run(|run| run.desired_replicas = BTreeMap::from([("0".to_owned(), 2)]));
    bed.step_run(at(10));
    assert_eq!(active(&bed).len(), 3);
}

#[test]
fn s9_groups_scale_apart_and_removed_ones_go() {
    let group =
        |name: &str, replicas: u32| json!({"name": name, "replicas": replicas, "commands": [name]});
    let mut bed = Bed::service(json!({"groups": [group("a", 1), group("b", 2)], "commands": []}));
    assert_eq!(active(&bed), [0, 1, 2]);
    all_run(&mut bed);
    configure(&mut bed, json!({"groups": [group("a", 2)]}));
    bed.step_run(at(1));
    let groups: Vec<(u32, String)> = bed
        .replicas()
        .iter()
        .filter(|job| active(&bed).contains(&job.replica_num))
        .map(|job| (job.replica_num, job.spec.replica_group.clone()))
        .collect();
    assert_eq!(groups, [(0, "a".to_owned()), (3, "a".to_owned())]);
    assert_eq!(
        bed.replicas()[1].termination_reason,
        Some(Reason::ScaledDown)
    );
}

fn pulled() -> Answer {
    Answer::Pulled(Pulled {
        stored: true,
        news: false,
        last_updated: 0,
        no_connections_secs: None,
        ended: None,
    })
}

fn pull(bed: &mut Bed, id: JobId, now: i64) -> Changes {
    let view = bed.world.job_running(id, at(now)).unwrap();
    let changes = job_running::conclude(&view, &Ask::Pull { since: 0 }, &pulled());
    bed.world.request(changes.clone(), at(now)).unwrap();
    changes
}

#[test]
fn s9_probes_begin_with_the_job_and_make_it_ready() {
    let probes = json!([{"type": "http", "ready_after": 2}, {"type": "http", "url": "/b"}]);
    let mut bed = Bed::service(json!({"probes": probes}));
    let id = bed.job(0);
    bed.stand(id, (J::Pulling, None), true);
    let view = bed.world.job_running(id, at(1)).unwrap();
    let started = Answer::Started {
        working_dir: None,
        username: None,
    };
    let changes = job_running::conclude(
        &view,
        &Ask::StartRunner(job_running::Cluster::default()),
        &started,
    );
    assert_eq!(changes.new_probes.len(), 2);
    bed.world.request(changes, at(1)).unwrap();
    for (streaks, ready) in [
        (vec![0, 0], false),
        (vec![1, 1], false),
        (vec![2, 0], false),
        (vec![2, 1], true),
    ] {
        bed.world.probes.insert(id, streaks.clone());
        pull(&mut bed, id, 2);
        assert_eq!(bed.world.job(id).unwrap().registered, ready, "{streaks:?}");
    }
    bed.world.probes.insert(id, vec![0, 0]);
    pull(&mut bed, id, 3);
    assert!(
        bed.world.job(id).unwrap().registered,
        "ready never goes back"
    );
    let ends = job_running::conclude(
        &bed.world.job_running(id, at(4)).unwrap(),
        &Ask::TaskInfo,
        &Answer::Impossible("x".into()),
    );
    assert_eq!(ends.end_probes, [id]);
    bed.world.request(ends, at(4)).unwrap();
    assert!(!bed.world.job(id).unwrap().registered);
}

#[test]
fn s9_without_probes_running_is_ready_on_the_next_pass() {
    let mut bed = Bed::service(json!({}));
    let id = bed.job(0);
    bed.stand(id, (J::Running, None), true);
    pull(&mut bed, id, 2);
    assert!(bed.world.job(id).unwrap().registered);
}

#[test]
fn s9_with_a_router_only_the_router_takes_requests_and_gateways_take_for_themselves() {
    let groups = json!([
        {"name": "router", "replicas": 1, "commands": ["r"], "router": {"type": "smg"}},
        {"name": "worker", "replicas": 1, "commands": ["w"]},
    ]);
    let mut bed = Bed::service(json!({"groups": groups, "commands": []}));
    let jobs = bed.replicas();
    for job in &jobs {
        bed.stand(job.id, (J::Running, None), true);
        pull(&mut bed, job.id, 2);
        let registered = bed.world.job(job.id).unwrap().registered;
        assert_eq!(registered, job.spec.replica_group == "router");
    }
    let mut bed = Bed::service(json!({}));
    bed.set_run(|run| {
        let spec: ServiceSpec =
            serde_json::from_value(json!({"url": "https://s.example.com"})).unwrap();
        run.service = Some(std::sync::Arc::new(spec));
    });
    let id = bed.job(0);
    bed.stand(id, (J::Running, None), true);
    pull(&mut bed, id, 2);
    assert!(!bed.world.job(id).unwrap().registered);
}

#[test]
fn s3_running_utilization_policy() {
    let keys = json!({"type": "task", "utilization_policy": {"min_gpu_utilization": 10, "time_window": 300}});
    let sample = |age: i64, percent: &[u64]| GpuSample {
        at: at(1000 - age),
        percent: percent.to_vec(),
    };
    let table: Vec<(&str, Vec<GpuSample>, bool)> = vec![
        ("nothing is known", vec![], false),
        (
            "one GPU idles all the time",
            vec![sample(1, &[90, 3]), sample(290, &[90, 9])],
            true,
        ),
        (
            "each is used once",
            vec![sample(1, &[90, 3]), sample(290, &[90, 10])],
            false,
        ),
        (
            "different ones idle",
            vec![sample(1, &[3, 90]), sample(290, &[90, 3])],
            false,
        ),
        (
            "samples reach back to within 60 s",
            vec![sample(1, &[0]), sample(240, &[0])],
            true,
        ),
        (
            "they do not reach back far enough",
            vec![sample(1, &[0]), sample(239, &[0])],
            false,
        ),
        (
            "use before the window does not count",
            vec![sample(1, &[0]), sample(300, &[0]), sample(301, &[99])],
            true,
        ),
    ];
    for (row, samples, ends) in table {
        let mut bed = Bed::new(json!({}), keys.clone());
        let id = bed.job(0);
        bed.stand(id, (J::Running, None), true);
        bed.world.gpu_load.insert(id, samples);
        let view = bed.world.job_running(id, at(1000)).unwrap();
        let reason = match job_running::plan(&view) {
            job_running::Plan::Change(changes) => changes.jobs[0].termination_reason,
            job_running::Plan::Ask(_) => None,
        };
        let wanted = ends.then_some(Some(Reason::TerminatedDueToUtilizationPolicy));
        assert_eq!(reason, wanted, "{row}");
    }
}

//! The audit is worth nothing if it does not see what it should.

use std::time::Duration;

use dstack_api::jobs::JobStatus;
use dstack_engine::audit;
use dstack_sim::{Faults, Options, Sim};

/// A quiet world some minutes into the day.
fn busy() -> Sim {
    let options = Options {
        instances: 60,
        time: Duration::from_secs(3600),
        seed: 5,
        faults: Faults::NONE,
    };
    let mut sim = Sim::new(options);
    let now = sim.time(900.0);
    sim.run_until(now).expect("a quiet world breaks no rule");
    assert_eq!(audit::world(&sim.world, now), []);
    sim
}

fn rules(sim: &Sim) -> Vec<&'static str> {
    let mut rules: Vec<_> = audit::world(&sim.world, sim.time(900.0))
        .into_iter()
        .map(|broken| broken.rule)
        .collect();
    rules.dedup();
    rules
}

#[test]
fn two_jobs_on_one_block_are_seen() {
    let mut sim = busy();
    let running = |sim: &Sim| -> Vec<_> {
        let alone = |job: &&dstack_engine::model::JobRow| {
            job.status == JobStatus::Running
                && job
                    .instance_id
                    .and_then(|id| sim.world.instance(id))
                    .is_some_and(|i| i.total_blocks == Some(1))
        };
        sim.world.jobs().filter(alone).cloned().collect()
    };
    let jobs = running(&sim);
    let (first, mut second) = (jobs[0].clone(), jobs[1].clone());
    second.instance_id = first.instance_id;
    sim.world.put_job(second);
    assert!(
        rules(&sim).contains(&"one job a block"),
        "{:?}",
        rules(&sim)
    );
}

#[test]
fn a_forgotten_block_is_seen() {
    let mut sim = busy();
    let mut instance = sim
        .world
        .instances()
        .find(|i| i.busy_blocks > 0)
        .unwrap()
        .clone();
    instance.busy_blocks -= 1;
    sim.world.put_instance(instance);
    assert_eq!(rules(&sim), ["blocks"]);
}

#[test]
fn a_lost_machine_is_seen() {
    let mut sim = busy();
    assert_eq!(audit::machines(&sim.world, sim.cloud.machines()), []);
    let mut instance = sim
        .world
        .instances()
        .find(|i| i.provider_ref.is_some())
        .unwrap()
        .clone();
    let lost = instance.provider_ref.take().unwrap();
    sim.world.put_instance(instance);
    let broken = audit::machines(&sim.world, sim.cloud.machines());
    assert_eq!(broken.len(), 1);
    assert!(broken[0].what.contains(&lost), "{broken:?}");
}

#[test]
fn a_finished_run_with_a_living_job_is_seen() {
    let mut sim = busy();
    let job = sim
        .world
        .jobs()
        .find(|job| job.status == JobStatus::Running)
        .unwrap()
        .clone();
    let mut run = sim.world.run(job.run_id).unwrap().clone();
    run.status = dstack_api::runs::RunStatus::Done;
    sim.world.put_run(run);
    assert_eq!(rules(&sim), ["finished run"]);
}

#[test]
fn a_job_submitted_twice_is_seen() {
    let mut sim = busy();
    let job = sim
        .world
        .jobs()
        .find(|job| job.status == JobStatus::Running)
        .unwrap()
        .clone();
    let twin = dstack_engine::admit::again(
        &job,
        dstack_engine::ids::JobId(uuid::Uuid::from_u128(9)),
        0,
        job.submitted_at,
    );
    sim.world.put_job(twin);
    assert_eq!(rules(&sim), ["one submission"]);
}

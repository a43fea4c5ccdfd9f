use std::time::{Duration, Instant};

use dstack_api::instances::InstanceStatus;
use dstack_api::jobs::JobStatus;
use dstack_api::runs::RunStatus;
use dstack_engine::changes::{Changes, Guard, Hint, InstancePatch, JobPatch, Pipeline, RunPatch};
use dstack_engine::model::{InstanceRow, JobRow};
use dstack_store::apply::{self, Refusal};
use dstack_store::lease::{self, Claim, Lease, NEVER};
use dstack_store::{Tx, cleanups, instances, jobs, runs};
use jiff::Timestamp;

use crate::rows;
use crate::support::{TestStore, at, open, open_file};

const HOLD: Duration = Duration::from_secs(30);

fn claim(now: i64, limit: u32) -> Claim {
    Claim {
        now: at(now),
        sent: Instant::now(),
        duration: HOLD,
        limit,
    }
}

/// A store with a run and its submitted job, both due at second 100.
async fn with_job() -> (TestStore, JobRow) {
    with_job_in(open()).await
}

async fn with_job_in(test: TestStore) -> (TestStore, JobRow) {
    let job = test
        .write(|tx| {
            let world = rows::small_world(tx)?;
            runs::insert(tx, &world.run, at(100))?;
            jobs::insert(tx, &world.job, at(100))?;
            Ok(world.job)
        })
        .await
        .unwrap();
    (test, job)
}

async fn claim_one(test: &TestStore, now: i64) -> Option<Lease<dstack_engine::ids::JobId>> {
    test.write(move |tx| lease::claim_jobs_submitted(tx, claim(now, 10)))
        .await
        .unwrap()
        .pop()
}

async fn due(test: &TestStore, now: i64) -> Option<Timestamp> {
    test.read(move |tx| lease::next_due(tx, Pipeline::JobsSubmitted, at(now)))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_row_is_leased_once_and_again_after_the_holder_died() {
    let (test, job) = with_job().await;
    assert!(claim_one(&test, 99).await.is_none(), "not due yet");
    let first = claim_one(&test, 100).await.unwrap();
    assert_eq!(first.id(), job.id);
    assert!(first.remaining() > Duration::from_secs(20));
    assert!(claim_one(&test, 129).await.is_none(), "held");
    let second = claim_one(&test, 130).await.unwrap();

    // The first holder wakes up: it may write nothing, and what it made goes to cleanup.
    let made = rows::cleanup(&job, "abcdefghijklmnop");
    let changes = Changes {
        jobs: vec![JobPatch {
            status: Some(JobStatus::Provisioning),
            ..JobPatch::of(job.id)
        }],
        made: vec![made.clone()],
        ..Changes::default()
    };
    let late = changes.clone();
    let applied = test
        .write(move |tx| apply::apply(tx, first, &late, at(131)))
        .await
        .unwrap();
    assert_eq!(applied.refused, Some(Refusal::LeaseLost));
    assert!(applied.hints.is_empty(), "the row belongs to somebody else");
    let stored = test
        .read(move |tx| jobs::get(tx, job.id))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored, job);
    let queue = test.read(cleanups::all).await.unwrap();
    assert_eq!(queue.iter().map(|it| &it.row).collect::<Vec<_>>(), [&made]);

    let applied = test
        .write(move |tx| apply::apply(tx, second, &changes, at(132)))
        .await
        .unwrap();
    assert!(applied.is_written());
    let stored = test
        .read(move |tx| jobs::get(tx, job.id))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (stored.status, stored.last_processed_at),
        (JobStatus::Provisioning, at(132))
    );
    assert_eq!(
        test.read(cleanups::all).await.unwrap().len(),
        1,
        "what was written is not cleaned up"
    );
}

#[tokio::test]
async fn what_a_dead_server_held_is_due_at_the_next_start() {
    // Only a file is one server's alone; on PostgreSQL the lease runs out.
    let (test, job) = with_job_in(open_file()).await;
    let held = claim_one(&test, 100).await.unwrap();
    assert!(claim_one(&test, 101).await.is_none(), "held");
    let path = test.path();
    let folder = test.folder;
    drop(test.store); // the process ends with the lease in its hands
    let store = dstack_store::Store::open(dstack_store::StoreConfig::file(path)).unwrap();
    let test = TestStore { store, folder };
    let again = claim_one(&test, 101).await.unwrap();
    assert_eq!(again.id(), job.id);
    let late = test
        .write(move |tx| apply::apply(tx, held, &Changes::nothing(), at(102)))
        .await
        .unwrap();
    assert_eq!(late.refused, Some(Refusal::LeaseLost));
}

#[tokio::test]
async fn heartbeats_extend_a_lease_that_is_still_held() {
    let (test, _) = with_job().await;
    let mut first = claim_one(&test, 100).await.unwrap();
    let key = first.key();
    let held = test
        .write(move |tx| lease::extend(tx, &[key], at(120), HOLD))
        .await
        .unwrap();
    assert_eq!(held, [key]);
    first.extended(Instant::now(), HOLD);
    assert!(claim_one(&test, 149).await.is_none(), "extended to 150");
    let second = claim_one(&test, 150).await.unwrap();
    let held = test
        .write(move |tx| lease::extend(tx, &[key], at(151), HOLD))
        .await
        .unwrap();
    assert!(held.is_empty(), "taken by another");
    test.write(move |tx| lease::release(tx, second, at(200)))
        .await
        .unwrap();
    assert_eq!(due(&test, 160).await, Some(at(200)));
}

#[tokio::test]
async fn a_hint_during_a_lease_survives_the_apply() {
    for (extended, hinted) in [(false, false), (false, true), (true, false), (true, true)] {
        let (test, job) = with_job().await;
        let held = claim_one(&test, 100).await.unwrap();
        let key = held.key();
        let applied = test
            .write(move |tx| {
                if hinted {
                    let hint = Hint {
                        pipeline: Pipeline::JobsSubmitted,
                        id: job.id.0,
                    };
                    lease::hint(tx, hint, at(105))?;
                }
                if extended {
                    lease::extend(tx, &[key], at(110), HOLD)?;
                }
                apply::apply(tx, held, &Changes::later(Duration::from_secs(600)), at(112))
            })
            .await
            .unwrap();
        assert!(applied.is_written());
        let expected = if hinted { at(105) } else { at(712) };
        assert_eq!(
            due(&test, 112).await,
            Some(expected),
            "extended {extended}, hinted {hinted}"
        );
    }
}

#[tokio::test]
async fn a_row_without_a_timer_waits_for_its_hint() {
    let (test, job) = with_job().await;
    let held = claim_one(&test, 100).await.unwrap();
    test.write(move |tx| apply::apply(tx, held, &Changes::nothing(), at(101)))
        .await
        .unwrap();
    assert_eq!(due(&test, 101).await, Some(NEVER));
    assert!(claim_one(&test, 1_000_000).await.is_none());
    let hint = Hint {
        pipeline: Pipeline::JobsSubmitted,
        id: job.id.0,
    };
    test.write(move |tx| lease::hint(tx, hint, at(200)))
        .await
        .unwrap();
    assert!(claim_one(&test, 200).await.is_some());
}

#[tokio::test]
async fn a_failed_guard_writes_nothing_and_looks_again_at_once() {
    let (test, job) = with_job().await;
    let held = claim_one(&test, 100).await.unwrap();
    let guard = Guard::RunIs(job.run_id, vec![RunStatus::Running]);
    let mut changes = Changes::later(Duration::from_secs(600));
    changes.guards.push(guard.clone());
    changes.runs.push(RunPatch {
        priority: Some(7),
        ..RunPatch::of(job.run_id)
    });
    let applied = test
        .write(move |tx| apply::apply(tx, held, &changes, at(101)))
        .await
        .unwrap();
    assert_eq!(applied.refused, Some(Refusal::Guard(guard)));
    assert_eq!(
        applied.hints,
        [Hint {
            pipeline: Pipeline::JobsSubmitted,
            id: job.id.0
        }]
    );
    let run = test
        .read(move |tx| runs::get(tx, job.run_id))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(run.priority, 0);
    assert!(claim_one(&test, 101).await.is_some());
}

#[tokio::test]
async fn changes_in_the_middle_keep_the_lease() {
    let (test, job) = with_job().await;
    let held = claim_one(&test, 100).await.unwrap();
    let mut before = Changes::default();
    before.jobs.push(JobPatch {
        released: Some(true),
        ..JobPatch::of(job.id)
    });
    let (applied, held) = test
        .write(move |tx| apply::apply_keeping(tx, held, &before, at(101)))
        .await
        .unwrap();
    assert!(applied.is_written());
    let held = held.unwrap();
    assert!(claim_one(&test, 110).await.is_none());
    let applied = test
        .write(move |tx| apply::apply(tx, held, &Changes::nothing(), at(111)))
        .await
        .unwrap();
    assert!(applied.is_written());
}

#[tokio::test]
async fn urgent_runs_are_placed_first() {
    let test = open();
    let (urgent, first) = test
        .write(|tx| {
            let world = rows::small_world(tx)?;
            let mut ids = Vec::new();
            for (number, priority) in [(10, 0), (11, 90), (12, 50)] {
                let (mut run, job) = rows::run_with_job(&world, number);
                run.priority = priority;
                runs::insert(tx, &run, at(100))?;
                jobs::insert(tx, &job, at(100))?;
                ids.push(job.id);
            }
            Ok((ids[1], ids[2]))
        })
        .await
        .unwrap();
    for expected in [urgent, first] {
        let got = test
            .write(|tx| lease::claim_jobs_submitted(tx, claim(100, 1)))
            .await
            .unwrap();
        assert_eq!(got.iter().map(Lease::id).collect::<Vec<_>>(), [expected]);
    }
}

fn with_instance(
    tx: &mut dyn Tx,
    change: impl FnOnce(&mut InstanceRow),
) -> Result<InstanceRow, dstack_store::DbError> {
    let world = rows::small_world(tx)?;
    let mut instance = world.instance;
    change(&mut instance);
    instances::insert(tx, &instance, at(100))?;
    Ok(instance)
}

#[tokio::test]
async fn two_jobs_cannot_take_the_same_blocks() {
    let test = open();
    let instance = test
        .write(|tx| {
            with_instance(tx, |it| {
                it.status = InstanceStatus::Idle;
                it.total_blocks = Some(4);
            })
        })
        .await
        .unwrap();
    let take = Changes {
        guards: vec![Guard::InstanceHasRoom(instance.id, 3)],
        instances: vec![InstancePatch {
            status: Some(InstanceStatus::Busy),
            busy_blocks_delta: 3,
            ..InstancePatch::of(instance.id)
        }],
        ..Changes::default()
    };
    let again = take.clone();
    assert!(
        test.write(move |tx| apply::apply_request(tx, &take, at(101)))
            .await
            .unwrap()
            .is_written()
    );
    assert!(
        !test
            .write(move |tx| apply::apply_request(tx, &again, at(101)))
            .await
            .unwrap()
            .is_written()
    );
    let stored = test
        .read(move |tx| instances::get(tx, instance.id))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (stored.status, stored.busy_blocks),
        (InstanceStatus::Busy, 3)
    );
}

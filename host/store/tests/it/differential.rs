//! The two interpreters of changes are the same: random worlds, random changes, random timing go through the store and
//! through the engine's in-memory world, and rows, due times, refusals, cleanup and views must come out equal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dstack_api::gateways::GatewayReplicaStatus;
use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::ids::{
    FleetId, GatewayId, GatewayReplicaId, Ids, InstanceId, JobId, RunId, VolumeId,
};
use dstack_engine::world::{self, Project, World};
use dstack_store::apply::{self, Applied, Refusal};
use dstack_store::lease::{self, Claim, Lease};
use dstack_store::views::{self, Known};
use dstack_store::{DbError, Tx, cleanups, fleets, gateways, instances, jobs, runs, volumes};
use jiff::Timestamp;
use uuid::Uuid;

use crate::random_changes::{Made, random_changes};
use crate::support::{at, open, seed};

const HOLD: Duration = Duration::from_secs(30);

/// A lease of the store, whatever its row.
enum Held {
    Run(Lease<RunId>),
    Job(Lease<JobId>),
    Instance(Lease<InstanceId>),
    Fleet(Lease<FleetId>),
    Volume(Lease<VolumeId>),
    Gateway(Lease<GatewayId>),
    Replica(Lease<GatewayReplicaId>),
}

fn claim_all(
    tx: &mut dyn Tx,
    pipeline: Pipeline,
    now: Timestamp,
) -> Result<Vec<(Uuid, Held)>, DbError> {
    let how = Claim {
        now,
        sent: Instant::now(),
        duration: HOLD,
        limit: 10_000,
    };
    Ok(match pipeline {
        Pipeline::Runs => lease::claim_runs(tx, how)?
            .into_iter()
            .map(|it| (it.id().0, Held::Run(it)))
            .collect(),
        Pipeline::JobsSubmitted => as_jobs(lease::claim_jobs_submitted(tx, how)?),
        Pipeline::JobsRunning => as_jobs(lease::claim_jobs_running(tx, how)?),
        Pipeline::JobsTerminating => as_jobs(lease::claim_jobs_terminating(tx, how)?),
        Pipeline::Instances => lease::claim_instances(tx, how)?
            .into_iter()
            .map(|it| (it.id().0, Held::Instance(it)))
            .collect(),
        Pipeline::Fleets => lease::claim_fleets(tx, how)?
            .into_iter()
            .map(|it| (it.id().0, Held::Fleet(it)))
            .collect(),
        Pipeline::Gateways => lease::claim_gateways(tx, how)?
            .into_iter()
            .map(|it| (it.id().0, Held::Gateway(it)))
            .collect(),
        Pipeline::GatewayReplicas => lease::claim_gateway_replicas(tx, how)?
            .into_iter()
            .map(|it| (it.id().0, Held::Replica(it)))
            .collect(),
        Pipeline::Volumes => lease::claim_volumes(tx, how)?
            .into_iter()
            .map(|it| (it.id().0, Held::Volume(it)))
            .collect(),
    })
}

fn as_jobs(leases: Vec<Lease<JobId>>) -> Vec<(Uuid, Held)> {
    leases
        .into_iter()
        .map(|it| (it.id().0, Held::Job(it)))
        .collect()
}

impl Held {
    fn key(&self) -> lease::LeaseKey {
        match self {
            Self::Run(it) => it.key(),
            Self::Job(it) => it.key(),
            Self::Instance(it) => it.key(),
            Self::Fleet(it) => it.key(),
            Self::Volume(it) => it.key(),
            Self::Gateway(it) => it.key(),
            Self::Replica(it) => it.key(),
        }
    }

    fn keep(
        self,
        tx: &mut dyn Tx,
        changes: &Changes,
        now: Timestamp,
    ) -> Result<(Applied, Option<Self>), DbError> {
        Ok(match self {
            Self::Run(it) => {
                let (applied, it) = apply::apply_keeping(tx, it, changes, now)?;
                (applied, it.map(Self::Run))
            }
            Self::Job(it) => {
                let (applied, it) = apply::apply_keeping(tx, it, changes, now)?;
                (applied, it.map(Self::Job))
            }
            Self::Instance(it) => {
                let (applied, it) = apply::apply_keeping(tx, it, changes, now)?;
                (applied, it.map(Self::Instance))
            }
            Self::Fleet(it) => {
                let (applied, it) = apply::apply_keeping(tx, it, changes, now)?;
                (applied, it.map(Self::Fleet))
            }
            Self::Gateway(it) => {
                let (applied, it) = apply::apply_keeping(tx, it, changes, now)?;
                (applied, it.map(Self::Gateway))
            }
            Self::Replica(it) => {
                let (applied, it) = apply::apply_keeping(tx, it, changes, now)?;
                (applied, it.map(Self::Replica))
            }
            Self::Volume(it) => {
                let (applied, it) = apply::apply_keeping(tx, it, changes, now)?;
                (applied, it.map(Self::Volume))
            }
        })
    }

    fn apply(self, tx: &mut dyn Tx, changes: &Changes, now: Timestamp) -> Result<Applied, DbError> {
        match self {
            Self::Run(it) => apply::apply(tx, it, changes, now),
            Self::Job(it) => apply::apply(tx, it, changes, now),
            Self::Instance(it) => apply::apply(tx, it, changes, now),
            Self::Fleet(it) => apply::apply(tx, it, changes, now),
            Self::Volume(it) => apply::apply(tx, it, changes, now),
            Self::Gateway(it) => apply::apply(tx, it, changes, now),
            Self::Replica(it) => apply::apply(tx, it, changes, now),
        }
    }
}

/// Rows that no pipeline looks after any more: the world still offers them, the store does not.
fn is_over(world: &World, pipeline: Pipeline, id: Uuid) -> bool {
    match pipeline {
        Pipeline::Runs => world
            .run(RunId(id))
            .is_none_or(|it| it.status.is_finished()),
        Pipeline::JobsSubmitted | Pipeline::JobsRunning | Pipeline::JobsTerminating => world
            .job(JobId(id))
            .is_none_or(|it| Pipeline::of_job(it.status) != Some(pipeline)),
        Pipeline::Instances => world
            .instance(InstanceId(id))
            .is_none_or(|it| it.status.is_finished()),
        Pipeline::Fleets => world.fleet(FleetId(id)).is_none_or(|it| it.deleted),
        Pipeline::Gateways => world
            .gateway(GatewayId(id))
            .is_none_or(|it| it.is_deleted()),
        Pipeline::GatewayReplicas => !world
            .gateway_replicas()
            .any(|it| it.id.0 == id && it.status != GatewayReplicaStatus::Terminated),
        Pipeline::Volumes => world.volume(VolumeId(id)).is_none_or(|it| it.is_deleted()),
    }
}

fn same_refusal(store: &Option<Refusal>, world: &Result<(), world::Refusal>) -> bool {
    match (store, world) {
        (None, Ok(())) => true,
        (Some(Refusal::LeaseLost), Err(world::Refusal::Stale)) => true,
        (Some(Refusal::Guard(a)), Err(world::Refusal::Guard(b))) => a == b,
        _ => false,
    }
}

/// One random history. Everything runs in one write transaction of the store: the queue is tested elsewhere.
fn history(tx: &mut dyn Tx, seed_number: u64) -> Result<Made, DbError> {
    let (user, project) = seed(tx)?;
    let mut world = World::default();
    world.projects.insert(
        project,
        Project {
            name: "main".into(),
            deleted: false,
        },
    );
    let known = Known {
        limits: Arc::clone(&world.limits),
        defaults: Arc::clone(&world.defaults),
        backends: Arc::new(|_| Arc::default()),
    };
    let mut ids = Ids::from_number(seed_number);
    let mut made = Made::new(user, project);
    let mut now = at(1000);
    let mut held: BTreeMap<(Pipeline, Uuid), (Held, world::Lease)> = BTreeMap::new();

    for step in 0..48 {
        let context = format!("seed {seed_number}, step {step}");
        now = now
            .checked_add(Duration::from_millis(ids.below(12_000)))
            .unwrap();

        // A request from outside.
        let changes = random_changes(&mut ids, &mut made, &world, now);
        let applied = apply::apply_request(tx, &changes, now)?;
        let expected = world.request(changes.clone(), now);
        assert!(
            same_refusal(&applied.refused, &expected),
            "{context}: {applied:?} {expected:?} {changes:#?}"
        );
        made.count(&applied);

        // Both offer the same rows.
        let mut offered: BTreeMap<(Pipeline, Uuid), world::Lease> = BTreeMap::new();
        while let Some(lease) = world.claim(now, HOLD) {
            let key = (lease.pipeline, lease.id);
            if is_over(&world, lease.pipeline, lease.id) {
                // Nobody claims it in the store; a holder from before is of no interest any more.
                held.remove(&key);
            } else {
                offered.insert(key, lease);
            }
        }
        let mut claimed = BTreeMap::new();
        for pipeline in Pipeline::ALL {
            for (id, lease) in claim_all(tx, pipeline, now)? {
                claimed.insert((pipeline, id), lease);
            }
        }
        let (ours, theirs): (BTreeSet<_>, BTreeSet<_>) =
            (claimed.keys().collect(), offered.keys().collect());
        assert_eq!(ours, theirs, "{context}: claims");
        made.claimed += claimed.len();
        for (key, lease) in claimed {
            let twin = offered.remove(&key).unwrap();
            if let Some((stale, stale_twin)) = held.insert(key, (lease, twin)) {
                // The holder before slept too long; it comes back now and must be refused.
                let changes = random_changes(&mut ids, &mut made, &world, now);
                let applied = stale.apply(tx, &changes, now)?;
                let expected = world.apply(&stale_twin, changes, now);
                assert_eq!(applied.refused, Some(Refusal::LeaseLost), "{context}");
                assert_eq!(expected, Err(world::Refusal::Stale), "{context}");
                made.stale += 1;
            }
        }

        // Some holders finish, some send a heartbeat, some sleep.
        for key in held.keys().copied().collect::<Vec<_>>() {
            match ids.below(5) {
                0 | 1 => {
                    let (lease, twin) = held.remove(&key).unwrap();
                    let changes = random_changes(&mut ids, &mut made, &world, now);
                    let applied = lease.apply(tx, &changes, now)?;
                    let expected = world.apply(&twin, changes.clone(), now);
                    assert!(
                        same_refusal(&applied.refused, &expected),
                        "{context}: {key:?} {applied:?} {expected:?} {changes:#?}"
                    );
                    made.count(&applied);
                }
                2 => {
                    let (lease, twin) = &held[&key];
                    let extended = lease::extend(tx, &[lease.key()], now, HOLD)?;
                    let until = now.checked_add(HOLD).unwrap();
                    assert_eq!(
                        !extended.is_empty(),
                        world.heartbeat(twin, until),
                        "{context}: {key:?}"
                    );
                }
                3 => {
                    // In the middle of a step: before its calls, so nothing is made yet; without guards, since a
                    // refusal ends the step anyway.
                    let (lease, twin) = held.remove(&key).unwrap();
                    let mut changes = random_changes(&mut ids, &mut made, &world, now);
                    changes.guards.clear();
                    changes.made.clear();
                    let (applied, lease) = lease.keep(tx, &changes, now)?;
                    let expected = world.checkpoint(&twin, changes, now);
                    assert!(
                        same_refusal(&applied.refused, &expected),
                        "{context}: {key:?}"
                    );
                    made.count(&applied);
                    held.extend(lease.map(|lease| (key, (lease, twin))));
                }
                _ => {}
            }
        }
        if step % 8 == 7 {
            compare_rows(tx, &world, &context)?;
        }
    }
    compare_views(tx, &world, &known, now, seed_number)?;
    compare_cleanup(tx, &world, seed_number)?;
    Ok(made)
}

fn compare_rows(tx: &mut dyn Tx, world: &World, context: &str) -> Result<(), DbError> {
    for row in world.runs() {
        assert_eq!(runs::get(tx, row.id)?.as_ref(), Some(row), "{context}");
        let mut ours: Vec<_> = jobs::of_run(tx, row.id)?;
        ours.sort_by_key(|it| it.id);
        let theirs: Vec<_> = world.jobs_of_run(row.id).cloned().collect();
        assert_eq!(ours, theirs, "{context}: jobs of run {}", row.id);
    }
    for row in world.jobs() {
        assert_eq!(jobs::get(tx, row.id)?.as_ref(), Some(row), "{context}");
    }
    for row in world.instances() {
        assert_eq!(instances::get(tx, row.id)?.as_ref(), Some(row), "{context}");
    }
    for row in world.fleets() {
        assert_eq!(fleets::get(tx, row.id)?.as_ref(), Some(row), "{context}");
    }
    for row in world.volumes() {
        assert_eq!(volumes::get(tx, row.id)?.as_ref(), Some(row), "{context}");
    }
    for row in world.gateways() {
        assert_eq!(gateways::get(tx, row.id)?.as_ref(), Some(row), "{context}");
    }
    for row in world.gateway_replicas() {
        let ours = gateways::replica(tx, row.id)?;
        assert_eq!(ours.as_ref(), Some(row), "{context}");
    }
    let ours = volumes::all_attachments(tx)?;
    let theirs: Vec<_> = world.attachments().cloned().collect();
    assert_eq!(ours, theirs, "{context}: attachments");
    Ok(())
}

/// Views have no equality; their `Debug` text shows every field (only secrets are hidden).
fn same<A: std::fmt::Debug>(ours: &A, theirs: &A, what: &str) {
    assert_eq!(format!("{ours:#?}"), format!("{theirs:#?}"), "{what}");
}

/// Some forty rows of all: a view costs far more to compare than a row.
fn spread<'a, T: 'a>(rows: impl Iterator<Item = &'a T>) -> impl Iterator<Item = &'a T> {
    let rows: Vec<_> = rows.collect();
    let step = (rows.len() / 40).max(1);
    rows.into_iter().step_by(step)
}

fn compare_views(
    tx: &mut dyn Tx,
    world: &World,
    known: &Known,
    now: Timestamp,
    seed: u64,
) -> Result<(), DbError> {
    for row in spread(world.runs()) {
        let mut ours = views::run(tx, row.id, now, known)?;
        if let Some(view) = &mut ours {
            view.jobs.sort_by_key(|it| it.id);
        }
        same(
            &ours,
            &world.run_view(row.id, now),
            &format!("seed {seed}, run"),
        );
    }
    for row in spread(world.jobs()) {
        let ours = views::job_submitted(tx, row.id, now, known)?;
        same(
            &ours,
            &world.job_submitted(row.id, now),
            &format!("seed {seed}, submitted job"),
        );
        let ours = views::job_running(tx, row.id, now, known)?;
        same(
            &ours,
            &world.job_running(row.id, now),
            &format!("seed {seed}, running job"),
        );
        let ours = views::job_terminating(tx, row.id, now, known)?;
        same(
            &ours,
            &world.job_terminating(row.id, now),
            &format!("seed {seed}, terminating job"),
        );
    }
    for row in spread(world.instances()) {
        let ours = views::instance(tx, row.id, now, known)?;
        same(
            &ours,
            &world.instance_view(row.id, now),
            &format!("seed {seed}, instance"),
        );
    }
    for row in spread(world.fleets()) {
        let ours = views::fleet(tx, row.id, now)?;
        same(
            &ours,
            &world.fleet_view(row.id, now),
            &format!("seed {seed}, fleet"),
        );
    }
    for row in spread(world.gateways()) {
        let ours = views::gateway(tx, row.id, now, known)?;
        let theirs = world.gateway_view(row.id, now);
        same(&ours, &theirs, &format!("seed {seed}, gateway"));
    }
    for row in spread(world.gateway_replicas()) {
        let ours = views::gateway_replica(tx, row.id, now, known)?;
        let theirs = world.gateway_replica_view(row.id, now);
        same(&ours, &theirs, &format!("seed {seed}, gateway replica"));
    }
    for row in spread(world.volumes()) {
        let ours = views::volume(tx, row.id, now, known)?;
        same(
            &ours,
            &world.volume_view(row.id, now),
            &format!("seed {seed}, volume"),
        );
    }
    Ok(())
}

fn compare_cleanup(tx: &mut dyn Tx, world: &World, seed: u64) -> Result<(), DbError> {
    let text = |row: &dstack_engine::changes::CleanupRow| format!("{row:?}");
    let mut ours: Vec<_> = cleanups::all(tx)?.iter().map(|it| text(&it.row)).collect();
    let mut theirs: Vec<_> = world.cleanup.iter().map(text).collect();
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs, "seed {seed}: cleanup");
    Ok(())
}

#[tokio::test]
async fn store_and_world_write_the_same() {
    let mut total = Made::new(Uuid::nil().into(), Uuid::nil().into());
    for seed in 0..6 {
        let test = open();
        let made = test.write(move |tx| history(tx, seed)).await.unwrap();
        total.add(&made);
    }
    // The comparison is worth nothing if the histories are empty.
    let Made {
        written,
        guarded,
        stale,
        claimed,
        ..
    } = total;
    assert!(
        written > 200 && guarded > 20 && stale > 20 && claimed > 300,
        "{written} {guarded} {stale} {claimed}"
    );
}

//! Random changes that a database with constraints accepts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dstack_api::fleets::FleetStatus;
use dstack_api::gateways::{GatewayReplicaStatus, GatewayStatus};
use dstack_api::instances::{HealthStatus, InstanceStatus, InstanceTerminationReason};
use dstack_api::jobs::{JobStatus, JobTerminationReason};
use dstack_api::runs::{RunStatus, RunTerminationReason};
use dstack_api::volumes::VolumeStatus;
use dstack_backend_types::{BackendType, VolumeAttachmentData};
use dstack_engine::changes::{
    Actor, Changes, CleanupRow, EventRow, EventTarget, FleetPatch, GatewayPatch,
    GatewayReplicaPatch, Guard, Hint, InstancePatch, JobPatch, MachineRef, NewInstance, Pipeline,
    RunPatch, TargetKind, VolumePatch,
};
use dstack_engine::ids::{
    FleetId, GatewayId, GatewayReplicaId, Ids, InstanceId, JobId, ProjectId, RunId, UserId,
    VolumeId,
};
use dstack_engine::model::{AttachmentRow, CloudAttempt, GatewayReplicaRow, Stop};
use dstack_engine::world::World;
use dstack_store::apply::{Applied, Refusal};
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use crate::rows;

/// What a history has made so far.
pub(crate) struct Made {
    user: UserId,
    project: ProjectId,
    numbers: u128,
    pub(crate) written: usize,
    pub(crate) guarded: usize,
    pub(crate) stale: usize,
    pub(crate) claimed: usize,
}

impl Made {
    pub(crate) fn new(user: UserId, project: ProjectId) -> Self {
        Self {
            user,
            project,
            numbers: 0,
            written: 0,
            guarded: 0,
            stale: 0,
            claimed: 0,
        }
    }

    pub(crate) fn count(&mut self, applied: &Applied) {
        match &applied.refused {
            None => self.written += 1,
            Some(Refusal::Guard(_)) => self.guarded += 1,
            Some(Refusal::LeaseLost) => self.stale += 1,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.written += other.written;
        self.guarded += other.guarded;
        self.stale += other.stale;
        self.claimed += other.claimed;
    }

    fn number(&mut self) -> u128 {
        self.numbers += 1;
        self.numbers
    }
}

fn pick<T: Copy>(ids: &mut Ids, from: &[T]) -> Option<T> {
    let at = usize::try_from(ids.below(u64::try_from(from.len()).unwrap())).unwrap();
    from.get(at).copied()
}

fn sometimes<T>(ids: &mut Ids, make: impl FnOnce(&mut Ids) -> T) -> Option<T> {
    (ids.below(3) == 0).then(|| make(ids))
}

fn some_time(ids: &mut Ids, now: Timestamp) -> Timestamp {
    now.checked_add(Duration::from_micros(ids.below(1_000_000_000)))
        .unwrap()
}

fn small(ids: &mut Ids, end: u64) -> u32 {
    u32::try_from(ids.below(end)).unwrap()
}

/// The rows that changes may name, and now and then one that is not there.
struct Known {
    runs: Vec<RunId>,
    jobs: Vec<JobId>,
    instances: Vec<InstanceId>,
    fleets: Vec<FleetId>,
    volumes: Vec<VolumeId>,
    gateways: Vec<GatewayId>,
    replicas: Vec<GatewayReplicaId>,
}

impl Known {
    fn of(world: &World) -> Self {
        Self {
            runs: world.runs().map(|it| it.id).collect(),
            jobs: world.jobs().map(|it| it.id).collect(),
            instances: world.instances().map(|it| it.id).collect(),
            fleets: world.fleets().map(|it| it.id).collect(),
            volumes: world.volumes().map(|it| it.id).collect(),
            gateways: world.gateways().map(|it| it.id).collect(),
            replicas: world.gateway_replicas().map(|it| it.id).collect(),
        }
    }
}

pub(crate) fn random_changes(
    ids: &mut Ids,
    made: &mut Made,
    world: &World,
    now: Timestamp,
) -> Changes {
    let known = Known::of(world);
    let mut changes = Changes::default();
    if ids.below(4) > 0 {
        changes.look_again = Some(Duration::from_millis(ids.below(60_000)));
    }
    if ids.below(4) == 0 {
        changes.guards.extend(guard(ids, &known));
    }
    new_rows(ids, made, world, &known, &mut changes, now);
    patches(ids, world, &known, &mut changes, now);
    if ids.below(8) == 0 {
        changes.delete_jobs.extend(pick(ids, &known.jobs));
    }
    if ids.below(8) == 0 {
        changes.freed.extend(pick(ids, &known.fleets));
    }
    if ids.below(6) == 0 {
        changes.made.push(cleanup(ids, made, now));
    }
    if ids.below(12) == 0 {
        changes.cleanup.push(cleanup(ids, made, now));
    }
    if let Some(job) = pick(ids, &known.jobs).filter(|_| ids.below(8) == 0) {
        changes.events.push(EventRow {
            message: "something happened".to_owned(),
            targets: vec![EventTarget {
                kind: TargetKind::Job,
                project_id: made.project,
                id: job.0,
                name: "job".into(),
            }],
            actor: if ids.below(2) == 0 {
                Actor::System
            } else {
                Actor::User(made.user)
            },
        });
    }
    hints(ids, world, &known, &mut changes);
    changes
}

fn guard(ids: &mut Ids, known: &Known) -> Option<Guard> {
    let unknown = ids.below(10) == 0;
    Some(match ids.below(11) {
        0 => Guard::RunIs(
            pick(ids, &known.runs)?,
            vec![pick(ids, RunStatus::ALL)?, pick(ids, RunStatus::ALL)?],
        ),
        1 => Guard::JobIs(
            pick(ids, &known.jobs)?,
            vec![pick(ids, JobStatus::ALL)?, pick(ids, JobStatus::ALL)?],
        ),
        2 => Guard::InstanceIs(
            pick(ids, &known.instances)?,
            vec![pick(ids, InstanceStatus::ALL)?],
        ),
        3 => Guard::InstanceHasRoom(pick(ids, &known.instances)?, small(ids, 3)),
        4 if unknown => Guard::InstanceUnused(InstanceId(Uuid::max())),
        4 => Guard::InstanceUnused(pick(ids, &known.instances)?),
        5 => Guard::FleetHasRoom(
            pick(ids, &known.fleets)?,
            sometimes(ids, |ids| small(ids, 6)),
        ),
        6 => Guard::FleetHasMoreThan(pick(ids, &known.fleets)?, small(ids, 4)),
        7 => Guard::FleetUnused(pick(ids, &known.fleets)?),
        8 => Guard::VolumeFree(pick(ids, &known.volumes)?, ids.below(2) == 0),
        9 => Guard::VolumeUnused(pick(ids, &known.volumes)?),
        _ if unknown => Guard::LatestSubmission(JobId(Uuid::max())),
        _ => Guard::LatestSubmission(pick(ids, &known.jobs)?),
    })
}

fn new_rows(
    ids: &mut Ids,
    made: &mut Made,
    world: &World,
    known: &Known,
    changes: &mut Changes,
    now: Timestamp,
) {
    // Enough for every rule; more would only take longer.
    if known.jobs.len() + known.instances.len() > 100 {
        return;
    }
    if known.fleets.is_empty() || ids.below(40) == 0 {
        let mut fleet = rows::fleet(made.project, made.number());
        if ids.below(2) == 0 {
            fleet.spec = Arc::new(rows::parsed(json!({
                "configuration": {"type": "fleet", "nodes": {"min": 1, "max": 3}, "placement": "cluster"},
                "profile": {"name": "default"},
            })));
        }
        changes.new_fleets.push(fleet);
    }
    let name = format!("vol-{}", ids.below(4));
    if !world.volumes().any(|it| *it.name == *name) && ids.below(3) == 0 {
        let mut volume = rows::volume(made.user, made.project, made.number(), &name);
        volume.status = pick(ids, VolumeStatus::ALL).unwrap();
        changes.new_volumes.push(volume);
    }
    if ids.below(12) == 0 {
        let number = made.number();
        changes
            .new_gateways
            .push(rows::gateway(made.project, number));
    }
    if let Some(gateway) = pick(ids, &known.gateways).filter(|_| ids.below(6) == 0) {
        let mut replica = rows::gateway_replica(made.project, gateway, made.number());
        replica.replica_num = small(ids, 3);
        replica.created_at = some_time(ids, now);
        changes.new_gateway_replicas.push(replica);
    }
    if ids.below(12) == 0 {
        let number = made.number();
        let mut run = rows::run(made.user, made.project, number);
        run.status = pick(ids, RunStatus::ALL).unwrap();
        run.fleet_id = sometimes(ids, |ids| pick(ids, &known.fleets)).flatten();
        run.last_processed_at = now;
        for replica in 0..2 {
            for job_num in 0..2 {
                let mut job = rows::job(&run, made.number());
                job.replica_num = replica;
                job.job_num = job_num;
                let mut spec = (*job.spec).clone();
                spec.jobs_per_replica = 2;
                spec.volumes = Some(rows::parsed(json!([
                    {"name": ["vol-0", "vol-1"], "path": "/a"}, {"name": "vol-2", "path": "/b"},
                ])));
                job.spec = Arc::new(spec);
                changes.new_jobs.push(job);
            }
        }
        changes.new_runs.push(run);
    }
    if let Some(old) = pick(ids, &known.jobs)
        .filter(|_| ids.below(12) == 0)
        .and_then(|id| world.job(id))
    {
        // A retry. Numbers of deleted submissions are not used again, so that the key stays unique.
        let mut job = old.clone();
        let number = made.number();
        job.id = JobId(Uuid::from_u128(number));
        job.submission_num = u32::try_from(number).unwrap();
        job.status = pick(ids, JobStatus::ALL).unwrap();
        changes.new_jobs.push(job);
    }
    if let Some(fleet) = pick(ids, &known.fleets)
        .filter(|_| ids.below(6) == 0)
        .and_then(|id| world.fleet(id))
    {
        let number = made.number();
        let mut row = rows::instance(fleet, number, 1000 + u32::try_from(number).unwrap());
        row.created_at = some_time(ids, now);
        row.status = pick(ids, InstanceStatus::ALL).unwrap();
        row.total_blocks = sometimes(ids, |_| 4);
        row.owner_job = sometimes(ids, |ids| pick(ids, &known.jobs)).flatten();
        row.offer = sometimes(ids, |ids| Arc::new(rows::parsed(rows::offer(price(ids)))));
        row.provisioning_data =
            sometimes(ids, |ids| Arc::new(rows::parsed(rows::machine(price(ids)))));
        changes.new_instances.push(NewInstance {
            row,
            number_it: ids.below(2) == 0,
        });
    }
}

fn price(ids: &mut Ids) -> f64 {
    f64::from(small(ids, 8)) / 4.0 + 0.1
}

fn patches(ids: &mut Ids, world: &World, known: &Known, changes: &mut Changes, now: Timestamp) {
    if ids.below(10) == 0 {
        changes.jobs.push(JobPatch {
            blocks: Some(1),
            ..JobPatch::of(JobId(Uuid::max()))
        });
    }
    if let Some(id) = pick(ids, &known.runs).filter(|_| ids.below(3) == 0) {
        let spec = world.run(id).map(|it| Arc::clone(&it.spec));
        changes.runs.push(RunPatch {
            // What is over stays over.
            status: sometimes(ids, |ids| pick(ids, RunStatus::ALL).unwrap())
                .filter(|_| world.run(id).is_some_and(|it| !it.status.is_finished())),
            termination_reason: sometimes(ids, |ids| {
                sometimes(ids, |_| RunTerminationReason::JobFailed)
            }),
            fleet_id: sometimes(ids, |ids| pick(ids, &known.fleets)),
            spec: spec.filter(|_| ids.below(3) == 0).map(|old| {
                let mut spec = (*old).clone();
                spec.ssh_key_pub = Some(format!("ssh-ed25519 {}", ids.below(100)));
                Arc::new(spec)
            }),
            next_triggered_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
            resubmission_attempt: sometimes(ids, |ids| small(ids, 9)),
            deployment_num: sometimes(ids, |ids| small(ids, 9)),
            priority: sometimes(ids, |ids| i64::from(small(ids, 100))),
            desired_replicas: sometimes(ids, |ids| {
                BTreeMap::from([("0".to_owned(), small(ids, 4))])
            }),
            capacity_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
            deleted: sometimes(ids, |ids| ids.below(2) == 0),
            ..RunPatch::of(id)
        });
    }
    for _ in 0..ids.below(3) {
        changes
            .jobs
            .extend(pick(ids, &known.jobs).map(|id| job_patch(ids, known, id, now)));
        if let Some(id) = pick(ids, &known.instances)
            && changes.instances.iter().all(|it| it.id != id)
        {
            let mut patch = instance_patch(ids, known, id, now);
            patch.status = patch.status.filter(|next| {
                world
                    .instance(id)
                    .is_some_and(|it| it.status.is_active() || it.status.can_become(*next))
            });
            changes.instances.push(patch);
        }
    }
    if let Some(id) = pick(ids, &known.volumes).filter(|_| ids.below(3) == 0) {
        changes.volumes.push(volume_patch(ids, id, now));
    }
    if let Some(id) = pick(ids, &known.gateways).filter(|_| ids.below(3) == 0) {
        changes.gateways.push(gateway_patch(ids, id, now));
    }
    if let Some(id) = pick(ids, &known.replicas).filter(|_| ids.below(3) == 0) {
        let is_over = |it: &GatewayReplicaRow| it.status == GatewayReplicaStatus::Terminated;
        let over = world
            .gateway_replicas()
            .find(|it| it.id == id)
            .is_some_and(is_over);
        let mut patch = replica_patch(ids, id, now);
        patch.status = patch.status.filter(|_| !over);
        changes.gateway_replicas.push(patch);
    }
    holds(ids, world, known, changes, now);
    if let Some(id) = pick(ids, &known.fleets).filter(|_| ids.below(5) == 0) {
        let spec = world.fleet(id).map(|it| Arc::clone(&it.spec));
        changes.fleets.push(FleetPatch {
            // Mostly living fleets, else there is nothing left to place in.
            status: sometimes(ids, |ids| pick(ids, FleetStatus::ALL).unwrap()),
            status_message: sometimes(ids, |ids| {
                sometimes(ids, |_| "it's \\ \"quoted\"".to_owned())
            }),
            spec: spec.filter(|_| ids.below(3) == 0),
            consolidation_attempt: sometimes(ids, |ids| small(ids, 15)),
            consolidated_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
            deleted: (ids.below(12) == 0).then_some(true),
            ..FleetPatch::of(id)
        });
    }
}

fn volume_patch(ids: &mut Ids, id: VolumeId, now: Timestamp) -> VolumePatch {
    VolumePatch {
        status: sometimes(ids, |ids| pick(ids, VolumeStatus::ALL).unwrap()),
        status_message: sometimes(ids, |ids| sometimes(ids, |_| "no".to_owned())),
        last_job_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        attempted_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        provisioning_data: sometimes(ids, |ids| {
            sometimes(ids, |ids| Arc::new(rows::parsed(rows::disk(price(ids)))))
        }),
        delete_asked: sometimes(ids, |ids| ids.below(4) == 0),
        first_end_failure_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        // What is deleted stays deleted.
        deleted_at: (ids.below(12) == 0).then(|| Some(some_time(ids, now))),
        ..VolumePatch::of(id)
    }
}

fn gateway_patch(ids: &mut Ids, id: GatewayId, now: Timestamp) -> GatewayPatch {
    GatewayPatch {
        status: sometimes(ids, |ids| pick(ids, GatewayStatus::ALL).unwrap()),
        status_message: sometimes(ids, |ids| sometimes(ids, |_| "no".to_owned())),
        attempted_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        load_balancer: sometimes(ids, |ids| {
            sometimes(ids, |_| {
                Arc::new(rows::parsed(json!({"hostname": "lb.example.com"})))
            })
        }),
        scale_attempt: sometimes(ids, |ids| small(ids, 15)),
        scaled_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        delete_asked: sometimes(ids, |ids| ids.below(4) == 0),
        first_end_failure_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        deleted_at: (ids.below(12) == 0).then(|| Some(some_time(ids, now))),
        ..GatewayPatch::of(id)
    }
}

fn replica_patch(ids: &mut Ids, id: GatewayReplicaId, now: Timestamp) -> GatewayReplicaPatch {
    GatewayReplicaPatch {
        status: sometimes(ids, |ids| pick(ids, GatewayReplicaStatus::ALL).unwrap()),
        status_message: sometimes(ids, |ids| sometimes(ids, |_| "no".to_owned())),
        attempted_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        provisioning_data: sometimes(ids, |ids| {
            sometimes(ids, |_| {
                let machine =
                    json!({"instance_id": "i-1", "ip_address": "10.0.0.1", "region": "eu"});
                Arc::new(rows::parsed(machine))
            })
        }),
        connect_tries: sometimes(ids, |ids| small(ids, 30)),
        registered: sometimes(ids, |ids| ids.below(2) == 0),
        first_end_failure_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        ..GatewayReplicaPatch::of(id)
    }
}

/// Jobs take volumes and let go of them.
fn holds(ids: &mut Ids, world: &World, known: &Known, changes: &mut Changes, now: Timestamp) {
    let held: Vec<_> = world.attachments().collect();
    if let Some(row) = pick(ids, &held).filter(|_| ids.below(3) == 0) {
        changes.detached.push((row.volume_id, row.job_id));
    }
    let (volume, job) = (pick(ids, &known.volumes), pick(ids, &known.jobs));
    let instance = pick(ids, &known.instances);
    if let (Some(volume_id), Some(job_id), Some(instance_id)) = (volume, job, instance) {
        changes.attachments.push(AttachmentRow {
            volume_id,
            job_id,
            instance_id,
            data: sometimes(ids, |ids| VolumeAttachmentData {
                device_name: sometimes(ids, |_| "/dev/sdf".to_owned()),
            }),
            detach_began_at: sometimes(ids, |ids| some_time(ids, now)),
        });
    }
}

fn job_patch(ids: &mut Ids, known: &Known, id: JobId, now: Timestamp) -> JobPatch {
    JobPatch {
        status: sometimes(ids, |ids| pick(ids, JobStatus::ALL).unwrap()),
        termination_reason: sometimes(ids, |ids| {
            sometimes(ids, |ids| pick(ids, JobTerminationReason::ALL).unwrap())
        }),
        termination_reason_message: sometimes(ids, |ids| {
            sometimes(ids, |_| "because\nof this".to_owned())
        }),
        exit_status: sometimes(ids, |ids| {
            sometimes(ids, |ids| i64::from(small(ids, 255)) - 100)
        }),
        instance_id: sometimes(ids, |ids| pick(ids, &known.instances)),
        deployment_num: sometimes(ids, |ids| small(ids, 4)),
        started_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        finished_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        stop: sometimes(ids, |ids| {
            pick(
                ids,
                &[Stop::Hard, Stop::Requested, Stop::Sent, Stop::Removed],
            )
            .unwrap()
        }),
        remove_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        provisioning_data: sometimes(ids, |ids| {
            sometimes(ids, |ids| Arc::new(rows::parsed(rows::machine(price(ids)))))
        }),
        runtime_data: sometimes(ids, |ids| {
            sometimes(ids, |ids| {
                Arc::new(rows::parsed(
                    json!({"network_mode": "bridge", "ports": {"10022": 1024 + ids.below(1000)}}),
                ))
            })
        }),
        blocks: sometimes(ids, |ids| small(ids, 4)),
        runner_timestamp: sometimes(ids, |ids| i64::try_from(ids.below(1 << 50)).unwrap()),
        disconnected_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        inactivity_secs: sometimes(ids, |ids| sometimes(ids, |ids| i64::from(small(ids, 1000)))),
        released: sometimes(ids, |ids| ids.below(2) == 0),
        registered: sometimes(ids, |ids| ids.below(2) == 0),
        ..JobPatch::of(id)
    }
}

fn instance_patch(ids: &mut Ids, known: &Known, id: InstanceId, now: Timestamp) -> InstancePatch {
    InstancePatch {
        status: sometimes(ids, |ids| pick(ids, InstanceStatus::ALL).unwrap()),
        unreachable: sometimes(ids, |ids| ids.below(2) == 0),
        health: sometimes(ids, |ids| pick(ids, HealthStatus::ALL).unwrap()),
        termination_reason: sometimes(ids, |ids| {
            sometimes(ids, |_| InstanceTerminationReason::IdleTimeout)
        }),
        termination_reason_message: sometimes(ids, |ids| {
            sometimes(ids, |_| "too long idle".to_owned())
        }),
        started_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        finished_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        last_job_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        idle_limit: sometimes(ids, |ids| sometimes(ids, |ids| i64::from(small(ids, 1000)))),
        give_up_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        first_end_failure_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        health_checked_at: sometimes(ids, |ids| sometimes(ids, |ids| some_time(ids, now))),
        attempt: sometimes(ids, |ids| {
            sometimes(ids, |ids| CloudAttempt {
                provider_ref: ids.provider_ref(),
                places: vec![(BackendType::AWS, "eu".to_owned())],
                started_at: some_time(ids, now),
            })
        }),
        provider_ref: sometimes(ids, |ids| sometimes(ids, Ids::provider_ref)),
        provisioning_data: sometimes(ids, |ids| {
            sometimes(ids, |ids| Arc::new(rows::parsed(rows::machine(price(ids)))))
        }),
        offer: sometimes(ids, |ids| {
            sometimes(ids, |ids| Arc::new(rows::parsed(rows::offer(price(ids)))))
        }),
        total_blocks: sometimes(ids, |ids| sometimes(ids, |ids| small(ids, 5))),
        busy_blocks_delta: i32::try_from(ids.below(5)).unwrap() - 2,
        owner_job: sometimes(ids, |ids| pick(ids, &known.jobs)),
        deleted: (ids.below(12) == 0).then_some(true),
        ..InstancePatch::of(id)
    }
}

fn cleanup(ids: &mut Ids, made: &Made, now: Timestamp) -> CleanupRow {
    CleanupRow {
        project_id: made.project,
        backend: BackendType::GCP,
        region: "eu".to_owned(),
        provider_ref: ids.provider_ref(),
        machine: sometimes(ids, |ids| MachineRef {
            instance_id: format!("i-{}", ids.below(1000)),
            backend_data: sometimes(ids, |_| "{}".to_owned()),
        }),
        not_before: some_time(ids, now),
    }
}

/// Hints to the pipeline that a row will be in once the changes are written.
fn hints(ids: &mut Ids, world: &World, known: &Known, changes: &mut Changes) {
    for _ in 0..ids.below(4) {
        let hint = match ids.below(5) {
            0 => pick(ids, &known.runs).map(|id| Hint {
                pipeline: Pipeline::Runs,
                id: id.0,
            }),
            1 => pick(ids, &known.instances).map(|id| Hint {
                pipeline: Pipeline::Instances,
                id: id.0,
            }),
            2 => pick(ids, &known.fleets).map(|id| Hint {
                pipeline: Pipeline::Fleets,
                id: id.0,
            }),
            3 => pick(ids, &known.volumes).map(|id| Hint {
                pipeline: Pipeline::Volumes,
                id: id.0,
            }),
            _ => pick(ids, &known.jobs).and_then(|id| {
                let patched = changes
                    .jobs
                    .iter()
                    .filter(|it| it.id == id)
                    .filter_map(|it| it.status)
                    .next_back();
                let status = patched.or_else(|| world.job(id).map(|it| it.status))?;
                let gone = changes.delete_jobs.contains(&id);
                Some(Hint {
                    pipeline: Pipeline::of_job(status)?,
                    id: id.0,
                })
                .filter(|_| !gone)
            }),
        };
        changes.hints.extend(hint);
    }
}

//! What must hold in every world, whatever happened before.
//!
//! | rule | meaning |
//! |---|---|
//! | blocks | busy blocks are at most the blocks, and exactly what the unfinished jobs on the machine hold |
//! | one job a block | a machine's jobs hold no more blocks than there are; an idle machine has none |
//! | finished run | has only finished jobs |
//! | finished job | holds nothing |
//! | one submission | of a job, at most one is neither finished nor terminating |
//! | placed job | names an instance and knows its machine |
//! | price, duration | no machine above `max_price`; no job runs far beyond `max_duration` |
//! | fleet | no more living machines than `nodes.max`; numbers are unique |
//! | volume | an unfinished job that names it has it; a disk is on one machine; a deleted one is on none |
//! | machine | whatever a provider has belongs to a row, or waits for cleanup |

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dstack_api::instances::InstanceStatus;
use dstack_api::jobs::JobStatus;
use jiff::Timestamp;
use uuid::Uuid;

use crate::changes::Pipeline;
use crate::ids::{FleetId, InstanceId, JobId, RunId, VolumeId};
use crate::job_running::{secs, signed};
use crate::model::{InstanceRow, JobRow};
use crate::spec;
use crate::world::World;

/// A rule that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Broken {
    /// Its name.
    pub rule: &'static str,
    /// What breaks it.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// A machine that a provider has, as told by the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The reference on its resources.
    pub provider_ref: String,
    /// The provider's id.
    pub instance_id: String,
}

/// How much later than its limit a job may end: the step's own cadence and a paused replica.
const LATE: i64 = 300;

/// Checks the whole world.
pub fn world(world: &World, now: Timestamp) -> Vec<Broken> {
    let mut broken = Vec::new();
    for instance in world.instances() {
        check_instance(world, instance, &mut broken);
    }
    for job in world.jobs() {
        check_job(world, job, now, &mut broken);
    }
    for run in world.runs() {
        check_run(world, run.id, &mut broken);
    }
    for fleet in world.fleets() {
        check_fleet(world, fleet.id, &mut broken);
    }
    for volume in world.volumes() {
        check_volume(world, volume.id, &mut broken);
    }
    broken
}

/// Checks what these rows are part of.
pub fn touched(world: &World, rows: &BTreeSet<(Pipeline, Uuid)>, now: Timestamp) -> Vec<Broken> {
    let mut broken = Vec::new();
    for (pipeline, id) in rows {
        match pipeline {
            Pipeline::Runs => check_run(world, RunId(*id), &mut broken),
            Pipeline::Fleets | Pipeline::Gateways | Pipeline::GatewayReplicas => {}
            Pipeline::Volumes => check_volume(world, VolumeId(*id), &mut broken),
            Pipeline::Instances => {
                if let Some(instance) = world.instance(InstanceId(*id)) {
                    check_instance(world, instance, &mut broken);
                }
            }
            Pipeline::JobsSubmitted | Pipeline::JobsRunning | Pipeline::JobsTerminating => {
                if let Some(job) = world.job(JobId(*id)) {
                    check_job(world, job, now, &mut broken);
                    if let Some(instance) = job.instance_id.and_then(|id| world.instance(id)) {
                        check_instance(world, instance, &mut broken);
                    }
                }
            }
        }
    }
    broken
}

/// Checks that nobody lost a machine.
pub fn machines<'a>(world: &World, machines: impl Iterator<Item = &'a Machine>) -> Vec<Broken> {
    let mut known: BTreeSet<&str> = world
        .cleanup
        .iter()
        .map(|row| row.provider_ref.as_str())
        .collect();
    for instance in world.instances() {
        // The row of a terminated instance protects nothing: its machine must be gone.
        if instance.status != InstanceStatus::Terminated {
            known.extend(instance.provider_ref.as_deref());
            known.extend(
                instance
                    .attempt
                    .as_ref()
                    .map(|attempt| attempt.provider_ref.as_str()),
            );
        }
    }
    machines
        .filter(|machine| !known.contains(machine.provider_ref.as_str()))
        .map(|machine| Broken {
            rule: "machine",
            what: format!(
                "{} (ref {}) belongs to nobody",
                machine.instance_id, machine.provider_ref
            ),
        })
        .collect()
}

fn check_instance(world: &World, instance: &InstanceRow, broken: &mut Vec<Broken>) {
    let mut say = |rule, what: String| {
        broken.push(Broken {
            rule,
            what: format!("{}: {what}", instance.name),
        })
    };
    let total = instance.total_blocks.unwrap_or(0);
    let held: u32 = world.jobs_on(instance.id).map(|job| job.blocks).sum();
    if instance.busy_blocks > total {
        say(
            "blocks",
            format!("{} of {total} blocks are busy", instance.busy_blocks),
        );
    }
    if held != instance.busy_blocks {
        say(
            "blocks",
            format!("{} blocks are busy, jobs hold {held}", instance.busy_blocks),
        );
    }
    if held > total {
        say(
            "one job a block",
            format!("jobs hold {held} of {total} blocks"),
        );
    }
    if instance.status == InstanceStatus::Idle && held > 0 {
        say("one job a block", format!("idle with {held} blocks held"));
    }
    if instance.status == InstanceStatus::Terminated
        && !instance.deleted
        && instance.ssh_host.is_none()
    {
        say("terminated", "the row still counts".into());
    }
}

fn check_job(world: &World, job: &JobRow, now: Timestamp, broken: &mut Vec<Broken>) {
    let mut say = |rule, what: String| {
        broken.push(Broken {
            rule,
            what: format!("{}: {what}", job.name),
        })
    };
    if job.status.is_finished() {
        if job.blocks > 0 {
            say(
                "finished job",
                format!("{} holds {} blocks", job.status, job.blocks),
            );
        }
        return;
    }
    if matches!(
        job.status,
        JobStatus::Provisioning | JobStatus::Pulling | JobStatus::Running
    ) {
        if job.instance_id.is_none() || job.blocks == 0 {
            say(
                "placed job",
                format!("{} without a share of an instance", job.status),
            );
        }
        let price = job
            .provisioning_data
            .as_ref()
            .map_or(0.0, |data| data.price);
        if let Some(max) = job.spec.requirements.max_price.filter(|max| price > *max) {
            say(
                "price",
                format!("runs for {price} an hour, the limit is {max}"),
            );
        }
    }
    if job.status == JobStatus::Running
        && let (Some(max), Some(started)) =
            (job.spec.max_duration.filter(|max| *max > 0), job.started_at)
    {
        let limit = max + signed(world.limits.max_duration_grace) + LATE;
        let ran = secs(now, started);
        if ran > limit {
            say("duration", format!("runs for {ran} s, the limit is {max}"));
        }
    }
    if job.status != JobStatus::Terminating {
        let twin = world.jobs_of_run(job.run_id).find(|other| {
            other.id != job.id
                && (other.replica_num, other.job_num) == (job.replica_num, job.job_num)
                && !other.status.is_finished()
                && other.status != JobStatus::Terminating
        });
        if let Some(twin) = twin {
            say(
                "one submission",
                format!(
                    "submissions {} and {} are active",
                    job.submission_num, twin.submission_num
                ),
            );
        }
    }
}

fn check_run(world: &World, id: RunId, broken: &mut Vec<Broken>) {
    let Some(run) = world.run(id).filter(|run| run.status.is_finished()) else {
        return;
    };
    for job in world
        .jobs_of_run(id)
        .filter(|job| !job.status.is_finished())
    {
        broken.push(Broken {
            rule: "finished run",
            what: format!(
                "{} is {}, its job {} is {}",
                run.name, run.status, job.name, job.status
            ),
        });
    }
}

fn check_volume(world: &World, id: VolumeId, broken: &mut Vec<Broken>) {
    let Some(volume) = world.volume(id) else {
        return;
    };
    let mut say = |what: String| {
        broken.push(Broken {
            rule: "volume",
            what: format!("{}: {what}", volume.name),
        })
    };
    let holds = world.holds_of(id).count();
    if volume.is_deleted() && holds > 0 {
        say(format!("deleted, and {holds} jobs have it"));
    }
    if volume.is_exclusive() && holds > 1 {
        say(format!("{holds} jobs have one disk"));
    }
    for hold in world.holds_of(id) {
        if world
            .job(hold.job_id)
            .is_none_or(|job| job.status.is_finished())
        {
            say(format!("held by {}, which is over", hold.job_id));
        }
    }
}

fn check_fleet(world: &World, id: FleetId, broken: &mut Vec<Broken>) {
    let Some(fleet) = world.fleet(id) else { return };
    let living: Vec<&InstanceRow> = world.instances_of(id).filter(|i| i.is_living()).collect();
    let count = u32::try_from(living.len()).unwrap_or(u32::MAX);
    if let Some(max) = spec::nodes_max(&fleet.spec).filter(|max| count > *max) {
        broken.push(Broken {
            rule: "fleet",
            what: format!("{} has {count} machines, at most {max}", fleet.name),
        });
    }
    let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
    for instance in living {
        *numbers.entry(instance.instance_num).or_default() += 1;
    }
    for (number, times) in numbers.into_iter().filter(|(_, times)| *times > 1) {
        broken.push(Broken {
            rule: "fleet",
            what: format!("{} has {times} machines number {number}", fleet.name),
        });
    }
}

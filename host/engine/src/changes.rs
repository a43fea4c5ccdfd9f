//! What a decision wants written, as data.
//!
//! Two interpreters exist: `store` turns [`Changes`] into SQL inside one transaction guarded by the lease of
//! the row that was decided on, and the in-memory [`World`](crate::world::World) turns them into map updates.
//! Both follow the same rules:
//!
//! 1. The lease must still be held, and every [`Guard`] must hold *inside the transaction*; else nothing is
//!    written, the row becomes due at once, and [`Changes::made`] goes to cleanup.
//! 2. New rows, then patches, then deletions, then events. In a patch `None` leaves a column alone; for
//!    columns that may be null, `Some(None)` writes null. `last_processed_at` of every patched row and of the
//!    leased row becomes `now`.
//! 3. The leased row is due again `look_again` from now; `None` means that no timer is needed (hints still
//!    wake it). A [`Hint`] makes its row due at once, in the same transaction, and wakes its pipeline after
//!    the commit. A hint that arrives while the row is leased must survive the apply: claiming pushes the due
//!    time far away, a hint pulls it to now, and applying writes the *earlier* of the stored due time and
//!    `now + look_again`.
//! 4. [`Changes`] of a `Provision` plan's `before` are written the same way, but the lease is kept.

mod patches;

use std::sync::Arc;
use std::time::Duration;

use dstack_api::instances::InstanceStatus;
use dstack_api::jobs::JobStatus;
use dstack_api::runs::RunStatus;
use dstack_backend_types::BackendType;
use jiff::Timestamp;
use uuid::Uuid;

use crate::ids::{
    FleetId, GatewayId, GatewayReplicaId, InstanceId, JobId, ProjectId, RunId, UserId, VolumeId,
};
use crate::model::{
    AttachmentRow, FleetRow, GatewayReplicaRow, GatewayRow, InstanceRow, JobRow, RunRow, VolumeRow,
};

pub use patches::{
    FleetPatch, GatewayPatch, GatewayReplicaPatch, InstancePatch, JobPatch, RunPatch, VolumePatch,
};

/// Everything that one decision wants written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Changes {
    /// What must still be true in the transaction.
    pub guards: Vec<Guard>,
    /// New runs.
    pub new_runs: Vec<RunRow>,
    /// New jobs.
    pub new_jobs: Vec<JobRow>,
    /// New instances.
    pub new_instances: Vec<NewInstance>,
    /// New fleets.
    pub new_fleets: Vec<FleetRow>,
    /// New volumes.
    pub new_volumes: Vec<VolumeRow>,
    /// New gateways.
    pub new_gateways: Vec<GatewayRow>,
    /// New machines of gateways.
    pub new_gateway_replicas: Vec<GatewayReplicaRow>,
    /// Changed runs.
    pub runs: Vec<RunPatch>,
    /// Changed jobs.
    pub jobs: Vec<JobPatch>,
    /// Changed instances.
    pub instances: Vec<InstancePatch>,
    /// Changed fleets.
    pub fleets: Vec<FleetPatch>,
    /// Changed volumes.
    pub volumes: Vec<VolumePatch>,
    /// Changed gateways.
    pub gateways: Vec<GatewayPatch>,
    /// Changed machines of gateways.
    pub gateway_replicas: Vec<GatewayReplicaPatch>,
    /// New and changed holds on volumes, whole; one for each volume and job.
    pub attachments: Vec<AttachmentRow>,
    /// Holds on volumes that are over.
    pub detached: Vec<(VolumeId, JobId)>,
    /// Old submissions that nobody needs any more.
    pub delete_jobs: Vec<JobId>,
    /// What happened, for people.
    pub events: Vec<EventRow>,
    /// Rows whose next step has become useful.
    pub hints: Vec<Hint>,
    /// Readiness probes that begin, due at once, with a streak of 0.
    pub new_probes: Vec<NewProbe>,
    /// Jobs whose probes are not asked any more.
    pub end_probes: Vec<JobId>,
    /// Fleets in which a machine, a part of one, or room for one turned free. Of the runs of the fleet's project that
    /// are pending between two tries ([`RunRow::resubmission_attempt`] above 0) and were not woken yet, the first
    /// [`WOKEN`], by priority and then age, get `capacity_at` = now and are hinted.
    pub freed: Vec<FleetId>,
    /// When to look at the leased row again; `None` means only after a hint.
    pub look_again: Option<Duration>,
    /// What may exist at a provider and nobody tracks any more; written to the cleanup queue.
    pub cleanup: Vec<CleanupRow>,
    /// What the calls of this step made. Ignored when the changes are written; goes to the cleanup queue
    /// when they are refused.
    pub made: Vec<CleanupRow>,
}

impl Changes {
    /// Nothing but to look again after `delay`.
    pub fn later(delay: Duration) -> Self {
        Self {
            look_again: Some(delay),
            ..Self::default()
        }
    }

    /// Nothing at all: the row waits for a hint.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Wakes the pipeline of a row.
    pub fn hint(&mut self, pipeline: Pipeline, id: impl Into<RowId>) {
        let hint = Hint {
            pipeline,
            id: id.into().0,
        };
        if !self.hints.contains(&hint) {
            self.hints.push(hint);
        }
    }

    /// Whether nothing would be written but the time of the next look.
    pub fn is_quiet(&self) -> bool {
        let quiet = Self {
            guards: Vec::new(),
            look_again: None,
            made: Vec::new(),
            ..self.clone()
        };
        quiet == Self::default()
    }
}

/// How many waiting runs a freed machine wakes: more than it can take, since not every run fits, but not thousands.
pub const WOKEN: u32 = 8;

/// A readiness probe of a job that has just begun to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewProbe {
    /// The job.
    pub job_id: JobId,
    /// Its position in the job's specification.
    pub num: u32,
}

/// A condition that is checked in the transaction that writes. Decisions are made on a view that may be
/// seconds old; guards are what makes two decisions about the same row safe against each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// The run has one of these statuses.
    RunIs(RunId, Vec<RunStatus>),
    /// The job has one of these statuses.
    JobIs(JobId, Vec<JobStatus>),
    /// The instance has one of these statuses and is not deleted.
    InstanceIs(InstanceId, Vec<InstanceStatus>),
    /// The instance is idle or busy, reachable, not deleted, and at least this many blocks are free.
    InstanceHasRoom(InstanceId, u32),
    /// No job holds a block of the instance.
    InstanceUnused(InstanceId),
    /// The fleet is active, and has fewer than this many instances that are neither terminating nor
    /// terminated (nor deleted). `None`: only that it is active.
    FleetHasRoom(FleetId, Option<u32>),
    /// The fleet has more than this many instances that are neither terminating nor terminated, so that one
    /// may go and `nodes.min` still holds.
    FleetHasMoreThan(FleetId, u32),
    /// No instance of the fleet has a job, is a placeholder, or is being provisioned for one.
    FleetUnused(FleetId),
    /// The run has no submission of this job with a higher number yet.
    LatestSubmission(JobId),
    /// The volume is active and nobody wants it gone. With `true` no job may have it either.
    VolumeFree(VolumeId, bool),
    /// No job has the volume.
    VolumeUnused(VolumeId),
}

/// A new instance row.
#[derive(Debug, Clone, PartialEq)]
pub struct NewInstance {
    /// The row. `instance_num` and `name` are placeholders when `number_it` is set.
    pub row: InstanceRow,
    /// Take the lowest number (from 0) that no not-deleted, not-terminated instance of the fleet has, at
    /// the moment of writing, and name it `<fleet name>-<number>`.
    pub number_it: bool,
}

/// Which pipeline to wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pipeline {
    /// Runs that are not finished.
    Runs,
    /// Submitted jobs.
    JobsSubmitted,
    /// Provisioning, pulling, running jobs.
    JobsRunning,
    /// Terminating jobs.
    JobsTerminating,
    /// Instances that are not terminated.
    Instances,
    /// Fleets that are not deleted.
    Fleets,
    /// Volumes that are not deleted.
    Volumes,
    /// Gateways that are not deleted.
    Gateways,
    /// Machines of gateways that are not terminated.
    GatewayReplicas,
}

impl Pipeline {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Runs,
        Self::JobsSubmitted,
        Self::JobsRunning,
        Self::JobsTerminating,
        Self::Instances,
        Self::Fleets,
        Self::Volumes,
        Self::Gateways,
        Self::GatewayReplicas,
    ];

    /// Its name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::JobsSubmitted => "jobs_submitted",
            Self::JobsRunning => "jobs_running",
            Self::JobsTerminating => "jobs_terminating",
            Self::Instances => "instances",
            Self::Fleets => "fleets",
            Self::Volumes => "volumes",
            Self::Gateways => "gateways",
            Self::GatewayReplicas => "gateway_replicas",
        }
    }

    /// The pipeline that looks after a job of this status; `None` for finished ones.
    pub const fn of_job(status: JobStatus) -> Option<Self> {
        match status {
            JobStatus::Submitted => Some(Self::JobsSubmitted),
            JobStatus::Provisioning | JobStatus::Pulling | JobStatus::Running => {
                Some(Self::JobsRunning)
            }
            JobStatus::Terminating => Some(Self::JobsTerminating),
            JobStatus::Terminated | JobStatus::Aborted | JobStatus::Failed | JobStatus::Done => {
                None
            }
        }
    }
}

/// The id of any row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowId(pub Uuid);

macro_rules! row_id {
    ($($name:ident),+) => {$(
        impl From<$name> for RowId {
            fn from(id: $name) -> Self {
                Self(id.0)
            }
        }
    )+};
}
row_id!(
    RunId,
    JobId,
    InstanceId,
    FleetId,
    VolumeId,
    GatewayId,
    GatewayReplicaId
);

/// A row whose next step has become useful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hint {
    /// Whose it is.
    pub pipeline: Pipeline,
    /// The row.
    pub id: Uuid,
}

/// Something that may exist at a provider without anybody tracking it. The cleanup task deletes it, or finds
/// that it never existed; it is idempotent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CleanupRow {
    /// The project whose credentials reach it.
    pub project_id: ProjectId,
    /// The backend that may have made it.
    pub backend: BackendType,
    /// Where.
    pub region: String,
    /// What stands on its resources.
    pub provider_ref: String,
    /// The machine itself, when its id is known.
    pub machine: Option<MachineRef>,
    /// Not before this time: a call that got no answer may still be at work.
    pub not_before: Timestamp,
}

/// A machine as `terminate_instance` wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineRef {
    /// The provider's id.
    pub instance_id: String,
    /// The backend's own notes.
    pub backend_data: Option<String>,
}

/// Who caused an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// The server itself.
    System,
    /// A user, by the API.
    User(UserId),
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetKind {
    /// A run.
    Run,
    /// A job submission.
    Job,
    /// An instance.
    Instance,
    /// A fleet.
    Fleet,
    /// A volume.
    Volume,
    /// A gateway.
    Gateway,
    /// One machine of a gateway.
    GatewayReplica,
}

impl TargetKind {
    /// Its word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Job => "job",
            Self::Instance => "instance",
            Self::Fleet => "fleet",
            Self::Volume => "volume",
            Self::Gateway => "gateway",
            Self::GatewayReplica => "gateway-replica",
        }
    }
}

/// One thing that an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTarget {
    /// What it is.
    pub kind: TargetKind,
    /// Its project.
    pub project_id: ProjectId,
    /// Its id.
    pub id: Uuid,
    /// Its name at that time.
    pub name: Arc<str>,
}

/// Something that happened, for people. Recorded at the time of the apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// One line, without a final stop.
    pub message: String,
    /// What it is about; the first is the main one.
    pub targets: Vec<EventTarget>,
    /// Who caused it.
    pub actor: Actor,
}

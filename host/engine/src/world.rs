//! The in-memory world: all rows, their leases and due times, and both halves of the contract with decisions:
//! views are loaded from it, changes are applied to it.
//!
//! The simulator runs on it. It follows the rules of [`changes`](crate::changes) to the letter, so that what is
//! proved on it holds for the database, whose interpreter is compared with this one by tests.

mod apply;
mod index;
mod load;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use crate::admit::JobDefaults;
use crate::changes::{CleanupRow, EventRow, Guard, Pipeline};
use crate::ids::{
    FleetId, GatewayId, GatewayReplicaId, InstanceId, JobId, ProjectId, RunId, VolumeId,
};
use crate::model::{
    AttachmentRow, FleetRow, GatewayReplicaRow, GatewayRow, InstanceRow, JobRow, RunRow, VolumeRow,
};
use crate::view::{BackendAbilities, Limits};
use index::FleetIndex;

/// A project as decisions see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Its name.
    pub name: Arc<str>,
    /// It is deleted.
    pub deleted: bool,
}

/// Proof that a row was claimed. Only [`World::claim`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Whose row it is.
    pub pipeline: Pipeline,
    /// The row.
    pub id: Uuid,
    token: u64,
}

/// Why changes were not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The lease is over: somebody else has the row, or had it.
    Stale,
    /// A guard does not hold any more.
    Guard(Guard),
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    due: Option<Timestamp>,
    lease: Option<(u64, Timestamp)>,
}

impl Slot {
    fn wakes_at(&self) -> Option<Timestamp> {
        match self.lease {
            Some((_, expires)) => Some(expires),
            None => self.due,
        }
    }
}

/// All rows.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// Projects.
    pub projects: BTreeMap<ProjectId, Project>,
    /// The backends of every project.
    pub backends: Arc<Vec<BackendAbilities>>,
    /// Limits.
    pub limits: Arc<Limits>,
    /// What is filled into specifications.
    pub defaults: Arc<JobDefaults>,
    /// The newest events, at most [`World::KEPT_EVENTS`].
    pub events: VecDeque<(Timestamp, EventRow)>,
    /// What waits for cleanup.
    pub cleanup: Vec<CleanupRow>,
    /// Successes in a row of each probe of a job, by its number.
    pub probes: BTreeMap<JobId, Vec<u32>>,
    /// What is known of the requests to services.
    pub traffic: BTreeMap<RunId, crate::scaling::Traffic>,
    /// How busy the GPUs of jobs were, newest first.
    pub gpu_load: BTreeMap<JobId, Vec<crate::job_running::GpuSample>>,
    waiting: BTreeMap<ProjectId, BTreeSet<(std::cmp::Reverse<i64>, Timestamp, RunId)>>,
    runs: BTreeMap<RunId, RunRow>,
    jobs: BTreeMap<JobId, JobRow>,
    instances: BTreeMap<InstanceId, InstanceRow>,
    fleets: BTreeMap<FleetId, Arc<FleetRow>>,
    volumes: BTreeMap<VolumeId, Arc<VolumeRow>>,
    attachments: BTreeMap<(VolumeId, JobId), AttachmentRow>,
    gateways: BTreeMap<GatewayId, Arc<GatewayRow>>,
    gateway_replicas: BTreeMap<GatewayReplicaId, GatewayReplicaRow>,
    jobs_of_run: BTreeMap<RunId, BTreeSet<JobId>>,
    jobs_of_instance: BTreeMap<InstanceId, BTreeSet<JobId>>,
    active_runs_of_fleet: BTreeMap<FleetId, BTreeSet<RunId>>,
    index: BTreeMap<FleetId, FleetIndex>,
    slots: BTreeMap<(Pipeline, Uuid), Slot>,
    queue: BTreeSet<(Timestamp, Pipeline, Uuid)>,
    touched: BTreeSet<(Pipeline, Uuid)>,
    tokens: u64,
}

impl World {
    /// How many events are kept.
    pub const KEPT_EVENTS: usize = 50;

    /// All runs.
    pub fn runs(&self) -> impl Iterator<Item = &RunRow> {
        self.runs.values()
    }

    /// All job submissions.
    pub fn jobs(&self) -> impl Iterator<Item = &JobRow> {
        self.jobs.values()
    }

    /// All instances, deleted ones included.
    pub fn instances(&self) -> impl Iterator<Item = &InstanceRow> {
        self.instances.values()
    }

    /// All fleets, deleted ones included.
    pub fn fleets(&self) -> impl Iterator<Item = &FleetRow> {
        self.fleets.values().map(AsRef::as_ref)
    }

    /// All volumes, deleted ones included.
    pub fn volumes(&self) -> impl Iterator<Item = &VolumeRow> {
        self.volumes.values().map(AsRef::as_ref)
    }

    /// All holds on volumes.
    pub fn attachments(&self) -> impl Iterator<Item = &AttachmentRow> {
        self.attachments.values()
    }

    /// A gateway.
    pub fn gateway(&self, id: GatewayId) -> Option<&Arc<GatewayRow>> {
        self.gateways.get(&id)
    }

    /// All gateways, deleted ones included.
    pub fn gateways(&self) -> impl Iterator<Item = &GatewayRow> {
        self.gateways.values().map(AsRef::as_ref)
    }

    /// All machines of gateways, terminated ones included.
    pub fn gateway_replicas(&self) -> impl Iterator<Item = &GatewayReplicaRow> {
        self.gateway_replicas.values()
    }

    /// A volume.
    pub fn volume(&self, id: VolumeId) -> Option<&Arc<VolumeRow>> {
        self.volumes.get(&id)
    }

    /// The holds on a volume.
    pub fn holds_of(&self, id: VolumeId) -> impl Iterator<Item = &AttachmentRow> {
        let (first, last) = (JobId(Uuid::nil()), JobId(Uuid::max()));
        self.attachments
            .range((id, first)..=(id, last))
            .map(|(_, row)| row)
    }

    /// A run.
    pub fn run(&self, id: RunId) -> Option<&RunRow> {
        self.runs.get(&id)
    }

    /// A job submission.
    pub fn job(&self, id: JobId) -> Option<&JobRow> {
        self.jobs.get(&id)
    }

    /// An instance.
    pub fn instance(&self, id: InstanceId) -> Option<&InstanceRow> {
        self.instances.get(&id)
    }

    /// A fleet.
    pub fn fleet(&self, id: FleetId) -> Option<&Arc<FleetRow>> {
        self.fleets.get(&id)
    }

    /// The submissions of a run.
    pub fn jobs_of_run(&self, id: RunId) -> impl Iterator<Item = &JobRow> {
        self.jobs_of_run
            .get(&id)
            .into_iter()
            .flatten()
            .filter_map(|job| self.jobs.get(job))
    }

    /// The jobs that name an instance and are not finished.
    pub fn jobs_on(&self, id: InstanceId) -> impl Iterator<Item = &JobRow> {
        self.jobs_of_instance
            .get(&id)
            .into_iter()
            .flatten()
            .filter_map(|job| self.jobs.get(job))
    }

    /// The instances of a fleet that are not deleted.
    pub fn instances_of(&self, id: FleetId) -> impl Iterator<Item = &InstanceRow> {
        self.index
            .get(&id)
            .into_iter()
            .flat_map(|i| &i.all)
            .filter_map(|i| self.instances.get(i))
    }

    /// Instances of a fleet that are neither terminating nor terminated.
    pub fn living(&self, id: FleetId) -> u32 {
        self.index.get(&id).map_or(0, |index| index.living)
    }

    /// When the next row wants to be claimed; a time in the past means now.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.queue.first().map(|(at, _, _)| *at)
    }

    /// Claims the row that has been due for the longest time, or whose lease ended.
    pub fn claim(&mut self, now: Timestamp, lease_for: Duration) -> Option<Lease> {
        let (at, pipeline, id) = *self.queue.first()?;
        if at > now {
            return None;
        }
        self.tokens += 1;
        let token = self.tokens;
        let expires = now.saturating_add(lease_for).unwrap_or(now);
        // A hint that comes while the row is leased sets the due time again; see the rules of `changes`.
        self.set_slot(
            (pipeline, id),
            Slot {
                due: None,
                lease: Some((token, expires)),
            },
        );
        Some(Lease {
            pipeline,
            id,
            token,
        })
    }

    /// Extends a lease, as a heartbeat does. False when it is lost.
    pub fn heartbeat(&mut self, lease: &Lease, until: Timestamp) -> bool {
        let key = (lease.pipeline, lease.id);
        match self.slots.get(&key) {
            Some(slot) if slot.lease.is_some_and(|(token, _)| token == lease.token) => {
                let slot = Slot {
                    lease: Some((lease.token, until)),
                    ..*slot
                };
                self.set_slot(key, slot);
                true
            }
            _ => false,
        }
    }

    /// The rows that were written since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<(Pipeline, Uuid)> {
        std::mem::take(&mut self.touched)
    }

    /// The longest time that a due row has been waiting without being claimed.
    pub fn oldest_wait(&self, now: Timestamp) -> Duration {
        let waits = self.queue.first().map(|(at, _, _)| now.duration_since(*at));
        waits
            .and_then(|wait| Duration::try_from(wait).ok())
            .unwrap_or_default()
    }

    fn set_slot(&mut self, key: (Pipeline, Uuid), slot: Slot) {
        if let Some(at) = self.slots.get(&key).and_then(Slot::wakes_at) {
            self.queue.remove(&(at, key.0, key.1));
        }
        if let Some(at) = slot.wakes_at() {
            self.queue.insert((at, key.0, key.1));
        }
        self.slots.insert(key, slot);
    }

    fn drop_slot(&mut self, key: (Pipeline, Uuid)) {
        if let Some(at) = self.slots.remove(&key).as_ref().and_then(Slot::wakes_at) {
            self.queue.remove(&(at, key.0, key.1));
        }
    }
}

//! Changes become rows.

use std::sync::Arc;

use dstack_api::fleets::FleetStatus;
use dstack_api::runs::RunStatus;
use dstack_api::volumes::VolumeStatus;
use jiff::Timestamp;
use uuid::Uuid;

use super::{Lease, Refusal, Slot, World};
use crate::changes::{
    Changes, FleetPatch, GatewayPatch, GatewayReplicaPatch, Guard, InstancePatch, JobPatch,
    NewInstance, Pipeline, RunPatch, VolumePatch, WOKEN,
};
use crate::ids::{FleetId, GatewayId, GatewayReplicaId, InstanceId, JobId, RunId, VolumeId};
use crate::model::{FleetRow, InstanceRow, JobRow, RunRow};

/// Where a run stands in the queue of those that a free machine wakes; `None` if it does not wait for one.
fn waiting_key(run: &RunRow) -> Option<(std::cmp::Reverse<i64>, Timestamp, RunId)> {
    let waits = run.status == RunStatus::Pending
        && run.resubmission_attempt > 0
        && run.capacity_at.is_none()
        && !run.deleted;
    waits.then_some((std::cmp::Reverse(run.priority), run.submitted_at, run.id))
}

macro_rules! set {
    ($row:ident, $patch:ident, $($field:ident),+) => {$(
        if let Some(value) = &$patch.$field {
            $row.$field = value.clone();
        }
    )+};
}

impl World {
    /// Writes changes and frees the lease.
    ///
    /// # Errors
    /// [`Refusal`] when nothing was written; what the calls made is then in the cleanup queue.
    pub fn apply(
        &mut self,
        lease: &Lease,
        changes: Changes,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let key = (lease.pipeline, lease.id);
        if let Err(refusal) = self.check(Some(lease), &changes) {
            self.cleanup.extend(changes.made);
            if refusal != Refusal::Stale {
                self.set_slot(
                    key,
                    Slot {
                        due: Some(now),
                        lease: None,
                    },
                );
            }
            return Err(refusal);
        }
        let timer = changes
            .look_again
            .map(|delay| now.saturating_add(delay).unwrap_or(now));
        let hinted = self.slots.get(&key).and_then(|slot| slot.due);
        let due = match (hinted, timer) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.set_slot(key, Slot { due, lease: None });
        self.stamp(key, now);
        self.write(changes, now);
        Ok(())
    }

    /// Writes changes and keeps the lease.
    ///
    /// # Errors
    /// [`Refusal`] when nothing was written.
    pub fn checkpoint(
        &mut self,
        lease: &Lease,
        changes: Changes,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        self.check(Some(lease), &changes)?;
        self.write(changes, now);
        Ok(())
    }

    /// Writes changes that come from a request, not from a pipeline.
    ///
    /// # Errors
    /// [`Refusal::Guard`] when nothing was written.
    pub fn request(&mut self, changes: Changes, now: Timestamp) -> Result<(), Refusal> {
        self.check(None, &changes)?;
        self.write(changes, now);
        Ok(())
    }

    fn check(&self, lease: Option<&Lease>, changes: &Changes) -> Result<(), Refusal> {
        if let Some(lease) = lease {
            let slot = self.slots.get(&(lease.pipeline, lease.id));
            if slot
                .and_then(|slot| slot.lease)
                .is_none_or(|(token, _)| token != lease.token)
            {
                return Err(Refusal::Stale);
            }
        }
        match changes.guards.iter().find(|guard| !self.holds(guard)) {
            Some(guard) => Err(Refusal::Guard(guard.clone())),
            None => Ok(()),
        }
    }

    fn holds(&self, guard: &Guard) -> bool {
        match guard {
            Guard::RunIs(id, any) => self
                .runs
                .get(id)
                .is_some_and(|run| any.contains(&run.status)),
            Guard::JobIs(id, any) => self
                .jobs
                .get(id)
                .is_some_and(|job| any.contains(&job.status)),
            Guard::InstanceIs(id, any) => self
                .instances
                .get(id)
                .is_some_and(|i| !i.deleted && any.contains(&i.status)),
            Guard::InstanceHasRoom(id, blocks) => self.instances.get(id).is_some_and(|i| {
                !i.deleted
                    && !i.unreachable
                    && i.status.is_available()
                    && i.free_blocks() >= *blocks
            }),
            Guard::InstanceUnused(id) => self.instances.get(id).is_some_and(|i| i.busy_blocks == 0),
            Guard::FleetHasRoom(id, max) => {
                let active = |fleet: &Arc<FleetRow>| {
                    !fleet.deleted
                        && matches!(fleet.status, FleetStatus::Active | FleetStatus::Submitted)
                };
                self.fleets.get(id).is_some_and(active)
                    && max.is_none_or(|max| self.living(*id) < max)
            }
            Guard::FleetHasMoreThan(id, min) => self.living(*id) > *min,
            Guard::FleetUnused(id) => {
                self.index.get(id).is_none_or(|index| index.used == 0)
                    && self
                        .active_runs_of_fleet
                        .get(id)
                        .is_none_or(|runs| runs.is_empty())
            }
            Guard::VolumeFree(id, alone) => self.volumes.get(id).is_some_and(|volume| {
                volume.status == VolumeStatus::Active
                    && !volume.delete_asked
                    && !volume.is_deleted()
                    && (!alone || self.holds_of(*id).next().is_none())
            }),
            Guard::VolumeUnused(id) => self.holds_of(*id).next().is_none(),
            Guard::LatestSubmission(id) => self.jobs.get(id).is_some_and(|job| {
                !self.jobs_of_run(job.run_id).any(|other| {
                    other.replica_num == job.replica_num
                        && other.job_num == job.job_num
                        && other.submission_num > job.submission_num
                })
            }),
        }
    }

    fn stamp(&mut self, key: (Pipeline, Uuid), now: Timestamp) {
        match key.0 {
            Pipeline::Runs => {
                if let Some(run) = self.runs.get_mut(&RunId(key.1)) {
                    run.last_processed_at = now;
                }
            }
            Pipeline::Instances => {
                if let Some(instance) = self.instances.get_mut(&InstanceId(key.1)) {
                    instance.last_processed_at = now;
                }
            }
            Pipeline::Fleets => {
                if let Some(fleet) = self.fleets.get_mut(&FleetId(key.1)) {
                    Arc::make_mut(fleet).last_processed_at = now;
                }
            }
            Pipeline::Gateways => {
                if let Some(gateway) = self.gateways.get_mut(&GatewayId(key.1)) {
                    Arc::make_mut(gateway).last_processed_at = now;
                }
            }
            Pipeline::GatewayReplicas => {
                let id = GatewayReplicaId(key.1);
                if let Some(replica) = self.gateway_replicas.get_mut(&id) {
                    replica.last_processed_at = now;
                }
            }
            Pipeline::Volumes => {
                if let Some(volume) = self.volumes.get_mut(&VolumeId(key.1)) {
                    Arc::make_mut(volume).last_processed_at = now;
                }
            }
            Pipeline::JobsSubmitted | Pipeline::JobsRunning | Pipeline::JobsTerminating => {
                if let Some(job) = self.jobs.get_mut(&JobId(key.1)) {
                    job.last_processed_at = now;
                }
            }
        }
    }

    fn write(&mut self, changes: Changes, now: Timestamp) {
        for fleet in changes.new_fleets {
            self.hint((Pipeline::Fleets, fleet.id.0), now);
            self.touched.insert((Pipeline::Fleets, fleet.id.0));
            self.fleets.insert(fleet.id, Arc::new(fleet));
        }
        for volume in changes.new_volumes {
            self.hint((Pipeline::Volumes, volume.id.0), now);
            self.touched.insert((Pipeline::Volumes, volume.id.0));
            self.volumes.insert(volume.id, Arc::new(volume));
        }
        for gateway in changes.new_gateways {
            self.hint((Pipeline::Gateways, gateway.id.0), now);
            self.gateways.insert(gateway.id, Arc::new(gateway));
        }
        for replica in changes.new_gateway_replicas {
            self.hint((Pipeline::GatewayReplicas, replica.id.0), now);
            self.gateway_replicas.insert(replica.id, replica);
        }
        for run in changes.new_runs {
            self.hint((Pipeline::Runs, run.id.0), now);
            self.put_run(run);
        }
        for job in changes.new_jobs {
            if let Some(pipeline) = Pipeline::of_job(job.status) {
                self.hint((pipeline, job.id.0), now);
            }
            self.put_job(job);
        }
        for new in changes.new_instances {
            self.hint((Pipeline::Instances, new.row.id.0), now);
            self.new_instance(new);
        }
        for patch in &changes.runs {
            self.patch_run(patch, now);
        }
        for patch in &changes.jobs {
            self.patch_job(patch, now);
        }
        for patch in &changes.instances {
            self.patch_instance(patch, now);
        }
        for patch in &changes.fleets {
            self.patch_fleet(patch, now);
        }
        for patch in &changes.volumes {
            self.patch_volume(patch, now);
        }
        for patch in &changes.gateways {
            self.patch_gateway(patch, now);
        }
        for patch in &changes.gateway_replicas {
            self.patch_gateway_replica(patch, now);
        }
        for row in changes.attachments {
            self.touched.insert((Pipeline::Volumes, row.volume_id.0));
            self.attachments.insert((row.volume_id, row.job_id), row);
        }
        for key in &changes.detached {
            self.attachments.remove(key);
        }
        for id in &changes.delete_jobs {
            self.delete_job(*id);
        }
        for event in changes.events {
            if self.events.len() >= Self::KEPT_EVENTS {
                self.events.pop_front();
            }
            self.events.push_back((now, event));
        }
        self.cleanup.extend(changes.cleanup);
        for probe in &changes.new_probes {
            let streaks = self.probes.entry(probe.job_id).or_default();
            let at = usize::try_from(probe.num).unwrap_or(usize::MAX);
            if streaks.len() <= at && at < 64 {
                streaks.resize(at + 1, 0);
            }
        }
        for fleet in changes.freed {
            self.wake_waiting(fleet, now);
        }
        for hint in &changes.hints {
            self.hint((hint.pipeline, hint.id), now);
        }
    }

    fn hint(&mut self, key: (Pipeline, Uuid), now: Timestamp) {
        let slot = self.slots.get(&key).copied().unwrap_or(Slot {
            due: None,
            lease: None,
        });
        let due = slot.due.map_or(now, |due| due.min(now));
        self.set_slot(
            key,
            Slot {
                due: Some(due),
                ..slot
            },
        );
    }

    fn wake_waiting(&mut self, fleet: FleetId, now: Timestamp) {
        let Some(project) = self.fleets.get(&fleet).map(|fleet| fleet.project_id) else {
            return;
        };
        let woken: Vec<RunId> = self
            .waiting
            .get(&project)
            .into_iter()
            .flatten()
            .take(usize::try_from(WOKEN).unwrap_or(usize::MAX))
            .map(|(_, _, id)| *id)
            .collect();
        for id in woken {
            if let Some(mut run) = self.runs.get(&id).cloned() {
                run.capacity_at = Some(now);
                self.put_run(run);
                self.hint((Pipeline::Runs, id.0), now);
            }
        }
    }

    fn new_instance(&mut self, new: NewInstance) {
        let NewInstance { mut row, number_it } = new;
        if number_it {
            row.instance_num = self.index.entry(row.fleet_id).or_default().free_number();
            let fleet = self
                .fleets
                .get(&row.fleet_id)
                .map_or("fleet", |fleet| &fleet.name);
            row.name = format!("{fleet}-{}", row.instance_num).into();
        }
        self.put_instance(row);
    }

    /// Stores a run as it is, indexes included. For tests that start from a given state.
    pub fn put_run(&mut self, run: RunRow) {
        self.touched.insert((Pipeline::Runs, run.id.0));
        if let Some(old) = self.runs.get(&run.id)
            && let Some(fleet) = old.fleet_id
            && let Some(runs) = self.active_runs_of_fleet.get_mut(&fleet)
        {
            runs.remove(&run.id);
        }
        if let Some(key) = self.runs.get(&run.id).and_then(waiting_key)
            && let Some(waiting) = self.waiting.get_mut(&run.project_id)
        {
            waiting.remove(&key);
        }
        if let Some(key) = waiting_key(&run) {
            self.waiting.entry(run.project_id).or_default().insert(key);
        }
        if let (Some(fleet), false) = (run.fleet_id, run.status.is_finished()) {
            self.active_runs_of_fleet
                .entry(fleet)
                .or_default()
                .insert(run.id);
        }
        self.runs.insert(run.id, run);
    }

    /// Stores a job as it is, indexes included. For tests that start from a given state.
    pub fn put_job(&mut self, job: JobRow) {
        let pipeline = Pipeline::of_job(job.status).unwrap_or(Pipeline::JobsTerminating);
        self.touched.insert((pipeline, job.id.0));
        if let Some((status, instance)) = self
            .jobs
            .get(&job.id)
            .map(|old| (old.status, old.instance_id))
        {
            let (was, is) = (Pipeline::of_job(status), Pipeline::of_job(job.status));
            if let (Some(was), true) = (was, was != is) {
                self.drop_slot((was, job.id.0));
            }
            if let Some(on) = instance.and_then(|id| self.jobs_of_instance.get_mut(&id)) {
                on.remove(&job.id);
            }
        }
        if let (Some(instance), false) = (job.instance_id, job.status.is_finished()) {
            self.jobs_of_instance
                .entry(instance)
                .or_default()
                .insert(job.id);
        }
        self.jobs_of_run
            .entry(job.run_id)
            .or_default()
            .insert(job.id);
        self.jobs.insert(job.id, job);
    }

    /// Stores an instance as it is, indexes included. For tests that start from a given state.
    pub fn put_instance(&mut self, instance: InstanceRow) {
        self.touched.insert((Pipeline::Instances, instance.id.0));
        let index = self.index.entry(instance.fleet_id).or_default();
        if let Some(old) = self.instances.get(&instance.id) {
            index.remove(old);
        }
        index.add(&instance);
        self.instances.insert(instance.id, instance);
    }

    fn patch_run(&mut self, patch: &RunPatch, now: Timestamp) {
        let Some(mut row) = self.runs.get(&patch.id).cloned() else {
            return;
        };
        set!(
            row,
            patch,
            status,
            termination_reason,
            fleet_id,
            spec,
            images,
            next_triggered_at,
            resubmission_attempt,
            deployment_num,
            priority,
            desired_replicas,
            capacity_at,
            deleted
        );
        row.last_processed_at = now;
        self.put_run(row);
    }

    fn patch_job(&mut self, patch: &JobPatch, now: Timestamp) {
        let Some(mut row) = self.jobs.get(&patch.id).cloned() else {
            return;
        };
        set!(
            row,
            patch,
            status,
            termination_reason,
            termination_reason_message,
            exit_status,
            instance_id,
            deployment_num,
            started_at,
            finished_at,
            stop,
            remove_at,
            provisioning_data,
            runtime_data,
            blocks,
            runner_timestamp,
            disconnected_at,
            inactivity_secs,
            released,
            registered
        );
        row.last_processed_at = now;
        self.put_job(row);
    }

    fn patch_instance(&mut self, patch: &InstancePatch, now: Timestamp) {
        let Some(mut row) = self.instances.get(&patch.id).cloned() else {
            return;
        };
        set!(
            row,
            patch,
            status,
            unreachable,
            health,
            termination_reason,
            termination_reason_message,
            started_at,
            finished_at,
            last_job_at,
            idle_limit,
            give_up_at,
            first_end_failure_at,
            health_checked_at,
            attempt,
            provider_ref,
            provisioning_data,
            offer,
            total_blocks,
            owner_job,
            deleted
        );
        row.busy_blocks = row
            .busy_blocks
            .saturating_add_signed(patch.busy_blocks_delta);
        row.last_processed_at = now;
        self.put_instance(row);
    }

    fn patch_fleet(&mut self, patch: &FleetPatch, now: Timestamp) {
        let Some(fleet) = self.fleets.get_mut(&patch.id) else {
            return;
        };
        let row = Arc::make_mut(fleet);
        set!(
            row,
            patch,
            status,
            status_message,
            spec,
            consolidation_attempt,
            consolidated_at,
            deleted
        );
        row.last_processed_at = now;
        self.touched.insert((Pipeline::Fleets, patch.id.0));
    }

    fn patch_gateway(&mut self, patch: &GatewayPatch, now: Timestamp) {
        let Some(gateway) = self.gateways.get_mut(&patch.id) else {
            return;
        };
        let row = Arc::make_mut(gateway);
        set!(
            row,
            patch,
            configuration,
            status,
            status_message,
            attempted_at,
            load_balancer,
            scale_attempt,
            scaled_at,
            delete_asked,
            first_end_failure_at,
            deleted_at
        );
        row.last_processed_at = now;
    }

    fn patch_gateway_replica(&mut self, patch: &GatewayReplicaPatch, now: Timestamp) {
        let Some(row) = self.gateway_replicas.get_mut(&patch.id) else {
            return;
        };
        set!(
            row,
            patch,
            status,
            status_message,
            attempted_at,
            provisioning_data,
            connect_tries,
            registered,
            first_end_failure_at
        );
        row.last_processed_at = now;
    }

    fn patch_volume(&mut self, patch: &VolumePatch, now: Timestamp) {
        let Some(volume) = self.volumes.get_mut(&patch.id) else {
            return;
        };
        let row = Arc::make_mut(volume);
        set!(
            row,
            patch,
            status,
            status_message,
            last_job_at,
            attempted_at,
            provisioning_data,
            delete_asked,
            first_end_failure_at,
            deleted_at
        );
        row.last_processed_at = now;
        self.touched.insert((Pipeline::Volumes, patch.id.0));
    }

    fn delete_job(&mut self, id: JobId) {
        if let Some(job) = self.jobs.remove(&id) {
            if let Some(jobs) = self.jobs_of_run.get_mut(&job.run_id) {
                jobs.remove(&id);
            }
            if let Some(pipeline) = Pipeline::of_job(job.status) {
                self.drop_slot((pipeline, id.0));
            }
        }
    }
}

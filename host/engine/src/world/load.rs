//! Rows become views.

use std::sync::Arc;

use dstack_api::fleets::FleetStatus;
use jiff::Timestamp;
use std::collections::BTreeMap;

use super::World;
use crate::ids::{FleetId, GatewayId, GatewayReplicaId, InstanceId, JobId, RunId, VolumeId};
use crate::model::{Held, InstanceRow, JobRow, VolumeRow};
use crate::view::{FleetFacts, provisioning_timeout};
use crate::volumes::mounts::{self, Named};
use crate::{
    fleets, gateways, instances, job_running, job_submitted, job_terminating, runs, spec, volumes,
};

/// How many machines of a pool a decision sees.
const POOL: usize = 50;

impl World {
    /// The newest submissions of the other jobs of a job's replica, by job number.
    fn siblings(&self, job: &JobRow) -> Vec<JobRow> {
        if job.spec.jobs_per_replica <= 1 {
            return Vec::new();
        }
        let mut newest: BTreeMap<u32, &JobRow> = BTreeMap::new();
        for other in self.jobs_of_run(job.run_id) {
            if other.replica_num != job.replica_num || other.job_num == job.job_num {
                continue;
            }
            let slot = newest.entry(other.job_num).or_insert(other);
            if slot.submission_num < other.submission_num {
                *slot = other;
            }
        }
        newest.into_values().cloned().collect()
    }

    fn master(&self, fleet: FleetId, not: Option<InstanceId>) -> Option<InstanceRow> {
        let oldest = self.index.get(&fleet)?.made.iter().map(|(_, _, id)| *id);
        let id = oldest.take(2).find(|id| Some(*id) != not)?;
        self.instances.get(&id).cloned()
    }

    fn project_name(&self, id: crate::ids::ProjectId) -> Arc<str> {
        self.projects
            .get(&id)
            .map_or_else(|| "".into(), |project| Arc::clone(&project.name))
    }

    /// The volumes that a job names.
    fn named(&self, job: &JobRow) -> Vec<Named> {
        let by_name = |name: &str| {
            self.volumes.values().find(|volume| {
                volume.project_id == job.project_id && !volume.is_deleted() && *volume.name == *name
            })
        };
        let named = |volume: &Arc<VolumeRow>| Named {
            volume: Arc::clone(volume),
            holders: self
                .holds_of(volume.id)
                .filter(|hold| hold.job_id != job.id)
                .filter_map(|hold| self.jobs.get(&hold.job_id))
                .map(|job| job.status)
                .collect(),
        };
        mounts::names(&job.spec)
            .filter_map(by_name)
            .map(named)
            .collect()
    }

    /// The volumes that a job has, by name.
    fn held(&self, id: JobId) -> Vec<Held> {
        let mut held: Vec<Held> = self
            .attachments
            .values()
            .filter(|row| row.job_id == id)
            .filter_map(|row| {
                Some(Held {
                    attachment: row.clone(),
                    volume: Arc::clone(self.volumes.get(&row.volume_id)?),
                })
            })
            .collect();
        held.sort_by(|a, b| a.volume.name.cmp(&b.volume.name));
        held
    }

    /// The view of a gateway.
    pub fn gateway_view(&self, id: GatewayId, now: Timestamp) -> Option<gateways::View> {
        let mut replicas: Vec<_> = self
            .gateway_replicas
            .values()
            .filter(|it| it.gateway_id == id)
            .cloned()
            .collect();
        replicas.sort_by_key(|it| (it.replica_num, it.created_at, it.id));
        Some(gateways::View {
            now,
            gateway: Arc::clone(self.gateways.get(&id)?),
            replicas,
            limits: Arc::clone(&self.limits),
        })
    }

    /// The view of a gateway's machine.
    pub fn gateway_replica_view(
        &self,
        id: GatewayReplicaId,
        now: Timestamp,
    ) -> Option<gateways::replicas::View> {
        let replica = self.gateway_replicas.get(&id)?.clone();
        Some(gateways::replicas::View {
            now,
            gateway: Arc::clone(self.gateways.get(&replica.gateway_id)?),
            replica,
            limits: Arc::clone(&self.limits),
        })
    }

    /// The view of a volume.
    pub fn volume_view(&self, id: VolumeId, now: Timestamp) -> Option<volumes::View> {
        Some(volumes::View {
            now,
            volume: Arc::clone(self.volumes.get(&id)?),
            in_use: self.holds_of(id).next().is_some(),
            limits: Arc::clone(&self.limits),
        })
    }

    /// The view of a submitted job.
    pub fn job_submitted(&self, id: JobId, now: Timestamp) -> Option<job_submitted::View> {
        let job = self.jobs.get(&id)?.clone();
        let run = self.runs.get(&job.run_id)?.clone();
        let facts = |fleet: &Arc<crate::model::FleetRow>| {
            let index = self.index.get(&fleet.id);
            let pool = index.into_iter().flat_map(|index| &index.pool).take(POOL);
            FleetFacts {
                fleet: Arc::clone(fleet),
                project_name: self.project_name(fleet.project_id),
                pool: pool
                    .filter_map(|(_, _, id)| self.instances.get(id))
                    .cloned()
                    .collect(),
                living: index.map_or(0, |index| index.living),
                taken: index.map_or(0, |index| index.taken),
                master: if spec::is_cluster(&fleet.spec) {
                    self.master(fleet.id, None)
                } else {
                    None
                },
            }
        };
        let usable = |fleet: &&Arc<crate::model::FleetRow>| {
            fleet.project_id == run.project_id
                && !fleet.deleted
                && matches!(fleet.status, FleetStatus::Active | FleetStatus::Submitted)
        };
        let fleets = match run.fleet_id {
            Some(id) => self
                .fleets
                .get(&id)
                .filter(usable)
                .map(facts)
                .into_iter()
                .collect(),
            None => self.fleets.values().filter(usable).map(facts).collect(),
        };
        let volumes = self.named(&job);
        Some(job_submitted::View {
            now,
            project_name: self.project_name(run.project_id),
            siblings: self.siblings(&job),
            instance: job
                .instance_id
                .and_then(|id| self.instances.get(&id))
                .cloned(),
            job,
            run,
            backends: Arc::clone(&self.backends),
            fleets,
            volumes,
            offers: None,
            limits: Arc::clone(&self.limits),
        })
    }

    /// The view of a provisioning, pulling or running job.
    pub fn job_running(&self, id: JobId, now: Timestamp) -> Option<job_running::View> {
        let job = self.jobs.get(&id)?.clone();
        let instance = job
            .instance_id
            .and_then(|id| self.instances.get(&id))
            .cloned();
        let offer = instance.as_ref().and_then(|i| i.offer.as_deref());
        Some(job_running::View {
            now,
            run: self.runs.get(&job.run_id)?.clone(),
            siblings: self.siblings(&job),
            probes: self.probes.get(&job.id).cloned().unwrap_or_default(),
            gpu_load: match job.spec.utilization_policy {
                Some(_) => self.gpu_load.get(&job.id).cloned().unwrap_or_default(),
                None => Vec::new(),
            },
            volumes: self.held(id),
            access_revoked: false,
            provisioning_timeout: provisioning_timeout(&self.backends, offer),
            instance,
            job,
            limits: Arc::clone(&self.limits),
        })
    }

    /// The view of a terminating job.
    pub fn job_terminating(&self, id: JobId, now: Timestamp) -> Option<job_terminating::View> {
        let job = self.jobs.get(&id)?.clone();
        Some(job_terminating::View {
            now,
            volumes: self.held(id),
            run: self.runs.get(&job.run_id)?.clone(),
            instance: job
                .instance_id
                .and_then(|id| self.instances.get(&id))
                .cloned(),
            job,
            limits: Arc::clone(&self.limits),
        })
    }

    /// The view of an instance.
    pub fn instance_view(&self, id: InstanceId, now: Timestamp) -> Option<instances::View> {
        let instance = self.instances.get(&id)?.clone();
        let fleet = Arc::clone(self.fleets.get(&instance.fleet_id)?);
        let cluster = spec::is_cluster(&fleet.spec);
        let first = self
            .index
            .get(&fleet.id)
            .and_then(|index| index.numbers.first());
        Some(instances::View {
            now,
            living: self.living(fleet.id),
            jobs: self.jobs_on(id).cloned().collect(),
            master: if cluster {
                self.master(fleet.id, Some(id))
            } else {
                None
            },
            first_of_cluster: cluster
                && first.is_none_or(|number| *number >= instance.instance_num),
            backends: Arc::clone(&self.backends),
            offers: None,
            provisioning_timeout: provisioning_timeout(&self.backends, instance.offer.as_deref()),
            limits: Arc::clone(&self.limits),
            fleet,
            instance,
        })
    }

    /// The view of a run.
    pub fn run_view(&self, id: RunId, now: Timestamp) -> Option<runs::View> {
        Some(runs::View {
            now,
            run: self.runs.get(&id)?.clone(),
            jobs: self.jobs_of_run(id).cloned().collect(),
            defaults: Arc::clone(&self.defaults),
            traffic: self.traffic.get(&id).copied(),
        })
    }

    /// The view of a fleet for a step: without instances when the step does not read them.
    pub fn fleet_step(&self, id: FleetId, now: Timestamp) -> Option<fleets::View> {
        let fleet = self.fleets.get(&id)?;
        if fleets::looks_at_instances(fleet, now) {
            return self.fleet_view(id, now);
        }
        Some(fleets::View {
            now,
            fleet: Arc::clone(fleet),
            instances: Vec::new(),
            active_runs: 0,
            project_deleted: self
                .projects
                .get(&fleet.project_id)
                .is_none_or(|project| project.deleted),
        })
    }

    /// The view of a fleet with all its instances.
    pub fn fleet_view(&self, id: FleetId, now: Timestamp) -> Option<fleets::View> {
        let fleet = Arc::clone(self.fleets.get(&id)?);
        let mut instances: Vec<InstanceRow> = self.instances_of(id).cloned().collect();
        instances.sort_by_key(|instance| instance.instance_num);
        let active = self
            .active_runs_of_fleet
            .get(&id)
            .map_or(0, std::collections::BTreeSet::len);
        Some(fleets::View {
            now,
            project_deleted: self
                .projects
                .get(&fleet.project_id)
                .is_none_or(|project| project.deleted),
            fleet,
            instances,
            active_runs: u32::try_from(active).unwrap_or(u32::MAX),
        })
    }
}

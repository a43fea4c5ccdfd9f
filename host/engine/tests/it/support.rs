//! A world with one fleet and one run, and a backend's offers.

use std::sync::Arc;
use std::time::Duration;

use dstack_api::instances::InstanceStatus;
use dstack_api::jobs::{JobStatus, JobTerminationReason};
use dstack_backend_types::{
    BackendType, InstanceOfferWithAvailability as Offer, JobProvisioningData,
};
use dstack_engine::admit::{self, NewRun};
use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::ids::{FleetId, Ids, InstanceId, JobId, ProjectId, RunId, UserId};
use dstack_engine::job_submitted::{self, Attempt, Conclusion, Plan, Provision, View};
use dstack_engine::model::{InstanceRow, JobRow, RunRow};
use dstack_engine::new_fleet;
use dstack_engine::offers;
use dstack_engine::view::{BackendAbilities, FleetOffers};
use dstack_engine::world::{Lease, Project, World};
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) struct Bed {
    pub(crate) world: World,
    pub(crate) ids: Ids,
    pub(crate) fleet: FleetId,
    pub(crate) run: RunId,
}

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).unwrap()
}

pub(crate) fn small() -> Value {
    json!({"cpu": "1..", "memory": "1GB..", "disk": null})
}

pub(crate) fn offer(price: f64, spot: bool) -> Offer {
    let value = json!({
        "backend": "vms", "region": "north", "price": price, "availability": "available",
        "instance": {"name": format!("at-{price}"), "resources": {
            "cpus": 4, "memory_mib": 32_768, "gpus": [], "spot": spot,
            "disk": {"size_mib": 204_800}, "description": ""}},
    });
    serde_json::from_value(value).unwrap()
}

pub(crate) fn machine(offer: &Offer, hostname: Option<&str>) -> JobProvisioningData {
    let value = json!({
        "backend": offer.backend, "instance_type": offer.instance, "instance_id": "m-1",
        "region": offer.region, "price": offer.price, "username": "root", "dockerized": true,
        "hostname": hostname,
    });
    serde_json::from_value(value).unwrap()
}

impl Bed {
    pub(crate) fn new(fleet: Value, run: Value) -> Self {
        let (project, user) = (ProjectId(Uuid::from_u128(1)), UserId(Uuid::from_u128(2)));
        let mut world = World::default();
        world.projects.insert(
            project,
            Project {
                name: "main".into(),
                deleted: false,
            },
        );
        world.backends = Arc::new(vec![BackendAbilities {
            name: BackendType::new("vms"),
            creates_instances: true,
            multinode: true,
            reservations: false,
            privileged: true,
            instance_mounts: true,
            provisioning_timeout: Duration::from_secs(600),
        }]);
        let mut ids = Ids::from_number(1);
        let mut configuration =
            json!({"type": "fleet", "name": "f", "nodes": "0..4", "resources": small()});
        configuration
            .as_object_mut()
            .unwrap()
            .extend(fleet.as_object().unwrap().clone());
        let spec = json!({"configuration": configuration, "profile": {"name": "default"}});
        let spec = serde_json::from_value(spec).unwrap();
        let (fleet, changes) = new_fleet::create(project, user, "f", spec, at(0), &mut ids);
        world.request(changes, at(0)).unwrap();
        let mut configuration =
            json!({"type": "task", "name": "r", "commands": ["true"], "resources": small()});
        configuration
            .as_object_mut()
            .unwrap()
            .extend(run.as_object().unwrap().clone());
        let spec = json!({"run_name": "r", "configuration": configuration});
        let new = NewRun {
            project_id: project,
            user_id: user,
            name: "r".into(),
            spec: Arc::new(serde_json::from_value(spec).unwrap()),
            service: None,
            images: None,
        };
        let defaults = Arc::clone(&world.defaults);
        let (run, changes) = admit::run(&new, &defaults, at(0), &mut ids).unwrap();
        world.request(changes, at(0)).unwrap();
        Self {
            world,
            ids,
            fleet,
            run,
        }
    }

    /// The id of the newest submission of a job of replica 0.
    pub(crate) fn job(&self, job_num: u32) -> JobId {
        let jobs = self
            .world
            .jobs_of_run(self.run)
            .filter(|job| job.job_num == job_num);
        jobs.max_by_key(|job| job.submission_num).unwrap().id
    }

    /// Claims rows until it is the turn of this one; the others are given back untouched.
    pub(crate) fn claim(&mut self, pipeline: Pipeline, id: Uuid, now: Timestamp) -> Lease {
        let mut others = Vec::new();
        let found = loop {
            let lease = self.world.claim(now, LEASE).expect("the row is due");
            if lease.pipeline == pipeline && lease.id == id {
                break lease;
            }
            others.push(lease);
        };
        for lease in others {
            self.world
                .apply(&lease, Changes::later(Duration::ZERO), now)
                .unwrap();
        }
        found
    }

    /// The order that a submitted job gives when the backend offers this.
    pub(crate) fn order(
        &mut self,
        job: JobId,
        list: &[Offer],
        now: Timestamp,
    ) -> (View, Box<Provision>) {
        let mut view = self.world.job_submitted(job, now).unwrap();
        let Plan::AskOffers(asks) = job_submitted::plan(&view, &mut self.ids) else {
            panic!("the backends are asked");
        };
        let answer = |ask: &job_submitted::OfferAsk| FleetOffers {
            fleet_id: ask.fleet_id,
            offers: offers::select(vec![list.to_vec()], &ask.wanted, ask.sharing, 100),
        };
        view.offers = Some(asks.iter().map(answer).collect());
        match job_submitted::plan(&view, &mut self.ids) {
            Plan::Provision(order) => (view, order),
            other => panic!("a machine is ordered, not {other:?}"),
        }
    }

    /// Places a job on a new machine with an address.
    pub(crate) fn place(&mut self, job: JobId, offer: &Offer, now: Timestamp) {
        let lease = self.claim(Pipeline::JobsSubmitted, job.0, now);
        let (view, order) = self.order(job, std::slice::from_ref(offer), now);
        self.world
            .checkpoint(&lease, order.before.clone(), now)
            .unwrap();
        let made = [Attempt::Made(Box::new(machine(offer, Some("host"))))];
        match job_submitted::conclude(&view, &order, &made, &mut self.ids) {
            Conclusion::Done(changes) => self.world.apply(&lease, changes, now).unwrap(),
            Conclusion::Again(_) => panic!("the machine is made"),
        }
    }

    /// One step of the run.
    pub(crate) fn step_run(&mut self, now: Timestamp) {
        let view = self.world.run_view(self.run, now).unwrap();
        let changes = dstack_engine::runs::plan(&view, &mut self.ids);
        self.world.request(changes, now).unwrap();
    }
}

/// What a job looks like in a row of a table: where it stands, and why it ends.
pub(crate) type State = (JobStatus, Option<JobTerminationReason>);

impl Bed {
    /// A service with these keys.
    pub(crate) fn service(run: Value) -> Self {
        let mut keys = json!({"type": "service", "port": 8000});
        keys.as_object_mut()
            .unwrap()
            .extend(run.as_object().unwrap().clone());
        Self::new(json!({"nodes": "0..20"}), keys)
    }

    /// Changes a job as a table says.
    pub(crate) fn set(&mut self, id: JobId, change: impl FnOnce(&mut JobRow)) {
        let mut job = self.world.job(id).unwrap().clone();
        change(&mut job);
        self.world.put_job(job);
    }

    /// Changes the run as a table says.
    pub(crate) fn set_run(&mut self, change: impl FnOnce(&mut RunRow)) {
        let mut run = self.world.run(self.run).unwrap().clone();
        change(&mut run);
        self.world.put_run(run);
    }

    /// Changes an instance as a table says.
    pub(crate) fn set_instance(&mut self, id: InstanceId, change: impl FnOnce(&mut InstanceRow)) {
        let mut instance = self.world.instance(id).unwrap().clone();
        change(&mut instance);
        self.world.put_instance(instance);
    }

    /// Brings a job where it stands, with a machine if it must have one, without asking anybody.
    pub(crate) fn stand(&mut self, id: JobId, (status, reason): State, had_machine: bool) {
        let offer = offer(1.0, false);
        self.set(id, |job| {
            job.status = status;
            job.termination_reason = reason;
            if had_machine {
                job.provisioning_data = Some(Arc::new(machine(&offer, Some("host"))));
            }
            if status.is_finished() {
                job.finished_at = Some(job.submitted_at);
            }
            if status == JobStatus::Running {
                job.started_at = Some(job.submitted_at);
            }
        });
    }

    /// The run as it is.
    pub(crate) fn row(&self) -> &RunRow {
        self.world.run(self.run).unwrap()
    }

    /// The newest submission of job 0 of each replica, by number.
    pub(crate) fn replicas(&self) -> Vec<JobRow> {
        let mut newest = std::collections::BTreeMap::<u32, &JobRow>::new();
        for job in self.world.jobs_of_run(self.run).filter(|j| j.job_num == 0) {
            let slot = newest.entry(job.replica_num).or_insert(job);
            if slot.submission_num < job.submission_num {
                *slot = job;
            }
        }
        newest.into_values().cloned().collect()
    }

    /// The decision about a submitted job.
    pub(crate) fn plan_job(&mut self, id: JobId, now: Timestamp) -> Plan {
        let view = self.world.job_submitted(id, now).unwrap();
        job_submitted::plan(&view, &mut self.ids)
    }

    /// The decision about an instance.
    pub(crate) fn plan_instance(
        &mut self,
        id: InstanceId,
        now: Timestamp,
    ) -> dstack_engine::instances::Plan {
        let view = self.world.instance_view(id, now).unwrap();
        dstack_engine::instances::plan(&view, &mut self.ids)
    }

    /// A machine of the fleet that is ready and has no job.
    pub(crate) fn idle_machine(&mut self, offer: &Offer, number: u32) -> InstanceId {
        let fleet = Arc::clone(self.world.fleet(self.fleet).unwrap());
        let id = InstanceId(self.ids.uuid());
        let mut row = InstanceRow::pending(id, &fleet, at(0));
        row.status = InstanceStatus::Idle;
        row.instance_num = number;
        row.name = format!("{}-{number}", fleet.name).into();
        row.total_blocks = Some(1);
        row.offer = Some(Arc::new(Offer {
            blocks: 1,
            total_blocks: 1,
            ..offer.clone()
        }));
        row.provisioning_data = Some(Arc::new(machine(offer, Some("host"))));
        row.idle_limit = Some(300);
        self.world.put_instance(row);
        id
    }
}

/// The changes that a plan wants at once.
pub(crate) fn changes_of(plan: Plan) -> Changes {
    match plan {
        Plan::Change(changes) => changes,
        other => panic!("nobody is asked, yet {other:?}"),
    }
}

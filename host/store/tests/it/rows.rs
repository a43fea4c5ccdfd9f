//! Rows to test with, and that each comes back as it was stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use dstack_api::fleets::FleetStatus;
use dstack_api::gateways::{GatewayReplicaStatus, GatewayStatus};
use dstack_api::instances::{HealthStatus, InstanceStatus};
use dstack_api::jobs::JobStatus;
use dstack_api::runs::RunStatus;
use dstack_api::volumes::VolumeStatus;
use dstack_backend_types::BackendType;
use dstack_engine::changes::{CleanupRow, MachineRef};
use dstack_engine::ids::{
    FleetId, GatewayId, GatewayReplicaId, InstanceId, JobId, ProjectId, RunId, UserId, VolumeId,
};
use dstack_engine::model::{
    FleetRow, GatewayReplicaRow, GatewayRow, InstanceRow, JobRow, RunRow, Stop, VolumeRow,
};
use dstack_store::job_metrics::{self, Point};
use dstack_store::views::{self, Known};
use dstack_store::{DbError, Tx, fleets, instances, jobs, runs};
use serde::de::DeserializeOwned;
use serde_json::json;
use uuid::Uuid;

use crate::support::{at, open, seed};

/// One of each; the fleet, its project and its user are stored already.
pub(crate) struct SmallWorld {
    pub(crate) user: UserId,
    pub(crate) project: ProjectId,
    pub(crate) fleet: FleetRow,
    pub(crate) run: RunRow,
    pub(crate) job: JobRow,
    pub(crate) instance: InstanceRow,
}

pub(crate) fn parsed<T: DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn small_world(tx: &mut dyn Tx) -> Result<SmallWorld, DbError> {
    let (user, project) = seed(tx)?;
    let fleet = fleet(project, 1);
    fleets::insert(tx, &fleet, at(100))?;
    let instance = instance(&fleet, 1, 0);
    let run = run(user, project, 1);
    let job = job(&run, 1);
    Ok(SmallWorld {
        user,
        project,
        fleet,
        run,
        job,
        instance,
    })
}

pub(crate) fn run_with_job(world: &SmallWorld, number: u128) -> (RunRow, JobRow) {
    let run = run(world.user, world.project, number);
    let job = job(&run, number);
    (run, job)
}

pub(crate) fn gateway(project: ProjectId, number: u128) -> GatewayRow {
    let name = format!("gw-{number}");
    GatewayRow {
        id: GatewayId(Uuid::from_u128(number)),
        project_id: project,
        name: name.as_str().into(),
        configuration: Arc::new(parsed(json!({
            "type": "gateway", "backend": "aws", "name": name, "region": "eu-west-1", "domain": "*.example.com",
        }))),
        status: GatewayStatus::Submitted,
        status_message: None,
        created_at: at(100),
        last_processed_at: at(100),
        provider_ref: format!("gref{number}").into(),
        attempted_at: None,
        load_balancer: None,
        scale_attempt: 0,
        scaled_at: None,
        delete_asked: false,
        first_end_failure_at: None,
        deleted_at: None,
    }
}

pub(crate) fn gateway_replica(
    project: ProjectId,
    gateway: GatewayId,
    number: u128,
) -> GatewayReplicaRow {
    GatewayReplicaRow {
        id: GatewayReplicaId(Uuid::from_u128(number)),
        gateway_id: gateway,
        project_id: project,
        name: format!("gw-{number}").into(),
        replica_num: 0,
        status: GatewayReplicaStatus::Submitted,
        status_message: None,
        created_at: at(100),
        last_processed_at: at(100),
        provider_ref: format!("rref{number}").into(),
        attempted_at: None,
        provisioning_data: None,
        connect_tries: 0,
        registered: false,
        first_end_failure_at: None,
    }
}

pub(crate) fn volume(user: UserId, project: ProjectId, number: u128, name: &str) -> VolumeRow {
    VolumeRow {
        id: VolumeId(Uuid::from_u128(number)),
        project_id: project,
        user_id: user,
        name: name.into(),
        configuration: Arc::new(parsed(json!({
            "type": "volume", "backend": "aws", "name": name, "region": "eu-west-1", "size": 100,
            "auto_cleanup_duration": 3600,
        }))),
        external: false,
        status: VolumeStatus::Submitted,
        status_message: None,
        created_at: at(100),
        last_processed_at: at(100),
        last_job_at: None,
        provider_ref: format!("ref{number}").into(),
        attempted_at: None,
        provisioning_data: None,
        delete_asked: false,
        first_end_failure_at: None,
        deleted_at: None,
    }
}

pub(crate) fn disk(price: f64) -> serde_json::Value {
    json!({
        "backend": "aws", "volume_id": "vol-1", "size_gb": 100, "availability_zone": "eu-west-1a", "price": price,
        "attachable": true, "detachable": true,
    })
}

pub(crate) fn fleet(project: ProjectId, number: u128) -> FleetRow {
    FleetRow {
        id: FleetId(Uuid::from_u128(number)),
        project_id: project,
        name: format!("fleet-{number}").into(),
        spec: Arc::new(parsed(json!({
            "configuration": {"type": "fleet", "nodes": {"min": 0, "max": 4}},
            "profile": {"name": "default"},
        }))),
        status: FleetStatus::Active,
        status_message: None,
        created_at: at(50),
        last_processed_at: at(50),
        consolidation_attempt: 0,
        consolidated_at: None,
        deleted: false,
    }
}

pub(crate) fn run(user: UserId, project: ProjectId, number: u128) -> RunRow {
    RunRow {
        id: RunId(Uuid::from_u128(number)),
        project_id: project,
        user_id: user,
        fleet_id: None,
        name: format!("run-{number}").into(),
        spec: Arc::new(parsed(json!({
            "run_name": format!("run-{number}"),
            "repo_id": "none",
            "configuration": {"type": "task", "commands": ["echo hi"]},
        }))),
        status: RunStatus::Submitted,
        termination_reason: None,
        submitted_at: at(60),
        last_processed_at: at(60),
        next_triggered_at: None,
        resubmission_attempt: 0,
        deployment_num: 0,
        priority: 0,
        desired_replicas: BTreeMap::new(),
        capacity_at: None,
        service: None,
        images: None,
        deleted: false,
    }
}

pub(crate) fn job(run: &RunRow, number: u128) -> JobRow {
    JobRow {
        id: JobId(Uuid::from_u128(number)),
        run_id: run.id,
        project_id: run.project_id,
        instance_id: None,
        replica_num: 0,
        job_num: 0,
        submission_num: 0,
        name: format!("{}-0-0", run.name).into(),
        spec: Arc::new(parsed(json!({
            "job_num": 0, "job_name": format!("{}-0-0", run.name), "commands": ["echo hi"], "env": {},
            "image_name": "ubuntu",
            "requirements": {"resources": {"cpu": {"min": 2}, "memory": {"min": 8.0}}},
        }))),
        deployment_num: 0,
        status: JobStatus::Submitted,
        termination_reason: None,
        termination_reason_message: None,
        exit_status: None,
        submitted_at: at(60),
        last_processed_at: at(60),
        started_at: None,
        finished_at: None,
        stop: Stop::Hard,
        remove_at: None,
        provisioning_data: None,
        runtime_data: None,
        blocks: 0,
        runner_timestamp: 0,
        disconnected_at: None,
        inactivity_secs: None,
        released: true,
        registered: false,
    }
}

pub(crate) fn instance(fleet: &FleetRow, number: u128, instance_num: u32) -> InstanceRow {
    InstanceRow {
        id: InstanceId(Uuid::from_u128(number)),
        project_id: fleet.project_id,
        fleet_id: fleet.id,
        name: format!("{}-{instance_num}", fleet.name).into(),
        instance_num,
        status: InstanceStatus::Pending,
        unreachable: false,
        health: HealthStatus::Healthy,
        termination_reason: None,
        termination_reason_message: None,
        created_at: at(70),
        started_at: None,
        finished_at: None,
        last_processed_at: at(70),
        last_job_at: None,
        idle_limit: None,
        give_up_at: None,
        first_end_failure_at: None,
        health_checked_at: None,
        attempt: None,
        provider_ref: None,
        provisioning_data: None,
        offer: None,
        requirements: None,
        profile: None,
        total_blocks: None,
        busy_blocks: 0,
        owner_job: None,
        ssh_host: None,
        deleted: false,
    }
}

pub(crate) fn machine(price: f64) -> serde_json::Value {
    json!({
        "backend": "local", "instance_type": instance_type(), "instance_id": "i-1", "hostname": "10.0.0.1",
        "internal_ip": "10.0.0.1", "region": "here", "price": price, "username": "root", "ssh_port": 22,
        "dockerized": true,
    })
}

pub(crate) fn offer(price: f64) -> serde_json::Value {
    json!({
        "backend": "local", "instance": instance_type(), "region": "here", "price": price,
        "availability": "available", "instance_runtime": "shim", "blocks": 1, "total_blocks": 4,
    })
}

fn instance_type() -> serde_json::Value {
    json!({"name": "m", "resources": {
        "cpus": 4, "memory_mib": 16384, "gpus": [], "spot": false, "disk": {"size_mib": 102_400},
    }})
}

pub(crate) fn cleanup(job: &JobRow, provider_ref: &str) -> CleanupRow {
    CleanupRow {
        project_id: job.project_id,
        backend: BackendType::LOCAL,
        region: "here".to_owned(),
        provider_ref: provider_ref.to_owned(),
        machine: Some(MachineRef {
            instance_id: "i-1".to_owned(),
            backend_data: Some("{}".to_owned()),
        }),
        not_before: at(500),
    }
}

#[tokio::test]
async fn rows_come_back_as_they_were_stored() {
    let test = open();
    test.write(|tx| {
        let mut world = small_world(tx)?;
        let micro = jiff::Timestamp::from_microsecond(1_700_000_000_123_456).unwrap();

        world.run.fleet_id = Some(world.fleet.id);
        world.run.next_triggered_at = Some(micro);
        world.run.desired_replicas = BTreeMap::from([("0".to_owned(), 3)]);
        world.run.service = Some(Arc::new(parsed(
            json!({"url": "/proxy/services/main/run-1/"}),
        )));
        world.run.deployment_num = 2;
        runs::insert(tx, &world.run, at(100))?;
        assert_eq!(runs::get(tx, world.run.id)?.unwrap(), world.run);
        assert_eq!(
            runs::by_name(tx, world.project, "run-1")?.unwrap(),
            world.run
        );

        world.job.status = JobStatus::Terminating;
        world.job.termination_reason =
            Some(dstack_api::jobs::JobTerminationReason::ContainerExitedWithError);
        world.job.termination_reason_message = Some("it's \"over\"\n".to_owned());
        world.job.exit_status = Some(-9);
        world.job.stop = Stop::Sent;
        world.job.remove_at = Some(micro);
        world.job.provisioning_data = Some(Arc::new(parsed(machine(1.25))));
        world.job.runtime_data = Some(Arc::new(parsed(
            json!({"network_mode": "host", "ports": {"10022": 32768}}),
        )));
        let mut spec = (*world.job.spec).clone();
        spec.ssh_key = Some(parsed(
            json!({"private": "PRIVATE KEY", "public": "ssh-ed25519 AAAA"}),
        ));
        world.job.spec = Arc::new(spec);
        jobs::insert(tx, &world.job, at(100))?;
        assert_eq!(jobs::get(tx, world.job.id)?.unwrap(), world.job);
        let records = jobs::records(tx, &[world.run.id], 10)?;
        let record = &records[&world.run.id][0];
        assert!(
            !record.spec.as_ref().unwrap().contains("PRIVATE"),
            "spliced texts hold no key"
        );
        assert_eq!(record.price_usd_per_hour, Some(1.25));

        world.instance.attempt = Some(dstack_engine::model::CloudAttempt {
            provider_ref: "abcdefghijklmnop".to_owned(),
            places: vec![(BackendType::LOCAL, "here".to_owned())],
            started_at: micro,
        });
        world.instance.provisioning_data = Some(Arc::new(parsed(machine(0.5))));
        world.instance.offer = Some(Arc::new(parsed(offer(0.5))));
        world.instance.requirements = Some(Arc::new(world.job.spec.requirements.clone()));
        world.instance.profile = Some(Arc::new(parsed(json!({"name": "default"}))));
        world.instance.owner_job = Some(world.job.id);
        world.instance.ssh_host = Some("10.0.0.7".into());
        world.instance.idle_limit = Some(300);
        instances::insert(tx, &world.instance, at(100))?;
        assert_eq!(
            instances::get(tx, world.instance.id)?.unwrap(),
            world.instance
        );
        assert_eq!(
            instances::of_owner_job(tx, world.job.id)?.unwrap(),
            world.instance
        );
        assert_eq!(fleets::get(tx, world.fleet.id)?.unwrap(), world.fleet);
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_job_with_a_utilization_policy_is_shown_its_window() {
    let test = open();
    test.write(|tx| {
        let world = small_world(tx)?;
        runs::insert(tx, &world.run, at(100))?;
        let (mut watched, mut free) = (world.job.clone(), job(&world.run, 2));
        free.job_num = 1;
        let mut spec = (*watched.spec).clone();
        spec.utilization_policy = Some(parsed(
            json!({"min_gpu_utilization": 10, "time_window": 300}),
        ));
        watched.spec = Arc::new(spec);
        for job in [&watched, &free] {
            jobs::insert(tx, job, at(100))?;
            for second in [650, 700, 800, 990] {
                let point = Point {
                    gpus_util_percent: vec![u64::try_from(second).unwrap() / 10, 0],
                    ..Point::default()
                };
                job_metrics::insert(tx, job.id, at(second), &point)?;
            }
        }
        let mut load = |id| {
            let view = views::job_running(tx, id, at(1000), &Known::default())?.unwrap();
            let seen = view.gpu_load.into_iter();
            Ok::<_, DbError>(seen.map(|it| (it.at, it.percent)).collect::<Vec<_>>())
        };
        let window = [(at(990), vec![99, 0]), (at(800), vec![80, 0])];
        assert_eq!(load(watched.id)?, window);
        assert_eq!(load(free.id)?, [], "nobody asks");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_name_is_free_again_once_its_run_is_deleted() {
    let test = open();
    test.write(|tx| {
        let mut world = small_world(tx)?;
        runs::insert(tx, &world.run, at(100))?;
        let (mut twin, _) = run_with_job(&world, 2);
        twin.name = world.run.name.clone();
        let refused = tx.attempt(|tx| runs::insert(tx, &twin, at(100)));
        assert!(refused.unwrap_err().is_conflict());
        world.run.deleted = true;
        world.run.id = RunId(Uuid::from_u128(3));
        runs::insert(tx, &world.run, at(100))?;
        Ok(())
    })
    .await
    .unwrap();
}

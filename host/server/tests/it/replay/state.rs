//! The world that stood in the database of the recorded server: runs on two machines of a fleet, and a volume.

use std::sync::Arc;

use dstack_api::instances::InstanceStatus;
use dstack_api::runs::Run;
use dstack_api::volumes::{Volume, VolumeStatus};
use dstack_engine::changes::{Changes, JobPatch, NewInstance, Pipeline, RunPatch, VolumePatch};
use dstack_engine::ids::{InstanceId, ProjectId};
use dstack_engine::model::InstanceRow;
use dstack_store::{Store, StoreConfig, Tx, apply, fleets, jobs, projects, runs, volumes};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use super::read;
use crate::client::TestServer;

fn response(file: &str) -> Value {
    read(file)[0]["response"].clone()
}

fn parsed<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

/// Applies what was applied then, and writes what the loops of that server would have made of it.
pub(super) fn put(server: &TestServer) {
    let fleet = response("running_fleet_get");
    let spec = json!({"plan": {"spec": fleet["spec"], "current_resource": null}, "force": false});
    server.ok("/api/project/main/fleets/apply", spec);
    let theirs = response("running_ps_json_all");
    // The newest comes first.
    for run in theirs.as_array().unwrap().iter().rev() {
        let mut spec = run["run_spec"].clone();
        spec["ssh_key_pub"] = Value::Null;
        let plan = json!({"run_spec": spec, "current_resource": null});
        server.ok(
            "/api/project/main/runs/apply",
            json!({"plan": plan, "force": false}),
        );
    }
    let volume = response("running_volume_list")[0].clone();
    let body = json!({"configuration": volume["configuration"]});
    server.ok("/api/project/main/volumes/create", body);

    let path = server.folder.path().join(".dstack/server/data/sqlite.db");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Store::open(StoreConfig::file(path)).unwrap();
        let now = Timestamp::now();
        let done = store.write(move |tx| {
            let project = projects::by_name(tx, "main")?.unwrap().id;
            let mut changes = Changes::nothing();
            machines(tx, project, &fleet, &mut changes, now);
            for run in theirs.as_array().unwrap() {
                placed(tx, project, &parsed(run), &fleet, &mut changes);
            }
            active(tx, project, &parsed(&volume), &mut changes);
            apply::apply_request(tx, &changes, now)
        });
        assert!(done.await.unwrap().is_written());
    });
}

fn machines(
    tx: &mut dyn Tx,
    project: ProjectId,
    fleet: &Value,
    changes: &mut Changes,
    now: Timestamp,
) {
    let name = fleet["name"].as_str().unwrap();
    let row = fleets::by_name(tx, project, name).unwrap().unwrap();
    let run = response("running_run_get");
    let machine = &run["jobs"][0]["job_submissions"][0]["job_provisioning_data"];
    for theirs in fleet["instances"].as_array().unwrap() {
        let mut instance = InstanceRow::pending(InstanceId(Uuid::new_v4()), &row, now);
        instance.name = theirs["name"].as_str().unwrap().into();
        instance.instance_num = parsed(&theirs["instance_num"]);
        instance.status = parsed::<InstanceStatus>(&theirs["status"]);
        instance.provisioning_data = Some(Arc::new(parsed(machine)));
        instance.total_blocks = parsed(&theirs["total_blocks"]);
        instance.busy_blocks = parsed(&theirs["busy_blocks"]);
        changes.new_instances.push(NewInstance {
            row: instance,
            number_it: false,
        });
    }
    changes.hint(Pipeline::Fleets, row.id);
}

fn placed(tx: &mut dyn Tx, project: ProjectId, theirs: &Run, fleet: &Value, changes: &mut Changes) {
    let name = theirs.run_spec.run_name.as_deref().unwrap();
    let run = runs::by_name(tx, project, name).unwrap().unwrap();
    let fleet = fleets::by_name(tx, project, fleet["name"].as_str().unwrap())
        .unwrap()
        .unwrap();
    let reason = theirs.termination_reason.as_ref();
    changes.runs.push(RunPatch {
        status: Some(theirs.status),
        termination_reason: Some(reason.map(|reason| reason.parse().unwrap())),
        fleet_id: Some(Some(fleet.id)),
        ..RunPatch::of(run.id)
    });
    let submission = &theirs.jobs[0].job_submissions[0];
    let reason = submission.termination_reason.as_ref();
    let job = &jobs::of_run(tx, run.id).unwrap()[0];
    changes.jobs.push(JobPatch {
        status: Some(submission.status),
        termination_reason: Some(reason.map(|reason| reason.parse().unwrap())),
        exit_status: Some(submission.exit_status),
        started_at: Some(Some(submission.submitted_at)),
        finished_at: Some(submission.finished_at),
        provisioning_data: Some(submission.job_provisioning_data.clone().map(Arc::new)),
        runtime_data: Some(submission.job_runtime_data.clone().map(Arc::new)),
        inactivity_secs: Some(submission.inactivity_secs),
        registered: Some(name == "svc-1"),
        ..JobPatch::of(job.id)
    });
}

fn active(tx: &mut dyn Tx, project: ProjectId, theirs: &Volume, changes: &mut Changes) {
    let volume = volumes::by_name(tx, project, &theirs.name)
        .unwrap()
        .unwrap();
    changes.volumes.push(VolumePatch {
        status: Some(VolumeStatus::Active),
        provisioning_data: Some(theirs.provisioning_data.clone().map(Arc::new)),
        ..VolumePatch::of(volume.id)
    });
}

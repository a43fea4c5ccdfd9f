//! Lifecycles, section 7: volumes; and what jobs do with them.

use std::sync::Arc;
use std::time::Duration;

use dstack_api::jobs::{JobStatus, JobTerminationReason};
use dstack_api::volumes::VolumeStatus;
use dstack_backend_types::VolumeProvisioningData;
use dstack_engine::audit;
use dstack_engine::changes::{Changes, Guard, Pipeline};
use dstack_engine::ids::{ProjectId, UserId, VolumeId};
use dstack_engine::volumes::mounts::{self, Lack, Named};
use dstack_engine::volumes::{self, Answer, Call, Plan};
use dstack_engine::world::{Refusal, World};
use dstack_engine::{job_running, job_terminating};
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Bed, at, offer};

const USER: UserId = UserId(Uuid::from_u128(2));

fn project() -> ProjectId {
    ProjectId(Uuid::from_u128(1))
}

fn disk() -> VolumeProvisioningData {
    serde_json::from_value(json!({
        "backend": "vms", "volume_id": "d-1", "size_gb": 10, "price": 30.0,
        "attachable": true, "detachable": true,
    }))
    .unwrap()
}

fn configuration(name: &str, more: Value) -> dstack_api::config::VolumeConfiguration {
    let mut value =
        json!({"type": "volume", "backend": "vms", "name": name, "region": "north", "size": 10});
    let more = more.as_object().unwrap().clone();
    value.as_object_mut().unwrap().extend(more);
    serde_json::from_value(value).unwrap()
}

fn create(bed: &mut Bed, name: &str, more: Value) -> VolumeId {
    let configuration = configuration(name, more);
    let (id, changes) = volumes::create(project(), USER, name, configuration, at(0), &mut bed.ids);
    bed.world.request(changes, at(0)).unwrap();
    id
}

fn plan(world: &World, id: VolumeId, now: Timestamp) -> Plan {
    volumes::plan(&world.volume_view(id, now).unwrap())
}

fn change(plan: Plan) -> Changes {
    match plan {
        Plan::Change(changes) => changes,
        Plan::Call(call, _) => panic!("it calls {call:?}"),
    }
}

/// One step with a call: what is written before, the answer, what is written after.
fn step(bed: &mut Bed, id: VolumeId, now: Timestamp, wanted: Call, answer: &Answer) -> Changes {
    let lease = bed.claim(Pipeline::Volumes, id.0, now);
    let view = bed.world.volume_view(id, now).unwrap();
    let Plan::Call(call, before) = volumes::plan(&view) else {
        panic!("it calls nobody");
    };
    assert_eq!(call, wanted);
    bed.world.checkpoint(&lease, before, now).unwrap();
    let view = bed.world.volume_view(id, now).unwrap();
    let changes = volumes::conclude(&view, call, answer);
    bed.world.apply(&lease, changes.clone(), now).unwrap();
    changes
}

fn active(bed: &mut Bed, name: &str, more: Value) -> VolumeId {
    let id = create(bed, name, more);
    step(
        bed,
        id,
        at(0),
        Call::Create,
        &Answer::Made(Box::new(disk())),
    );
    id
}

fn bed() -> Bed {
    Bed::new(json!({}), json!({"volumes": ["data:/data"]}))
}

fn messages(changes: &Changes) -> Vec<&str> {
    changes
        .events
        .iter()
        .map(|it| it.message.as_str())
        .collect()
}

#[test]
fn section_7_row_1_a_new_volume_is_submitted() {
    let mut bed = bed();
    let id = create(&mut bed, "data", json!({}));
    let row = bed.world.volume(id).unwrap();
    assert_eq!(row.status, VolumeStatus::Submitted);
    assert_eq!(row.provider_ref.len(), 16);
    assert_eq!(
        bed.world.events.back().unwrap().1.message,
        "Volume created. Status: SUBMITTED"
    );
}

#[test]
fn section_7_row_2_submitted_becomes_active_when_made_or_registered() {
    let mut bed = bed();
    let made = create(&mut bed, "data", json!({}));
    let changes = step(
        &mut bed,
        made,
        at(1),
        Call::Create,
        &Answer::Made(Box::new(disk())),
    );
    assert_eq!(
        messages(&changes),
        ["Volume status changed SUBMITTED -> ACTIVE"]
    );
    assert_eq!(bed.world.volume(made).unwrap().attempted_at, Some(at(1)));
    let found = create(&mut bed, "old", json!({"volume_id": "d-9", "size": null}));
    step(
        &mut bed,
        found,
        at(1),
        Call::Register,
        &Answer::Made(Box::new(disk())),
    );
    assert_eq!(
        bed.world.volume(found).unwrap().status,
        VolumeStatus::Active
    );
}

#[test]
fn section_7_row_3_submitted_becomes_failed_with_the_message() {
    let mut bed = bed();
    let cases = [
        ("a", Answer::Refused("no quota".into()), "no quota", 0),
        ("b", Answer::NoBackend, "Backend not available", 0),
    ];
    for (name, answer, message, cleanups) in cases {
        let id = create(&mut bed, name, json!({}));
        step(&mut bed, id, at(1), Call::Create, &answer);
        let row = bed.world.volume(id).unwrap();
        assert_eq!(row.status, VolumeStatus::Failed);
        assert_eq!(row.status_message.as_deref(), Some(message));
        assert_eq!(bed.world.cleanup.len(), cleanups);
    }
}

#[test]
fn an_order_without_an_answer_is_repeated_and_then_given_to_cleanup() {
    let mut bed = bed();
    let id = create(&mut bed, "data", json!({}));
    let lost = Answer::Unknown("broken".into());
    let reference = bed.world.volume(id).unwrap().provider_ref.clone();
    step(&mut bed, id, at(0), Call::Create, &lost);
    step(&mut bed, id, at(300), Call::Create, &lost);
    assert_eq!(
        bed.world.volume(id).unwrap().status,
        VolumeStatus::Submitted
    );
    assert_eq!(bed.world.volume(id).unwrap().provider_ref, reference);
    step(&mut bed, id, at(700), Call::Create, &lost);
    assert_eq!(bed.world.volume(id).unwrap().status, VolumeStatus::Failed);
    assert_eq!(bed.world.cleanup[0].provider_ref, *reference);
}

fn ask_deletion(bed: &mut Bed, id: VolumeId, now: Timestamp) {
    let changes = volumes::delete(bed.world.volume(id).unwrap(), USER);
    bed.world.request(changes, now).unwrap();
}

#[test]
fn section_7_row_4_a_made_volume_is_deleted_at_the_provider() {
    let mut bed = bed();
    let id = active(&mut bed, "data", json!({}));
    ask_deletion(&mut bed, id, at(5));
    let changes = step(&mut bed, id, at(5), Call::Delete, &Answer::NotYet);
    assert_eq!(changes.look_again, Some(Duration::from_secs(5)));
    let changes = step(&mut bed, id, at(10), Call::Delete, &Answer::Deleted);
    assert_eq!(messages(&changes), ["Volume deleted"]);
    assert_eq!(bed.world.volume(id).unwrap().deleted_at, Some(at(10)));
    let again = volumes::delete(bed.world.volume(id).unwrap(), USER);
    assert!(again.is_quiet());
}

#[test]
fn section_7_row_4_external_and_never_provisioned_volumes_are_only_crossed_out() {
    let mut bed = bed();
    let external = create(&mut bed, "old", json!({"volume_id": "d-9", "size": null}));
    step(
        &mut bed,
        external,
        at(1),
        Call::Register,
        &Answer::Made(Box::new(disk())),
    );
    let never = create(&mut bed, "never", json!({}));
    let failed = create(&mut bed, "failed", json!({}));
    step(
        &mut bed,
        failed,
        at(1),
        Call::Create,
        &Answer::Refused("no".into()),
    );
    for id in [external, never, failed] {
        ask_deletion(&mut bed, id, at(5));
        let changes = change(plan(&bed.world, id, at(5)));
        assert_eq!(messages(&changes), ["Volume deleted"]);
    }
}

#[test]
fn deletion_finds_what_an_order_without_an_answer_made() {
    let mut bed = bed();
    let id = create(&mut bed, "data", json!({}));
    step(
        &mut bed,
        id,
        at(1),
        Call::Create,
        &Answer::Unknown("broken".into()),
    );
    ask_deletion(&mut bed, id, at(2));
    step(
        &mut bed,
        id,
        at(20),
        Call::Create,
        &Answer::Made(Box::new(disk())),
    );
    assert_eq!(
        bed.world.volume(id).unwrap().status,
        VolumeStatus::Submitted
    );
    step(&mut bed, id, at(20), Call::Delete, &Answer::Deleted);
    assert!(bed.world.volume(id).unwrap().is_deleted());
}

#[test]
fn a_provider_that_does_not_delete_is_asked_for_a_while_and_named_in_the_end() {
    let mut bed = bed();
    let id = active(&mut bed, "data", json!({}));
    ask_deletion(&mut bed, id, at(5));
    let no = Answer::Refused("it is busy".into());
    step(&mut bed, id, at(5), Call::Delete, &no);
    assert!(!bed.world.volume(id).unwrap().is_deleted());
    let changes = step(&mut bed, id, at(5 + 16 * 60), Call::Delete, &no);
    assert!(bed.world.volume(id).unwrap().is_deleted());
    assert!(
        messages(&changes)[1].contains("d-1"),
        "{:?}",
        changes.events
    );
}

#[test]
fn section_7_auto_cleanup_counts_from_creation_and_from_the_last_job() {
    let mut bed = bed();
    let id = active(&mut bed, "data", json!({"auto_cleanup_duration": 100}));
    let wait = change(plan(&bed.world, id, at(40)));
    assert_eq!(wait, Changes::later(Duration::from_secs(60)));
    let end = change(plan(&bed.world, id, at(100)));
    assert!(end.guards.contains(&Guard::VolumeUnused(id)));
    assert_eq!(end.volumes[0].delete_asked, Some(true));
    let mut changes = Changes::default();
    changes
        .volume(&bed.world.volume(id).unwrap().clone())
        .last_job_at = Some(Some(at(90)));
    bed.world.request(changes, at(90)).unwrap();
    let wait = change(plan(&bed.world, id, at(100)));
    assert_eq!(wait, Changes::later(Duration::from_secs(90)));
    let kept = active(&mut bed, "kept", json!({"auto_cleanup_duration": -1}));
    assert_eq!(
        change(plan(&bed.world, kept, at(1_000_000))),
        Changes::nothing()
    );
}

#[test]
fn section_7_cost_is_the_monthly_price_over_thirty_days_for_the_age() {
    let mut bed = bed();
    let id = active(&mut bed, "data", json!({}));
    let row = bed.world.volume(id).unwrap();
    assert!((volumes::cost(row, at(86_400)) - 1.0).abs() < 1e-9);
    assert!((volumes::cost(row, at(8_640)) - 0.1).abs() < 1e-9);
}

/// Places the run's job on a new machine with its volume.
fn place(bed: &mut Bed) {
    let job = bed.job(0);
    bed.place(job, &offer(1.0, false), at(1));
}

#[test]
fn section_4_a_placed_job_has_its_volume_and_attaches_it_before_its_task() {
    let mut bed = bed();
    let id = active(&mut bed, "data", json!({}));
    place(&mut bed);
    let job = bed.job(0);
    let names = bed.world.job(job).unwrap().runtime_data.clone().unwrap();
    assert_eq!(names.volume_names, Some(vec!["data".to_owned()]));
    let view = bed.world.job_running(job, at(2)).unwrap();
    let job_running::Plan::Ask(ask) = job_running::plan(&view) else {
        panic!("it asks nobody");
    };
    assert!(matches!(&ask, job_running::Ask::Attach(volume) if volume.id == id));
    let not_yet = job_running::Answer::NotAttached {
        why: "it boots".into(),
        is_final: false,
    };
    let changes = job_running::conclude(&view, &ask, &not_yet);
    assert!(changes.jobs.is_empty() && changes.look_again.is_some());
    let never = job_running::Answer::NotAttached {
        why: "another zone".into(),
        is_final: true,
    };
    let changes = job_running::conclude(&view, &ask, &never);
    assert_eq!(
        changes.jobs[0].termination_reason,
        Some(Some(JobTerminationReason::VolumeError))
    );
    let done = job_running::Answer::Attached(Default::default());
    let changes = job_running::conclude(&view, &ask, &done);
    bed.world.request(changes, at(2)).unwrap();
    let view = bed.world.job_running(job, at(2)).unwrap();
    assert!(matches!(
        job_running::plan(&view),
        job_running::Plan::Ask(job_running::Ask::SubmitTask)
    ));
    assert_eq!(audit::world(&bed.world, at(2)), []);
}

#[test]
fn a_volume_in_use_is_not_deleted_and_not_given_to_another_job() {
    let mut bed = bed();
    let id = active(&mut bed, "data", json!({}));
    place(&mut bed);
    let changes = volumes::delete(bed.world.volume(id).unwrap(), USER);
    assert_eq!(
        bed.world.request(changes, at(2)),
        Err(Refusal::Guard(Guard::VolumeUnused(id)))
    );
    let job = bed.world.job(bed.job(0)).unwrap().clone();
    let volume = Arc::clone(bed.world.volume(id).unwrap());
    let named = |holders: Vec<JobStatus>| {
        [Named {
            volume: Arc::clone(&volume),
            holders,
        }]
    };
    let busy = mounts::choices(&job.spec, &named(vec![JobStatus::Running]));
    assert_eq!(
        busy,
        Err(Lack::Never("volume data is in use by another job".into()))
    );
    let leaving = mounts::choices(&job.spec, &named(vec![JobStatus::Terminating]));
    assert_eq!(leaving, Err(Lack::Soon));
}

#[test]
fn section_3_a_job_without_its_volume_ends_with_a_volume_error() {
    let mut bed = bed();
    let job = bed.job(0);
    let check = |bed: &mut Bed, message: &str| {
        let view = bed.world.job_submitted(job, at(1)).unwrap();
        let plan = dstack_engine::job_submitted::plan(&view, &mut bed.ids);
        let dstack_engine::job_submitted::Plan::Change(changes) = plan else {
            panic!("it goes on");
        };
        let patch = &changes.jobs[0];
        assert_eq!(
            patch.termination_reason,
            Some(Some(JobTerminationReason::VolumeError))
        );
        assert_eq!(
            patch.termination_reason_message,
            Some(Some(message.to_owned()))
        );
    };
    check(&mut bed, "volume data does not exist in the project");
    create(&mut bed, "data", json!({}));
    check(&mut bed, "volume data is submitted, not active");
}

#[test]
fn section_4_offers_away_from_the_volume_are_dropped() {
    let mut bed = bed();
    active(&mut bed, "data", json!({"region": "south"}));
    let view = bed.world.job_submitted(bed.job(0), at(1)).unwrap();
    let plan = dstack_engine::job_submitted::plan(&view, &mut bed.ids);
    let dstack_engine::job_submitted::Plan::AskOffers(asks) = plan else {
        panic!("it asks nobody");
    };
    let wanted = &asks[0].wanted;
    assert!(wanted.narrow(offer(1.0, false)).is_none(), "that is north");
    let mut south = offer(1.0, false);
    south.region = "South".into();
    assert!(wanted.narrow(south).is_some());
}

/// A job with an attached volume that ends.
fn ending(reason: JobTerminationReason) -> (Bed, VolumeId) {
    let mut bed = bed();
    let id = active(&mut bed, "data", json!({}));
    place(&mut bed);
    let job = bed.world.job(bed.job(0)).unwrap().clone();
    let mut changes = Changes::default();
    changes.job_ends(&job, reason, None);
    changes.job(&job).stop = Some(dstack_engine::model::Stop::Removed);
    bed.world.request(changes, at(10)).unwrap();
    (bed, id)
}

fn detach(bed: &mut Bed, now: Timestamp, answer: &job_terminating::Answer) -> bool {
    let view = bed.world.job_terminating(bed.job(0), now).unwrap();
    let job_terminating::Plan::Ask(ask) = job_terminating::plan(&view) else {
        panic!("it asks nobody");
    };
    let job_terminating::Ask::Detach { force, .. } = &ask else {
        panic!("it asks something else: {ask:?}");
    };
    let force = *force;
    let changes = job_terminating::conclude(&view, &ask, answer);
    bed.world.request(changes, now).unwrap();
    force
}

#[test]
fn section_3_terminating_volumes_come_off_before_the_job_is_over() {
    let (mut bed, id) = ending(JobTerminationReason::DoneByRunner);
    let busy = job_terminating::Answer::Failed("it is busy".into());
    assert!(!detach(&mut bed, at(11), &busy));
    assert!(!detach(&mut bed, at(15), &job_terminating::Answer::Done));
    assert_eq!(bed.world.holds_of(id).count(), 0);
    assert_eq!(bed.world.volume(id).unwrap().last_job_at, Some(at(15)));
    let job = bed.job(0);
    let view = bed.world.job_terminating(job, at(15)).unwrap();
    let job_terminating::Plan::Change(changes) = job_terminating::plan(&view) else {
        panic!("something is left");
    };
    bed.world.request(changes, at(15)).unwrap();
    assert_eq!(bed.world.job(job).unwrap().status, JobStatus::Done);
    assert_eq!(audit::world(&bed.world, at(15)), []);
}

#[test]
fn section_3_terminating_force_after_sixty_seconds_when_aborted() {
    let (mut bed, _) = ending(JobTerminationReason::AbortedByUser);
    let busy = job_terminating::Answer::Failed("it is busy".into());
    assert!(!detach(&mut bed, at(11), &busy));
    assert!(!detach(&mut bed, at(70), &busy));
    assert!(detach(&mut bed, at(71), &busy));
}

#[test]
fn a_machine_that_is_gone_has_let_go_of_its_volumes() {
    let (mut bed, id) = ending(JobTerminationReason::InstanceUnreachable);
    let job = bed.job(0);
    let instance = bed.world.job(job).unwrap().instance_id.unwrap();
    let mut row = bed.world.instance(instance).unwrap().clone();
    row.status = dstack_api::instances::InstanceStatus::Terminated;
    bed.world.put_instance(row);
    let view = bed.world.job_terminating(job, at(12)).unwrap();
    let job_terminating::Plan::Change(changes) = job_terminating::plan(&view) else {
        panic!("it asks somebody");
    };
    bed.world.request(changes, at(12)).unwrap();
    assert_eq!(bed.world.holds_of(id).count(), 0);
}

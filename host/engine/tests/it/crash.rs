use std::time::Duration;

use dstack_api::instances::InstanceStatus;
use dstack_api::jobs::JobStatus;
use dstack_engine::audit;
use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::job_submitted::{self, Attempt, Conclusion};
use dstack_engine::world::Refusal;
use serde_json::json;

use crate::support::{Bed, at, machine, offer};

#[test]
fn the_reference_is_stored_before_the_call() {
    let mut bed = Bed::new(json!({}), json!({}));
    let job = bed.job(0);
    let lease = bed.claim(Pipeline::JobsSubmitted, job.0, at(1));
    let (_, order) = bed.order(job, &[offer(1.0, false)], at(1));
    bed.world
        .checkpoint(&lease, order.before.clone(), at(1))
        .unwrap();
    let placeholder = bed.world.instance(order.instance_id).unwrap();
    assert_eq!(placeholder.attempt.as_ref(), Some(&order.attempt));
    assert_eq!(&*placeholder.name, "f-0");
    assert_eq!(
        bed.world.job(job).unwrap().instance_id,
        Some(order.instance_id)
    );
}

#[test]
fn a_step_that_died_in_the_call_leaves_its_reference_to_cleanup() {
    let mut bed = Bed::new(json!({}), json!({}));
    let job = bed.job(0);
    let lease = bed.claim(Pipeline::JobsSubmitted, job.0, at(1));
    let (_, first) = bed.order(job, &[offer(1.0, false)], at(1));
    bed.world
        .checkpoint(&lease, first.before.clone(), at(1))
        .unwrap();
    // Nothing more is heard of that replica; after its lease another one comes.
    let lease = bed.claim(Pipeline::JobsSubmitted, job.0, at(40));
    let (_, second) = bed.order(job, &[offer(1.0, false)], at(40));
    bed.world
        .checkpoint(&lease, second.before.clone(), at(40))
        .unwrap();
    assert_ne!(first.attempt.provider_ref, second.attempt.provider_ref);
    assert_eq!(first.instance_id, second.instance_id);
    let [row] = bed.world.cleanup.as_slice() else {
        panic!("{:?}", bed.world.cleanup)
    };
    assert_eq!(row.provider_ref, first.attempt.provider_ref);
    assert!(
        row.not_before > at(40),
        "the lost call may still be at work"
    );
}

#[test]
fn no_answer_means_a_new_reference_for_the_remaining_offers() {
    let mut bed = Bed::new(json!({}), json!({}));
    let job = bed.job(0);
    let (view, order) = bed.order(
        job,
        &[offer(1.0, false), offer(2.0, false), offer(3.0, false)],
        at(1),
    );
    let answers = [
        Attempt::Refused("none left".into()),
        Attempt::Unknown("time-out".into()),
    ];
    let Conclusion::Again(again) = job_submitted::conclude(&view, &order, &answers, &mut bed.ids)
    else {
        panic!("one offer is left");
    };
    assert_eq!(again.offers.len(), 1);
    assert_ne!(again.attempt.provider_ref, order.attempt.provider_ref);
    assert_eq!(
        again.before.cleanup[0].provider_ref,
        order.attempt.provider_ref
    );
    let answers = [Attempt::Refused("none left".into())];
    let Conclusion::Done(changes) = job_submitted::conclude(&view, &again, &answers, &mut bed.ids)
    else {
        panic!("no offer is left");
    };
    let message = changes.jobs[0]
        .termination_reason_message
        .clone()
        .unwrap()
        .unwrap();
    assert_eq!(message, "3 offers found, 3 tried: none left; time-out");
}

#[test]
fn a_stale_lease_writes_nothing_and_its_machine_goes_to_cleanup() {
    let mut bed = Bed::new(json!({}), json!({}));
    let job = bed.job(0);
    let slow = bed.claim(Pipeline::JobsSubmitted, job.0, at(1));
    let (view, order) = bed.order(job, &[offer(1.0, false)], at(1));
    bed.world
        .checkpoint(&slow, order.before.clone(), at(1))
        .unwrap();
    let _other = bed.claim(Pipeline::JobsSubmitted, job.0, at(40));
    let made = [Attempt::Made(Box::new(machine(&offer(1.0, false), None)))];
    let Conclusion::Done(changes) = job_submitted::conclude(&view, &order, &made, &mut bed.ids)
    else {
        panic!("the machine is made");
    };
    assert_eq!(bed.world.apply(&slow, changes, at(41)), Err(Refusal::Stale));
    assert_eq!(bed.world.job(job).unwrap().status, JobStatus::Submitted);
    assert_eq!(
        bed.world.cleanup[0].machine.as_ref().unwrap().instance_id,
        "m-1"
    );
}

#[test]
fn a_stop_during_the_call_loses_no_machine() {
    let mut bed = Bed::new(json!({}), json!({}));
    let job = bed.job(0);
    let lease = bed.claim(Pipeline::JobsSubmitted, job.0, at(1));
    let (view, order) = bed.order(job, &[offer(1.0, false)], at(1));
    bed.world
        .checkpoint(&lease, order.before.clone(), at(1))
        .unwrap();
    let run = bed.world.run(bed.run).unwrap();
    let stop = dstack_engine::runs::stop(run, false, run.user_id).unwrap();
    bed.world.request(stop, at(2)).unwrap();
    let made = [Attempt::Made(Box::new(machine(&offer(1.0, false), None)))];
    let Conclusion::Done(changes) = job_submitted::conclude(&view, &order, &made, &mut bed.ids)
    else {
        panic!("the machine is made");
    };
    assert!(matches!(
        bed.world.apply(&lease, changes, at(3)),
        Err(Refusal::Guard(_))
    ));
    bed.step_run(at(3));
    let view = bed.world.job_terminating(job, at(4)).unwrap();
    let dstack_engine::job_terminating::Plan::Change(changes) =
        dstack_engine::job_terminating::plan(&view)
    else {
        panic!("there is no container to ask for");
    };
    bed.world.request(changes, at(4)).unwrap();
    assert_eq!(bed.world.job(job).unwrap().status, JobStatus::Terminated);
    assert_eq!(
        bed.world.instance(order.instance_id).unwrap().status,
        InstanceStatus::Terminated
    );
    let known =
        |row: &dstack_engine::changes::CleanupRow| row.provider_ref == order.attempt.provider_ref;
    assert!(bed.world.cleanup.iter().filter(|row| known(row)).count() >= 1);
    assert_eq!(audit::world(&bed.world, at(5)), []);
}

#[test]
fn a_hint_during_a_lease_is_not_lost() {
    let mut bed = Bed::new(json!({}), json!({}));
    let run = bed.run;
    let lease = bed.claim(Pipeline::Runs, run.0, at(1));
    let mut hint = Changes::default();
    hint.hint(Pipeline::Runs, run);
    bed.world.request(hint, at(2)).unwrap();
    bed.world
        .apply(&lease, Changes::later(Duration::from_secs(600)), at(3))
        .unwrap();
    bed.claim(Pipeline::Runs, run.0, at(3));
}

#[test]
fn a_task_that_stays_is_tried_again_and_then_keeps_jobs_off_its_machine() {
    use dstack_engine::job_terminating::{Answer, Ask, conclude};
    let mut bed = Bed::new(json!({}), json!({}));
    let job = bed.job(0);
    let lease = bed.claim(Pipeline::JobsSubmitted, job.0, at(1));
    let (_, order) = bed.order(job, &[offer(1.0, false)], at(1));
    bed.world
        .checkpoint(&lease, order.before.clone(), at(1))
        .unwrap();
    let run = bed.world.run(bed.run).unwrap();
    let stop = dstack_engine::runs::stop(run, false, run.user_id).unwrap();
    bed.world.request(stop, at(2)).unwrap();
    bed.step_run(at(3));
    let mut view = bed.world.job_terminating(job, at(4)).unwrap();
    view.job.blocks = 1;
    let remove = Ask::Remove {
        reason: String::new(),
        message: String::new(),
    };
    let failed = Answer::Failed("no shim answers".to_owned());
    let first = conclude(&view, &remove, &failed);
    assert_eq!(first.look_again, Some(Duration::from_secs(1)));
    assert_eq!(first.jobs[0].remove_at, Some(Some(at(4))));
    assert!(first.jobs[0].status.is_none() && first.instances.is_empty());

    view.job.remove_at = Some(at(4));
    view.now = at(60);
    let last = conclude(&view, &remove, &failed);
    assert_eq!(last.jobs[0].status, Some(JobStatus::Terminated));
    assert_eq!(last.instances[0].unreachable, Some(true));
    assert_eq!(last.instances[0].health_checked_at, Some(None));
    // A machine that is known to be away costs no time.
    view.now = at(5);
    if let Some(instance) = &mut view.instance {
        instance.unreachable = true;
    }
    let away = conclude(&view, &remove, &failed);
    assert_eq!(away.jobs[0].status, Some(JobStatus::Terminated));
    assert_eq!(away.instances[0].unreachable, None);
    let done = conclude(&view, &remove, &Answer::Done);
    assert_eq!(done.jobs[0].status, Some(JobStatus::Terminated));
}

use dstack_api::jobs::{JobStatus, JobTerminationReason as Reason};
use dstack_api::runs::{RunStatus, RunTerminationReason};
use dstack_engine::job_running::{self, Plan};
use dstack_engine::model::Stop;
use serde_json::json;

use crate::support::{Bed, at, offer};

fn end(bed: &mut Bed, job_num: u32, status: JobStatus, reason: Reason) {
    let mut job = bed.world.job(bed.job(job_num)).unwrap().clone();
    job.status = status;
    job.termination_reason = Some(reason);
    bed.world.put_job(job);
}

fn status(bed: &Bed) -> (RunStatus, Option<RunTerminationReason>) {
    let run = bed.world.run(bed.run).unwrap();
    (run.status, run.termination_reason)
}

fn cluster(run: serde_json::Value) -> Bed {
    let mut both = json!({"nodes": 2});
    both.as_object_mut()
        .unwrap()
        .extend(run.as_object().unwrap().clone());
    let mut bed = Bed::new(json!({"placement": "cluster"}), both);
    let (first, second) = (bed.job(0), bed.job(1));
    bed.place(first, &offer(1.0, false), at(1));
    bed.place(second, &offer(1.0, false), at(2));
    bed
}

#[test]
fn a_worker_waits_for_job_0_and_is_released_by_it() {
    let mut bed = Bed::new(json!({"placement": "cluster"}), json!({"nodes": 2}));
    let worker = bed.job(1);
    let view = bed.world.job_submitted(worker, at(1)).unwrap();
    let plan = dstack_engine::job_submitted::plan(&view, &mut bed.ids);
    assert!(
        matches!(plan, dstack_engine::job_submitted::Plan::Change(changes) if changes.is_quiet())
    );
    let first = bed.job(0);
    bed.place(first, &offer(1.0, false), at(1));
    assert!(bed.world.job(worker).unwrap().released);
    bed.claim(
        dstack_engine::changes::Pipeline::JobsSubmitted,
        worker.0,
        at(1),
    );
}

#[test]
fn jobs_that_end_well_seconds_apart_end_the_run_once() {
    let mut bed = cluster(json!({}));
    bed.step_run(at(3));
    assert_eq!(status(&bed).0, RunStatus::Provisioning);
    end(&mut bed, 1, JobStatus::Terminating, Reason::DoneByRunner);
    bed.step_run(at(4));
    assert_eq!(
        status(&bed).0,
        RunStatus::Provisioning,
        "job 0 is still at work"
    );
    end(&mut bed, 0, JobStatus::Done, Reason::DoneByRunner);
    bed.step_run(at(5));
    assert_eq!(
        status(&bed),
        (
            RunStatus::Terminating,
            Some(RunTerminationReason::AllJobsDone)
        )
    );
}

#[test]
fn one_failed_node_ends_the_whole_run() {
    let mut bed = cluster(json!({}));
    end(
        &mut bed,
        1,
        JobStatus::Failed,
        Reason::ContainerExitedWithError,
    );
    bed.step_run(at(4));
    assert_eq!(
        status(&bed),
        (
            RunStatus::Terminating,
            Some(RunTerminationReason::JobFailed)
        )
    );
    bed.step_run(at(5));
    let first = bed.world.job(bed.job(0)).unwrap();
    assert_eq!(
        (first.status, first.termination_reason),
        (JobStatus::Terminating, Some(Reason::TerminatedByServer))
    );
}

#[test]
fn an_interrupted_node_takes_the_replica_back_to_pending_and_it_comes_again() {
    let mut bed = cluster(json!({"retry": true}));
    bed.step_run(at(3));
    end(
        &mut bed,
        1,
        JobStatus::Failed,
        Reason::InterruptedByNoCapacity,
    );
    bed.step_run(at(4));
    assert_eq!(status(&bed).0, RunStatus::Pending);
    let first = bed.world.job(bed.job(0)).unwrap();
    assert_eq!(
        (first.status, first.termination_reason),
        (JobStatus::Terminating, Some(Reason::TerminatedByServer))
    );
    assert_eq!(bed.world.run(bed.run).unwrap().fleet_id, None);
    bed.step_run(at(10));
    assert_eq!(status(&bed).0, RunStatus::Pending, "the delay is 15 s");
    bed.step_run(at(60));
    assert_eq!(status(&bed).0, RunStatus::Submitted);
    for num in [0, 1] {
        let job = bed.world.job(bed.job(num)).unwrap();
        assert_eq!(
            (job.submission_num, job.status, job.released),
            (1, JobStatus::Submitted, num == 0)
        );
    }
}

#[test]
fn master_done_ends_the_others() {
    let mut bed = cluster(json!({"stop_criteria": "master-done"}));
    end(&mut bed, 0, JobStatus::Done, Reason::DoneByRunner);
    bed.step_run(at(4));
    assert_eq!(
        status(&bed),
        (
            RunStatus::Terminating,
            Some(RunTerminationReason::AllJobsDone)
        )
    );
}

#[test]
fn master_first_keeps_the_worker_from_its_machine() {
    let bed = cluster(json!({"startup_order": "master-first"}));
    let view = |num| bed.world.job_running(bed.job(num), at(3)).unwrap();
    assert!(matches!(
        job_running::plan(&view(0)),
        Plan::Ask(job_running::Ask::SubmitTask)
    ));
    assert!(matches!(job_running::plan(&view(1)), Plan::Change(_)));
}

#[test]
fn a_later_stop_replaces_the_reason() {
    let mut bed = Bed::new(json!({}), json!({}));
    for (abort, reason) in [
        (false, RunTerminationReason::StoppedByUser),
        (true, RunTerminationReason::AbortedByUser),
    ] {
        let run = bed.world.run(bed.run).unwrap();
        let changes = dstack_engine::runs::stop(run, abort, run.user_id).unwrap();
        bed.world.request(changes, at(1)).unwrap();
        assert_eq!(status(&bed), (RunStatus::Terminating, Some(reason)));
    }
}

#[test]
fn an_abort_after_a_stop_ends_the_grace_time() {
    let mut bed = Bed::new(json!({}), json!({}));
    let id = bed.job(0);
    let mut job = bed.world.job(id).unwrap().clone();
    job.status = JobStatus::Running;
    bed.world.put_job(job);
    let ask = |bed: &mut Bed, abort, second| {
        let run = bed.world.run(bed.run).unwrap();
        let changes = dstack_engine::runs::stop(run, abort, run.user_id).unwrap();
        bed.world.request(changes, at(second)).unwrap();
        bed.step_run(at(second));
        let job = bed.world.job(id).unwrap();
        (job.status, job.termination_reason, job.stop)
    };
    let stopped = ask(&mut bed, false, 1);
    let (status, reason) = (JobStatus::Terminating, Reason::TerminatedByUser);
    assert_eq!(stopped, (status, Some(reason), Stop::Requested));
    let aborted = ask(&mut bed, true, 2);
    assert_eq!(aborted, (status, Some(Reason::AbortedByUser), Stop::Hard));
}

#[test]
fn the_next_job_reuses_the_idle_machine() {
    the_next_job_takes(dstack_api::instances::InstanceStatus::Idle);
}

/// Its blocks are free as soon as the job before has ended; the machine's own step, which makes it idle, may come later.
#[test]
fn the_next_job_reuses_a_machine_that_was_freed_a_moment_ago() {
    the_next_job_takes(dstack_api::instances::InstanceStatus::Busy);
}

fn the_next_job_takes(status: dstack_api::instances::InstanceStatus) {
    let mut bed = Bed::new(json!({"nodes": "0..1"}), json!({}));
    let first = bed.job(0);
    bed.place(first, &offer(1.0, false), at(1));
    let id = bed.world.job(first).unwrap().instance_id.unwrap();
    let mut instance = bed.world.instance(id).unwrap().clone();
    instance.status = status;
    instance.busy_blocks = 0;
    bed.world.put_instance(instance);
    let mut job = bed.world.job(first).unwrap().clone();
    job = dstack_engine::admit::again(&job, dstack_engine::ids::JobId(bed.ids.uuid()), 0, at(5));
    let second = job.id;
    bed.world.put_job(job);
    let view = bed.world.job_submitted(second, at(6)).unwrap();
    let dstack_engine::job_submitted::Plan::Change(changes) =
        dstack_engine::job_submitted::plan(&view, &mut bed.ids)
    else {
        panic!("no backend is asked");
    };
    assert_eq!(changes.jobs[0].instance_id, Some(Some(id)));
    assert_eq!(changes.instances[0].busy_blocks_delta, 1);
    assert_eq!(bed.fleet, view.fleets[0].fleet.id);
}

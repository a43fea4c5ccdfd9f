//! `lifecycles`, section 3: jobs.

use std::time::Duration;

use dstack_api::instances::{InstanceStatus, InstanceTerminationReason};
use dstack_api::jobs::{
    JobStatus as J, JobTerminationReason as Reason, RetryEvent, status_message,
};
use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::ids::JobId;
use dstack_engine::job_running::{self, Answer, Ask, Ended, Plan, Pulled, TaskState};
use dstack_engine::job_terminating;
use dstack_engine::model::Stop;
use dstack_engine::view::{BackendAbilities, provisioning_timeout};
use serde_json::{Value, json};

use crate::support::{Bed, at, machine, offer};

#[test]
fn s3_termination_reasons() {
    use RetryEvent::{Error, Interruption, NoCapacity};
    let table = [
        (
            Reason::FailedToStartDueToNoCapacity,
            J::Failed,
            Some(NoCapacity),
            None,
        ),
        (
            Reason::InterruptedByNoCapacity,
            J::Failed,
            Some(Interruption),
            None,
        ),
        (
            Reason::InstanceUnreachable,
            J::Failed,
            Some(Error),
            Some("instance unreachable"),
        ),
        (
            Reason::InstanceAccessRevoked,
            J::Failed,
            Some(Error),
            Some("instance access revoked"),
        ),
        (
            Reason::WaitingInstanceLimitExceeded,
            J::Failed,
            Some(Error),
            Some("waiting instance limit exceeded"),
        ),
        (
            Reason::WaitingRunnerLimitExceeded,
            J::Failed,
            Some(Error),
            Some("waiting runner limit exceeded"),
        ),
        (Reason::TerminatedByUser, J::Terminated, None, None),
        (
            Reason::VolumeError,
            J::Failed,
            Some(Error),
            Some("volume error"),
        ),
        (
            Reason::GatewayError,
            J::Failed,
            Some(Error),
            Some("gateway error"),
        ),
        (Reason::ScaledDown, J::Terminated, None, Some("scaled down")),
        (Reason::DoneByRunner, J::Done, None, None),
        (Reason::AbortedByUser, J::Aborted, None, None),
        (Reason::TerminatedByServer, J::Terminated, None, None),
        (
            Reason::InactivityDurationExceeded,
            J::Terminated,
            None,
            Some("inactivity duration exceeded"),
        ),
        (
            Reason::TerminatedDueToUtilizationPolicy,
            J::Terminated,
            None,
            Some("utilization policy"),
        ),
        (
            Reason::ContainerExitedWithError,
            J::Failed,
            Some(Error),
            None,
        ),
        (
            Reason::PortsBindingFailed,
            J::Failed,
            Some(Error),
            Some("ports binding failed"),
        ),
        (
            Reason::CreatingContainerError,
            J::Failed,
            Some(Error),
            Some("runner error"),
        ),
        (
            Reason::ExecutorError,
            J::Failed,
            Some(Error),
            Some("executor error"),
        ),
        (
            Reason::MaxDurationExceeded,
            J::Terminated,
            None,
            Some("max duration exceeded"),
        ),
        (
            Reason::LogQuotaExceeded,
            J::Failed,
            Some(Error),
            Some("log quota exceeded"),
        ),
    ];
    assert_eq!(table.len(), Reason::ALL.len());
    for (reason, status, event, error) in table {
        assert_eq!(
            (reason.status(), reason.retry_event(), reason.error()),
            (status, event, error),
            "{reason}"
        );
    }
}

#[test]
fn s3_status_messages() {
    let table = [
        (J::Done, Reason::DoneByRunner, None, Some(0), "exited (0)"),
        (
            J::Failed,
            Reason::ContainerExitedWithError,
            None,
            Some(3),
            "exited (3)",
        ),
        (
            J::Failed,
            Reason::FailedToStartDueToNoCapacity,
            Some("No matching fleet found: all full"),
            None,
            "no fleets",
        ),
        (
            J::Failed,
            Reason::FailedToStartDueToNoCapacity,
            Some("3 offers found"),
            None,
            "no capacity",
        ),
        (
            J::Failed,
            Reason::InterruptedByNoCapacity,
            None,
            None,
            "interrupted",
        ),
        (J::Failed, Reason::InstanceUnreachable, None, None, "error"),
        (
            J::Terminated,
            Reason::TerminatedByUser,
            None,
            None,
            "stopped",
        ),
        (J::Aborted, Reason::AbortedByUser, None, None, "aborted"),
        (
            J::Terminated,
            Reason::MaxDurationExceeded,
            None,
            None,
            "terminated",
        ),
    ];
    for (status, reason, message, exit, shown) in table {
        assert_eq!(
            status_message(status, Some(reason), message, exit),
            shown,
            "{reason}"
        );
    }
}

/// A job on a machine with an address, standing as asked.
fn placed(run: Value, status: J) -> (Bed, JobId) {
    let mut bed = Bed::new(json!({}), run);
    let id = bed.job(0);
    bed.place(id, &offer(1.0, false), at(0));
    bed.set(id, |job| {
        job.status = status;
        if status == J::Running {
            job.started_at = Some(at(0));
        }
    });
    (bed, id)
}

fn plan_at(bed: &Bed, id: JobId, now: i64) -> Plan {
    job_running::plan(&bed.world.job_running(id, at(now)).unwrap())
}

fn ends(plan: Plan) -> Option<Reason> {
    match plan {
        Plan::Change(changes) => changes.jobs.first()?.termination_reason?,
        Plan::Ask(_) => None,
    }
}

fn answer(bed: &Bed, id: JobId, ask: &Ask, answer: &Answer, now: i64) -> Changes {
    job_running::conclude(&bed.world.job_running(id, at(now)).unwrap(), ask, answer)
}

fn pulled(no_connections_secs: Option<i64>, ended: Option<(bool, &str)>) -> Answer {
    Answer::Pulled(Pulled {
        stored: true,
        news: false,
        last_updated: 5,
        no_connections_secs,
        ended: ended.map(|(done, reason)| Ended {
            done,
            reason: reason.into(),
            message: String::new(),
            exit_status: Some(i64::from(!done)),
        }),
    })
}

const PULL: Ask = Ask::Pull { since: 0 };

#[test]
fn s3_transitions_of_a_placed_job() {
    let (mut bed, id) = placed(json!({}), J::Provisioning);
    assert!(matches!(plan_at(&bed, id, 1), Plan::Ask(Ask::SubmitTask)));
    let changes = answer(&bed, id, &Ask::SubmitTask, &Answer::TaskTaken, 1);
    bed.world.request(changes, at(1)).unwrap();
    assert_eq!(bed.world.job(id).unwrap().status, J::Pulling);
    assert!(matches!(plan_at(&bed, id, 2), Plan::Ask(Ask::TaskInfo)));
    let task = TaskState {
        running: true,
        ended: None,
        ports: Some([(10_999, 4000)].into()),
    };
    let changes = answer(&bed, id, &Ask::TaskInfo, &Answer::Task(task), 2);
    bed.world.request(changes, at(2)).unwrap();
    assert!(matches!(
        plan_at(&bed, id, 3),
        Plan::Ask(Ask::StartRunner(_))
    ));
    let started = Answer::Started {
        working_dir: Some("/w".into()),
        username: None,
    };
    let changes = answer(
        &bed,
        id,
        &Ask::StartRunner(job_running::Cluster::default()),
        &started,
        3,
    );
    bed.world.request(changes, at(3)).unwrap();
    let job = bed.world.job(id).unwrap();
    assert_eq!((job.status, job.started_at), (J::Running, Some(at(3))));
    let changes = answer(&bed, id, &PULL, &pulled(None, Some((true, ""))), 4);
    bed.world.request(changes, at(4)).unwrap();
    let job = bed.world.job(id).unwrap();
    assert_eq!(
        (job.status, job.termination_reason),
        (J::Terminating, Some(Reason::DoneByRunner))
    );
    assert_eq!(job.exit_status, Some(0));
}

#[test]
fn s3_ends_by_the_clock_and_by_rows() {
    let dev = json!({"type": "dev-environment", "inactivity_duration": "1h"});
    let long = json!({"max_duration": 100});
    // Row, keys, status, change of the world, when, reason.
    type Change = fn(&mut Bed, JobId);
    let table: &[(&str, Value, J, Change, i64, Option<Reason>)] = &[
        (
            "no provisioning data",
            json!({}),
            J::Provisioning,
            |bed, id| bed.set(id, |job| job.provisioning_data = None),
            1,
            Some(Reason::TerminatedByServer),
        ),
        (
            "instance ended while waiting",
            json!({}),
            J::Provisioning,
            |bed, id| {
                let instance = bed.world.job(id).unwrap().instance_id.unwrap();
                bed.set_instance(instance, |row| row.status = InstanceStatus::Terminating);
            },
            1,
            Some(Reason::WaitingInstanceLimitExceeded),
        ),
        (
            "not ready in time",
            json!({}),
            J::Provisioning,
            |_, _| {},
            601,
            Some(Reason::WaitingRunnerLimitExceeded),
        ),
        (
            "still in time",
            json!({}),
            J::Provisioning,
            |_, _| {},
            600,
            None,
        ),
        (
            "max_duration and grace",
            long.clone(),
            J::Running,
            |_, _| {},
            221,
            Some(Reason::MaxDurationExceeded),
        ),
        ("within the grace", long, J::Running, |_, _| {}, 220, None),
        (
            "dev environment by the clock alone",
            dev,
            J::Running,
            |_, _| {},
            9999,
            None,
        ),
    ];
    for (row, keys, status, change, now, wanted) in table {
        let (mut bed, id) = placed(keys.clone(), *status);
        change(&mut bed, id);
        assert_eq!(ends(plan_at(&bed, id, *now)), *wanted, "{row}");
    }
    let (bed, id) = placed(json!({}), J::Running);
    let mut view = bed.world.job_running(id, at(1)).unwrap();
    view.access_revoked = true;
    assert_eq!(
        ends(job_running::plan(&view)),
        Some(Reason::InstanceAccessRevoked),
        "any: not imported any more"
    );
}

#[test]
fn s3_ends_by_answers() {
    let dev = json!({"type": "dev-environment", "inactivity_duration": "1h"});
    let task = |reason: &str| {
        Answer::Task(TaskState {
            running: false,
            ended: Some((reason.into(), String::new())),
            ports: None,
        })
    };
    let table: &[(&str, Value, J, Ask, Answer, Option<Reason>)] = &[
        (
            "pulling: the shim's reason",
            json!({}),
            J::Pulling,
            Ask::TaskInfo,
            task("creating_container_error"),
            Some(Reason::CreatingContainerError),
        ),
        (
            "pulling: ports",
            json!({}),
            J::Pulling,
            Ask::TaskInfo,
            task("ports_binding_failed"),
            Some(Reason::PortsBindingFailed),
        ),
        (
            "pulling: an unknown word",
            json!({}),
            J::Pulling,
            Ask::TaskInfo,
            task("whatever"),
            Some(Reason::ExecutorError),
        ),
        (
            "before running: a reference fails",
            json!({}),
            J::Pulling,
            Ask::TaskInfo,
            Answer::Impossible("no secret".into()),
            Some(Reason::TerminatedByServer),
        ),
        (
            "runner says done",
            json!({}),
            J::Running,
            PULL,
            pulled(None, Some((true, ""))),
            Some(Reason::DoneByRunner),
        ),
        (
            "runner says failed",
            json!({}),
            J::Running,
            PULL,
            pulled(None, Some((false, ""))),
            Some(Reason::ContainerExitedWithError),
        ),
        (
            "runner's reason",
            json!({}),
            J::Running,
            PULL,
            pulled(None, Some((false, "log_quota_exceeded"))),
            Some(Reason::LogQuotaExceeded),
        ),
        (
            "runner's max_duration",
            json!({}),
            J::Running,
            PULL,
            pulled(None, Some((false, "max_duration_exceeded"))),
            Some(Reason::MaxDurationExceeded),
        ),
        (
            "inactivity reached",
            dev.clone(),
            J::Running,
            PULL,
            pulled(Some(3600), None),
            Some(Reason::InactivityDurationExceeded),
        ),
        (
            "inactivity not reached",
            dev.clone(),
            J::Running,
            PULL,
            pulled(Some(3599), None),
            None,
        ),
        (
            "a runner that cannot tell",
            dev,
            J::Running,
            PULL,
            pulled(None, None),
            Some(Reason::InterruptedByNoCapacity),
        ),
        (
            "others need not tell",
            json!({}),
            J::Running,
            PULL,
            pulled(None, None),
            None,
        ),
    ];
    for (row, keys, status, ask, said, wanted) in table {
        let (bed, id) = placed(keys.clone(), *status);
        let changes = answer(&bed, id, ask, said, 10);
        let reason = changes
            .jobs
            .first()
            .and_then(|job| job.termination_reason)
            .flatten();
        assert_eq!(reason, *wanted, "{row}");
    }
}

#[test]
fn s3_logs_that_are_not_stored_hold_everything() {
    let (bed, id) = placed(json!({}), J::Running);
    let Answer::Pulled(mut end) = pulled(None, Some((true, ""))) else {
        panic!()
    };
    end.stored = false;
    let changes = answer(&bed, id, &PULL, &Answer::Pulled(end), 10);
    assert!(
        changes.jobs.is_empty(),
        "neither the position nor the end: {changes:?}"
    );
    assert!(changes.look_again.is_some());
}

#[test]
fn s3_waiting_rules() {
    // Startup order, who asks, where the other one stands, whether it may go on.
    let table = [
        ("any", 0, J::Provisioning, true),
        ("any", 1, J::Provisioning, true),
        ("master-first", 0, J::Provisioning, true),
        ("master-first", 1, J::Pulling, false),
        ("master-first", 1, J::Running, true),
        ("master-first", 1, J::Done, true),
        ("workers-first", 1, J::Provisioning, true),
        ("workers-first", 0, J::Pulling, false),
        ("workers-first", 0, J::Running, true),
        ("workers-first", 0, J::Done, true),
    ];
    for (order, who, other, goes_on) in table {
        let mut bed = Bed::new(
            json!({"placement": "cluster"}),
            json!({"nodes": 2, "startup_order": order}),
        );
        for num in [0, 1] {
            let id = bed.job(num);
            bed.place(id, &offer(1.0, false), at(0));
        }
        let sibling = bed.job(1 - who);
        bed.set(sibling, |job| {
            job.status = other;
            job.started_at = matches!(other, J::Running | J::Done).then(|| at(0));
        });
        let plan = plan_at(&bed, bed.job(who), 1);
        assert_eq!(
            matches!(plan, Plan::Ask(_)),
            goes_on,
            "{order}, job {who} while the other is {other}"
        );
    }
    // A sibling without an address, or that ended before it had one.
    for ended in [false, true] {
        let mut bed = Bed::new(json!({"placement": "cluster"}), json!({"nodes": 2}));
        let (first, second) = (bed.job(0), bed.job(1));
        bed.place(first, &offer(1.0, false), at(0));
        if ended {
            bed.set(second, |job| job.status = J::Failed);
        }
        assert!(
            matches!(plan_at(&bed, first, 1), Plan::Change(changes) if changes.jobs.is_empty())
        );
    }
}

#[test]
fn s3_provisioning_timeouts() {
    let backend = |name: &'static str, seconds| BackendAbilities {
        name: dstack_backend_types::BackendType::new(name),
        creates_instances: true,
        multinode: false,
        reservations: false,
        privileged: false,
        instance_mounts: false,
        provisioning_timeout: Duration::from_secs(seconds),
    };
    let known = [backend("lambda", 1800), backend("aws", 600)];
    let table = [
        ("lambda", "gpu_1x", 30),
        ("aws", "p5", 10),
        ("unheard", "x", 10),
        ("oci", "BM.GPU", 20),
        ("oci", "VM.GPU", 10),
        ("vultr", "vbm-8", 55),
        ("vultr", "vcg", 10),
        ("gcp", "a4-highgpu-8g", 16),
        ("gcp", "a3-highgpu-8g", 10),
    ];
    for (name, instance, minutes) in table {
        let mut offer = offer(1.0, false);
        offer.backend = dstack_backend_types::BackendType::new(name);
        offer.instance.name = instance.into();
        let time = provisioning_timeout(&known, Some(&offer));
        assert_eq!(time.as_secs(), minutes * 60, "{name} {instance}");
    }
}

fn terminating(bed: &Bed, id: JobId, now: i64) -> (job_terminating::View, job_terminating::Plan) {
    let view = bed.world.job_terminating(id, at(now)).unwrap();
    let plan = job_terminating::plan(&view);
    (view, plan)
}

#[test]
fn s3_terminating_without_a_machine_is_final_at_once() {
    let mut bed = Bed::new(json!({}), json!({}));
    let id = bed.job(0);
    bed.set(id, |job| {
        job.status = J::Terminating;
        job.termination_reason = Some(Reason::VolumeError);
    });
    let (_, job_terminating::Plan::Change(changes)) = terminating(&bed, id, 1) else {
        panic!()
    };
    bed.world.request(changes, at(1)).unwrap();
    let job = bed.world.job(id).unwrap();
    assert_eq!((job.status, job.finished_at), (J::Failed, Some(at(1))));
}

#[test]
fn s3_terminating_steps() {
    use job_terminating::{Answer as Said, Ask as Asked, Plan as Next};
    let (mut bed, id) = placed(json!({}), J::Running);
    bed.set(id, |job| {
        job.status = J::Terminating;
        job.termination_reason = Some(Reason::TerminatedByUser);
        job.stop = Stop::Requested;
    });
    // First pass: the runner is asked; then up to 30 s for the last logs.
    let (view, Next::Ask(ask)) = terminating(&bed, id, 10) else {
        panic!()
    };
    assert_eq!(ask, Asked::Stop { abort: false });
    bed.world
        .request(job_terminating::conclude(&view, &ask, &Said::Done), at(10))
        .unwrap();
    assert_eq!(bed.world.job(id).unwrap().remove_at, Some(at(40)));
    // Until then each pass pulls; it goes on as soon as there is no more.
    let more = Pulled {
        stored: true,
        news: true,
        last_updated: 7,
        no_connections_secs: None,
        ended: None,
    };
    let (view, Next::Ask(ask)) = terminating(&bed, id, 11) else {
        panic!()
    };
    assert!(matches!(ask, Asked::Pull { .. }));
    bed.world
        .request(
            job_terminating::conclude(&view, &ask, &Said::Pulled(more.clone(), true)),
            at(11),
        )
        .unwrap();
    assert_eq!(bed.world.job(id).unwrap().runner_timestamp, 7);
    for (said, goes_on) in [
        (Said::Pulled(more, false), true),
        (Said::Failed("gone".into()), true),
    ] {
        let (view, Next::Ask(ask)) = terminating(&bed, id, 12) else {
            panic!()
        };
        let changes = job_terminating::conclude(&view, &ask, &said);
        assert_eq!(changes.jobs[0].remove_at.is_some(), goes_on, "{said:?}");
    }
    // The time is over: the shim removes the task.
    let (view, Next::Ask(ask)) = terminating(&bed, id, 40) else {
        panic!()
    };
    assert!(matches!(ask, Asked::Remove { .. }));
    let away = job_terminating::conclude(&view, &ask, &Said::Failed("no answer".into()));
    assert!(
        away.freed.is_empty() && away.look_again.is_some(),
        "tried for a while"
    );
    let changes = job_terminating::conclude(&view, &ask, &Said::Done);
    assert_eq!(changes.freed, [bed.fleet]);
    bed.world.request(changes, at(40)).unwrap();
    let job = bed.world.job(id).unwrap();
    assert_eq!(
        (job.status, job.blocks, job.registered),
        (J::Terminated, 0, false)
    );
    let instance = job.instance_id.unwrap();
    assert_eq!(bed.world.instance(instance).unwrap().busy_blocks, 0);
    bed.set_instance(instance, |row| row.status = InstanceStatus::Busy);
    // The last job on a busy machine: idle.
    let dstack_engine::instances::Plan::Change(changes) = bed.plan_instance(instance, at(41))
    else {
        panic!()
    };
    assert_eq!(changes.instances[0].status, Some(InstanceStatus::Idle));
}

#[test]
fn s3_terminating_tasks_can_be_kept() {
    let (mut bed, id) = placed(json!({}), J::Terminating);
    bed.set(id, |job| {
        job.termination_reason = Some(Reason::AbortedByUser)
    });
    let (mut view, plan) = terminating(&bed, id, 1);
    assert!(matches!(
        plan,
        job_terminating::Plan::Ask(job_terminating::Ask::Remove { .. })
    ));
    let mut limits = (*view.limits).clone();
    limits.remove_containers = false;
    view.limits = std::sync::Arc::new(limits);
    assert!(matches!(
        job_terminating::plan(&view),
        job_terminating::Plan::Change(_)
    ));
}

#[test]
fn s3_terminating_a_container_that_was_the_machine_ends_it() {
    let mut bed = Bed::new(json!({}), json!({}));
    let id = bed.job(0);
    let mut container = offer(1.0, false);
    container.instance_runtime = dstack_backend_types::InstanceRuntime::Runner;
    bed.place(id, &container, at(0));
    let instance = bed.world.job(id).unwrap().instance_id.unwrap();
    assert_eq!(bed.world.instance(instance).unwrap().idle_limit, Some(0));
    bed.set(id, |job| {
        job.status = J::Terminating;
        job.termination_reason = Some(Reason::DoneByRunner);
    });
    let (_, job_terminating::Plan::Change(changes)) = terminating(&bed, id, 1) else {
        panic!("no shim is asked")
    };
    bed.world.request(changes, at(1)).unwrap();
    bed.set_instance(instance, |row| row.status = InstanceStatus::Busy);
    let dstack_engine::instances::Plan::Change(changes) = bed.plan_instance(instance, at(2)) else {
        panic!()
    };
    let reason = changes.instances[0].termination_reason.flatten();
    assert_eq!(reason, Some(InstanceTerminationReason::JobFinished));
}

#[test]
fn s3_an_address_reaches_the_job_and_its_siblings() {
    let mut bed = Bed::new(json!({"placement": "cluster"}), json!({"nodes": 2}));
    let id = bed.job(0);
    bed.place(id, &offer(1.0, false), at(0));
    bed.set(id, |job| {
        job.provisioning_data = Some(std::sync::Arc::new(machine(&offer(1.0, false), None)))
    });
    let instance = bed.world.job(id).unwrap().instance_id.unwrap();
    bed.set_instance(instance, |row| {
        row.provisioning_data = Some(std::sync::Arc::new(machine(&offer(1.0, false), None)))
    });
    let view = bed.world.instance_view(instance, at(1)).unwrap();
    let dstack_engine::instances::Plan::Ask(ask) =
        dstack_engine::instances::plan(&view, &mut bed.ids)
    else {
        panic!()
    };
    let said = dstack_engine::instances::Answer::Address(Box::new(machine(
        &offer(1.0, false),
        Some("10.0.0.1"),
    )));
    let changes = dstack_engine::instances::conclude(&view, &ask, &said);
    bed.world.request(changes, at(1)).unwrap();
    let data = bed
        .world
        .job(id)
        .unwrap()
        .provisioning_data
        .clone()
        .unwrap();
    assert_eq!(data.hostname.as_deref(), Some("10.0.0.1"));
    bed.claim(Pipeline::JobsRunning, id.0, at(1));
}

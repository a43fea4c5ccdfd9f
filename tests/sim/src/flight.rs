//! Steps of pipelines: what the shells of the server do, with model clouds.

use std::time::Instant;

use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::ids::{FleetId, Ids, InstanceId, JobId, RunId, VolumeId};
use dstack_engine::job_submitted::Attempt;
use dstack_engine::view::FleetOffers;
use dstack_engine::world::{Lease, World};
use dstack_engine::{
    fleets, instances, job_running, job_submitted, job_terminating, offers, runs, volumes,
};
use jiff::Timestamp;

use crate::cloud::Cloud;

/// A step whose call is on its way.
#[derive(Debug)]
pub(crate) enum Call {
    Job(
        Box<job_submitted::View>,
        Box<job_submitted::Provision>,
        Vec<Attempt>,
    ),
    Instance(
        Box<instances::View>,
        Box<instances::Provision>,
        Vec<Attempt>,
    ),
    Machine(Box<instances::View>, instances::Ask),
    Running(Box<job_running::View>, job_running::Ask),
    Terminating(Box<job_terminating::View>, job_terminating::Ask),
    Volume(Box<volumes::View>, volumes::Call),
}

/// What comes next in a step.
#[derive(Debug)]
pub(crate) enum Next {
    /// Write this and free the row.
    Write(Changes),
    /// Write this first, keeping the row; then the call goes out.
    Order(Changes, Call),
    /// The call goes out.
    Ask(Call),
    /// The row is gone.
    Nothing,
}

/// Measures what the engine itself costs.
#[derive(Debug, Default, Clone, Copy)]
pub struct Meter {
    /// Decisions: one `plan` or one `conclude`.
    pub decisions: u64,
    /// Steps: a claimed row.
    pub steps: u64,
    nanos: u128,
}

impl Meter {
    fn measure<T>(&mut self, decide: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let out = decide();
        self.nanos += start.elapsed().as_nanos();
        self.decisions += 1;
        out
    }

    /// Average cost of a step's `plan` and `conclude` together, in microseconds.
    #[allow(clippy::cast_precision_loss, reason = "a number for people")]
    pub fn micros_per_step(&self) -> f64 {
        self.nanos as f64 / 1000.0 / self.steps.max(1) as f64
    }
}

/// Begins the step of a claimed row.
pub(crate) fn begin(
    world: &World,
    cloud: &Cloud,
    lease: &Lease,
    now: Timestamp,
    ids: &mut Ids,
    meter: &mut Meter,
) -> Next {
    meter.steps += 1;
    match lease.pipeline {
        Pipeline::Runs => match world.run_view(RunId(lease.id), now) {
            Some(view) => Next::Write(meter.measure(|| runs::plan(&view, ids))),
            None => Next::Nothing,
        },
        Pipeline::Fleets => match world.fleet_step(FleetId(lease.id), now) {
            Some(view) => Next::Write(meter.measure(|| fleets::plan(&view, ids))),
            None => Next::Nothing,
        },
        // Nobody makes gateways here.
        Pipeline::Gateways | Pipeline::GatewayReplicas => Next::Nothing,
        Pipeline::Volumes => match world.volume_view(VolumeId(lease.id), now) {
            Some(view) => match meter.measure(|| volumes::plan(&view)) {
                volumes::Plan::Change(changes) => Next::Write(changes),
                volumes::Plan::Call(call, before) => {
                    Next::Order(before, Call::Volume(Box::new(view), call))
                }
            },
            None => Next::Nothing,
        },
        Pipeline::Instances => match world.instance_view(InstanceId(lease.id), now) {
            Some(view) => instance(cloud, view, ids, meter),
            None => Next::Nothing,
        },
        Pipeline::JobsSubmitted => match world.job_submitted(JobId(lease.id), now) {
            Some(view) => submitted(cloud, view, ids, meter),
            None => Next::Nothing,
        },
        Pipeline::JobsRunning => match world.job_running(JobId(lease.id), now) {
            Some(view) => match meter.measure(|| job_running::plan(&view)) {
                job_running::Plan::Change(changes) => Next::Write(changes),
                job_running::Plan::Ask(ask) => Next::Ask(Call::Running(Box::new(view), ask)),
            },
            None => Next::Nothing,
        },
        Pipeline::JobsTerminating => match world.job_terminating(JobId(lease.id), now) {
            Some(view) => match meter.measure(|| job_terminating::plan(&view)) {
                job_terminating::Plan::Change(changes) => Next::Write(changes),
                job_terminating::Plan::Ask(ask) => {
                    Next::Ask(Call::Terminating(Box::new(view), ask))
                }
            },
            None => Next::Nothing,
        },
    }
}

fn submitted(
    cloud: &Cloud,
    mut view: job_submitted::View,
    ids: &mut Ids,
    meter: &mut Meter,
) -> Next {
    let mut plan = meter.measure(|| job_submitted::plan(&view, ids));
    if let job_submitted::Plan::AskOffers(asks) = plan {
        let answer = |ask: &job_submitted::OfferAsk| {
            let lists = ask
                .backends
                .iter()
                .map(|b| cloud.offers(b.as_str(), &ask.wanted.machine))
                .collect();
            let limit = view.limits.offers_per_fleet;
            FleetOffers {
                fleet_id: ask.fleet_id,
                offers: offers::select(lists, &ask.wanted, ask.sharing, limit),
            }
        };
        view.offers = Some(asks.iter().map(answer).collect());
        plan = meter.measure(|| job_submitted::plan(&view, ids));
    }
    match plan {
        job_submitted::Plan::Change(changes) => Next::Write(changes),
        job_submitted::Plan::AskOffers(_) => {
            unreachable!("a view with offers is not asked for them again")
        }
        job_submitted::Plan::Provision(mut order) => {
            let before = std::mem::take(&mut order.before);
            Next::Order(before, Call::Job(Box::new(view), order, Vec::new()))
        }
    }
}

fn instance(cloud: &Cloud, mut view: instances::View, ids: &mut Ids, meter: &mut Meter) -> Next {
    let mut plan = meter.measure(|| instances::plan(&view, ids));
    if let instances::Plan::AskOffers {
        backends,
        wanted,
        sharing,
    } = &plan
    {
        let lists = backends
            .iter()
            .map(|b| cloud.offers(b.as_str(), &wanted.machine))
            .collect();
        view.offers = Some(offers::select(
            lists,
            wanted,
            *sharing,
            view.limits.offers_per_fleet,
        ));
        plan = meter.measure(|| instances::plan(&view, ids));
    }
    match plan {
        instances::Plan::Change(changes) => Next::Write(changes),
        instances::Plan::AskOffers { .. } => {
            unreachable!("a view with offers is not asked for them again")
        }
        instances::Plan::Ask(ask) => Next::Ask(Call::Machine(Box::new(view), ask)),
        instances::Plan::Provision(mut order) => {
            let before = std::mem::take(&mut order.before);
            Next::Order(before, Call::Instance(Box::new(view), order, Vec::new()))
        }
    }
}

/// Tries offers in order, as the shell does. The value is how long it takes.
fn try_offers(
    cloud: &mut Cloud,
    offers: &[dstack_backend_types::InstanceOfferWithAvailability],
    provider_ref: &str,
    now: Timestamp,
    attempts: &mut Vec<Attempt>,
) -> f64 {
    let mut took = 0.0;
    for offer in offers {
        let (attempt, seconds) = cloud.create(offer, provider_ref, now);
        took += seconds;
        let last = matches!(attempt, Attempt::Made(_) | Attempt::Unknown(_));
        attempts.push(attempt);
        if last {
            break;
        }
    }
    took
}

/// Sends a call. The value is how long the answer takes, in seconds.
pub(crate) fn send(cloud: &mut Cloud, call: &mut Call, now: Timestamp, ids: &mut Ids) -> f64 {
    match call {
        Call::Job(_, order, attempts) => try_offers(
            cloud,
            &order.offers,
            &order.attempt.provider_ref,
            now,
            attempts,
        ),
        Call::Instance(_, order, attempts) => try_offers(
            cloud,
            &order.offers,
            &order.attempt.provider_ref,
            now,
            attempts,
        ),
        Call::Machine(..) => 0.05 + ids.fraction() * 2.0,
        Call::Volume(..) => 1.0 + ids.fraction() * 20.0,
        Call::Running(..) | Call::Terminating(..) => 0.005 + ids.fraction() * 0.2,
    }
}

/// The answer is there: what it means. Agents are asked at this moment.
pub(crate) fn land(
    world: &World,
    cloud: &mut Cloud,
    call: Call,
    now: Timestamp,
    ids: &mut Ids,
    meter: &mut Meter,
) -> Next {
    match call {
        Call::Job(mut view, order, attempts) => {
            view.now = now;
            match meter.measure(|| job_submitted::conclude(&view, &order, &attempts, ids)) {
                job_submitted::Conclusion::Done(changes) => Next::Write(changes),
                job_submitted::Conclusion::Again(mut order) => {
                    let before = std::mem::take(&mut order.before);
                    Next::Order(before, Call::Job(view, order, Vec::new()))
                }
            }
        }
        Call::Instance(mut view, order, attempts) => {
            view.now = now;
            match meter.measure(|| instances::conclude_provision(&view, &order, &attempts, ids)) {
                instances::Conclusion::Done(changes) => Next::Write(changes),
                instances::Conclusion::Again(mut order) => {
                    let before = std::mem::take(&mut order.before);
                    Next::Order(before, Call::Instance(view, order, Vec::new()))
                }
            }
        }
        Call::Machine(mut view, ask) => {
            view.now = now;
            let answer = match &ask {
                instances::Ask::Address(data) => cloud.address(data, now),
                instances::Ask::Terminate(data) => cloud.terminate(data),
                instances::Ask::Prepare => instances::Answer::Unprepared {
                    why: "no own hosts here".into(),
                    is_final: true,
                    was_entered: false,
                },
                instances::Ask::Clear => instances::Answer::Ended,
                instances::Ask::Health { .. } => match view.instance.provisioning_data.as_deref() {
                    Some(data) => {
                        let lives =
                            |job| world.job(job).is_some_and(|job| !job.status.is_finished());
                        cloud.health(data, now, lives)
                    }
                    None => instances::Answer::Failed("no machine".into()),
                },
            };
            Next::Write(meter.measure(|| instances::conclude(&view, &ask, &answer)))
        }
        Call::Running(mut view, ask) => {
            view.now = now;
            let answer = running(cloud, &view, &ask, now, ids);
            Next::Write(meter.measure(|| job_running::conclude(&view, &ask, &answer)))
        }
        Call::Volume(mut view, call) => {
            view.now = now;
            let answer = volume(&view, call);
            Next::Write(meter.measure(|| volumes::conclude(&view, call, &answer)))
        }
        Call::Terminating(mut view, ask) => {
            view.now = now;
            let answer = terminating(cloud, &view, &ask, now);
            Next::Write(meter.measure(|| job_terminating::conclude(&view, &ask, &answer)))
        }
    }
}

fn running(
    cloud: &mut Cloud,
    view: &job_running::View,
    ask: &job_running::Ask,
    now: Timestamp,
    ids: &mut Ids,
) -> job_running::Answer {
    let job = &view.job;
    let Some(data) = job.provisioning_data.as_deref() else {
        return job_running::Answer::Unreachable("no machine".into());
    };
    match ask {
        // Whatever hangs on a machine goes with it.
        job_running::Ask::Attach(_) => job_running::Answer::Attached(Default::default()),
        job_running::Ask::SubmitTask => cloud.submit_task(data, job.id, job.blocks, now),
        job_running::Ask::TaskInfo => cloud.task_info(data, job.id, now),
        job_running::Ask::StartRunner(_) => {
            // A job with a limit would run for ever.
            let seconds = job
                .spec
                .max_duration
                .is_none()
                .then(|| 30.0 + ids.fraction() * 1800.0);
            cloud.start(data, job.id, job.blocks, seconds, now)
        }
        job_running::Ask::Pull { since } => match cloud.pull(data, job.id, *since, now) {
            Ok((pulled, _)) => job_running::Answer::Pulled(pulled),
            Err(answer) => answer,
        },
    }
}

/// A provider that makes and deletes every disk.
fn volume(view: &volumes::View, call: volumes::Call) -> volumes::Answer {
    let disk = serde_json::json!({
        "backend": view.volume.configuration.backend,
        "volume_id": format!("d-{}", view.volume.provider_ref),
        "size_gb": 10, "price": 1.0, "attachable": true, "detachable": true,
    });
    match (call, serde_json::from_value(disk)) {
        (volumes::Call::Delete, _) => volumes::Answer::Deleted,
        (_, Ok(disk)) => volumes::Answer::Made(Box::new(disk)),
        (_, Err(error)) => volumes::Answer::Refused(error.to_string()),
    }
}

fn terminating(
    cloud: &mut Cloud,
    view: &job_terminating::View,
    ask: &job_terminating::Ask,
    now: Timestamp,
) -> job_terminating::Answer {
    let job = &view.job;
    let Some(data) = job.provisioning_data.as_deref() else {
        return job_terminating::Answer::Failed("no machine".into());
    };
    match ask {
        job_terminating::Ask::Detach { .. } => job_terminating::Answer::Done,
        job_terminating::Ask::Stop { .. } => cloud.stop(data, job.id, now),
        job_terminating::Ask::Remove { .. } => cloud.remove(data, job.id, now),
        job_terminating::Ask::Pull { since } => match cloud.pull(data, job.id, *since, now) {
            Ok((pulled, more)) => job_terminating::Answer::Pulled(pulled, more),
            Err(_) => job_terminating::Answer::Failed("unreachable".into()),
        },
    }
}

//! Machines: made for fleets, watched, given back.

use std::sync::Arc;
use std::time::Duration;

use dstack_api::instances::{HealthEvent, HealthStatus};
use dstack_backend_types::{ErrorKind, JobProvisioningData};
use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::ids::{InstanceId, JobId};
use dstack_engine::instances::{self, Answer, Ask, Conclusion, Plan, Provision, View};
use dstack_engine::view::provisioning_timeout;
use dstack_remote::{Address, RemoteError};
use dstack_store::lease::{self, Claim, Lease};
use dstack_store::{DbError, Tx, instance_health, jobs, views};

use super::driver::{Pipe, StepError, chance, finish, write_keeping};
use super::{Context, cloud_calls, facts, own_hosts};
use crate::machines::HealthReport;
use crate::ports::CloudMachine;

/// The pipeline.
pub(super) struct Instances;

impl Pipe for Instances {
    type Id = InstanceId;
    const PIPELINE: Pipeline = Pipeline::Instances;
    const WORKERS: usize = 32;

    fn claim(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<InstanceId>>, DbError> {
        lease::claim_instances(tx, how)
    }

    async fn step(
        cx: Arc<Context>,
        lease: Lease<InstanceId>,
    ) -> Result<Option<Duration>, StepError> {
        let (id, now, known) = (lease.id(), cx.now(), Arc::clone(&cx.known));
        let view = cx
            .store
            .read(move |tx| views::instance(tx, id, now, &known))
            .await?;
        let Some(mut view) = view else {
            return finish(&cx, lease, Changes::nothing()).await;
        };
        view.backends = Arc::new(cx.clouds.backends(view.instance.project_id).await);
        view.provisioning_timeout =
            provisioning_timeout(&view.backends, view.instance.offer.as_deref());
        let mut ids = chance();
        let mut plan = instances::plan(&view, &mut ids);
        if let Plan::AskOffers {
            backends,
            wanted,
            sharing,
        } = &plan
        {
            let project = view.instance.project_id;
            view.offers = Some(
                cloud_calls::offers(&cx, project, backends.clone(), wanted, *sharing, None).await,
            );
            view.now = cx.now();
            plan = instances::plan(&view, &mut ids);
        }
        match plan {
            Plan::Change(changes) => finish(&cx, lease, changes).await,
            // Answered already: asking again would ask for ever.
            Plan::AskOffers { .. } => {
                finish(&cx, lease, Changes::later(Duration::from_secs(5))).await
            }
            Plan::Provision(order) => provision(&cx, lease, view, *order).await,
            Plan::Ask(ask) => {
                let answer = put(&cx, &view, &ask).await?;
                view.now = cx.now();
                let changes = instances::conclude(&view, &ask, &answer);
                let is_gone = own_hosts::is_gone(&view.instance, &changes);
                let look_again = finish(&cx, lease, changes).await?;
                if is_gone {
                    own_hosts::forget(&cx, id).await?;
                }
                Ok(look_again)
            }
        }
    }
}

async fn provision(
    cx: &Context,
    lease: Lease<InstanceId>,
    mut view: View,
    mut order: Provision,
) -> Result<Option<Duration>, StepError> {
    let project = facts::project(cx, view.instance.project_id).await?;
    let mut lease = lease;
    loop {
        let Some(kept) = write_keeping(cx, lease, std::mem::take(&mut order.before)).await? else {
            return Ok(Some(Duration::ZERO));
        };
        lease = kept;
        let call = cloud_calls::Order {
            project_id: view.instance.project_id,
            project: &project,
            user: "",
            name: &view.instance.name,
            provider_ref: &order.attempt.provider_ref,
            wanted: &order.wanted,
            volumes: &Vec::new(),
            job: None,
        };
        let attempts = cloud_calls::try_in_order(cx, &call, &order.offers).await;
        view.now = cx.now();
        match instances::conclude_provision(&view, &order, &attempts, &mut chance()) {
            Conclusion::Done(changes) => return finish(cx, lease, changes).await,
            Conclusion::Again(next) => order = *next,
        }
    }
}

async fn put(cx: &Context, view: &View, ask: &Ask) -> Result<Answer, StepError> {
    let project = facts::project(cx, view.instance.project_id).await?;
    Ok(match ask {
        Ask::Address(data) => match cx
            .clouds
            .update(view.instance.project_id, data, &project.key())
            .await
        {
            Ok(data) => Answer::Address(Box::new(data)),
            Err(error) if matches!(error.kind, ErrorKind::Provisioning | ErrorKind::NotFound) => {
                Answer::Lost(error.message)
            }
            Err(error) => Answer::Failed(error.message),
        },
        Ask::Terminate(data) => match cx.clouds.terminate(&machine(view, data)).await {
            Ok(()) => Answer::Ended,
            Err(error) => match error.kind {
                ErrorKind::NotFound => Answer::Ended,
                ErrorKind::NotYetTerminated => Answer::NotYet,
                _ => Answer::Failed(error.message),
            },
        },
        Ask::Prepare => own_hosts::prepare(cx, view, &project).await?,
        Ask::Clear => own_hosts::clear(cx, view, &project).await?,
        Ask::Health { report } => {
            let Some(data) = view.instance.provisioning_data.as_deref() else {
                return Ok(Answer::Failed("the machine has no address".to_owned()));
            };
            match own_hosts::way(cx, data, &project).await? {
                Ok(at) => match health(cx, view, &at, *report).await? {
                    // A cloud's machine starts its agent by itself; this one's is started by its backend.
                    Answer::Failed(why) if at.is_local() => {
                        let project_id = view.instance.project_id;
                        match cx.clouds.update(project_id, data, &project.key()).await {
                            Ok(_) => health(cx, view, &at, *report).await?,
                            Err(error) => Answer::Failed(format!("{why}; {}", error.message)),
                        }
                    }
                    answer => {
                        if matches!(answer, Answer::Healthy(_)) {
                            own_hosts::upgrade(cx, view, &at).await;
                        }
                        answer
                    }
                },
                Err(error) => Answer::Failed(error.to_string()),
            }
        }
    })
}

fn machine(view: &View, data: &JobProvisioningData) -> CloudMachine {
    CloudMachine {
        project: view.instance.project_id,
        backend: data.backend.clone(),
        region: data.region.clone(),
        instance_id: data.instance_id.clone(),
        backend_data: data.backend_data.clone(),
    }
}

async fn health(
    cx: &Context,
    view: &View,
    at: &Address,
    report: bool,
) -> Result<Answer, StepError> {
    let mut health = cx.machines.health(at, report).await;
    if let Err(error) = &health
        && error.is_refused()
        && cx.machines.wake(at).await
    {
        health = cx.machines.health(at, report).await;
    }
    let health = match health {
        Ok(health) => health,
        Err(error) => return Ok(Answer::Failed(error.to_string())),
    };
    if report {
        match remove_strays(cx, at).await? {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "removed tasks that no job owns any more"),
            Err(error) => tracing::debug!(%error, "could not look for tasks without a job"),
        }
    }
    if let Some(health) = &health {
        keep(cx, view.instance.id, health).await?;
    }
    let told = health.map(|health| {
        let worst = health.findings.into_iter().next();
        (health.status, worst.map(|(_, message)| message))
    });
    Ok(Answer::Healthy(told))
}

/// Keeps a report, for those who ask later.
async fn keep(cx: &Context, id: InstanceId, health: &HealthReport) -> Result<(), StepError> {
    if !health.is_measured {
        return Ok(());
    }
    let (now, status) = (cx.now(), health.status);
    let event = |(status, message): &(HealthStatus, String)| HealthEvent {
        timestamp: now,
        status: *status,
        message: message.clone(),
    };
    let events: Vec<HealthEvent> = health.findings.iter().map(event).collect();
    cx.store
        .write(move |tx| instance_health::insert(tx, id, now, status, &events))
        .await?;
    Ok(())
}

/// Removes tasks whose job is finished or gone: what a step could not remove when the machine did not answer.
///
/// The shim is asked first and the rows are read afterwards, so a task that is being submitted has its row.
async fn remove_strays(
    cx: &Context,
    at: &Address,
) -> Result<Result<usize, RemoteError>, StepError> {
    let tasks = match cx.machines.tasks(at).await {
        Ok(tasks) => tasks,
        Err(error) => return Ok(Err(error)),
    };
    if cx.settings.keep_shim_tasks {
        return Ok(Ok(0));
    }
    let mut removed = 0;
    for task in tasks {
        // A task of another server's naming is not ours to remove.
        let Ok(id) = task.parse::<JobId>() else {
            continue;
        };
        let job = cx.store.read(move |tx| jobs::get(tx, id)).await?;
        if job.is_some_and(|job| !job.status.is_finished()) {
            continue;
        }
        let why = "no job owns this task any more".to_owned();
        if let Err(error) = cx
            .machines
            .remove(at, &task, "terminated_by_server".to_owned(), why)
            .await
        {
            return Ok(Err(error));
        }
        removed += 1;
    }
    Ok(Ok(removed))
}

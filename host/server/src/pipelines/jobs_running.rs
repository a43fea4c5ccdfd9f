//! Placed jobs: one question to one agent in each step, and a watch until the next.

use std::sync::Arc;
use std::time::Duration;

use dstack_agent_protocol::shim::TaskStatus;
use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::ids::JobId;
use dstack_engine::job_running::{self, Answer, Ask, Plan, Pulled, TaskState, View};
use dstack_engine::model::InstanceRow;
use dstack_engine::view::provisioning_timeout;
use dstack_remote::Address;
use dstack_store::lease::{self, Claim, Lease};
use dstack_store::{DbError, Tx, views};

use super::driver::{Pipe, StepError, finish};
use super::{Context, facts, job_logs, own_hosts, runner_orders, volume_calls, watch};
use crate::machines::{TaskOrder, not_there, pulled, runner_port, task_state};
use crate::readers::LOOK;

/// Where a job's own SSH server listens.
const SSH_PORT: u16 = 10022;

/// The pipeline.
pub(super) struct JobsRunning;

impl Pipe for JobsRunning {
    type Id = JobId;
    const PIPELINE: Pipeline = Pipeline::JobsRunning;
    const WORKERS: usize = 64;

    fn claim(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<JobId>>, DbError> {
        lease::claim_jobs_running(tx, how)
    }

    async fn step(cx: Arc<Context>, lease: Lease<JobId>) -> Result<Option<Duration>, StepError> {
        let (id, now, known) = (lease.id(), cx.now(), Arc::clone(&cx.known));
        let view = cx
            .store
            .read(move |tx| views::job_running(tx, id, now, &known))
            .await?;
        let Some(mut view) = view else {
            return finish(&cx, lease, Changes::nothing()).await;
        };
        if let Some(instance) = &view.instance {
            let backends = cx.clouds.backends(view.job.project_id).await;
            view.provisioning_timeout = provisioning_timeout(&backends, instance.offer.as_deref());
        }
        match job_running::plan(&view) {
            Plan::Change(changes) => {
                cx.watches.drop_job(id);
                cx.readers.forget(id);
                finish(&cx, lease, changes).await
            }
            Plan::Ask(ask) => {
                let asked = if cx.readers.is_held(id) {
                    match held(&cx, &view).await? {
                        Some(asked) => asked,
                        None => return finish(&cx, lease, Changes::later(LOOK)).await,
                    }
                } else {
                    ask_agent(&cx, &view, &ask).await?
                };
                view.now = cx.now();
                let mut changes = job_running::conclude(&view, &ask, &asked.answer);
                if cx.readers.is_held(id) {
                    changes.look_again = Some(LOOK);
                }
                let next = next_watch(&view, &ask, &asked, &changes);
                let look_again = finish(&cx, lease, changes).await?;
                if let (Some(at), Some(target), Some(rest)) = (asked.at, next, look_again)
                    && rest > Duration::from_millis(20)
                {
                    watch::arm(&cx, id, at, target, rest);
                }
                Ok(look_again)
            }
        }
    }
}

/// An answer, and what the watch needs.
struct Asked {
    answer: Answer,
    at: Option<Address>,
    task: Option<TaskStatus>,
}

/// Puts the question to the agent.
async fn ask_agent(cx: &Context, view: &View, ask: &Ask) -> Result<Asked, StepError> {
    let job = &view.job;
    let nowhere = |answer| {
        Ok(Asked {
            answer,
            at: None,
            task: None,
        })
    };
    let Some(data) = job.provisioning_data.as_deref() else {
        return nowhere(Answer::NotUp);
    };
    let project = facts::project(cx, job.project_id).await?;
    if let Ask::Attach(volume) = ask {
        return nowhere(volume_calls::attach(cx, volume, data).await?);
    }
    let owner = facts::owner(cx, &project, job.project_id, view.instance.as_ref()).await?;
    let at = match own_hosts::way(cx, data, &owner).await? {
        Ok(at) => at,
        Err(error) => return nowhere(Answer::Unreachable(error.to_string())),
    };
    let mut task = None;
    let answer = match ask {
        // Asked above: it needs no way to the machine.
        Ask::Attach(_) => Answer::NotUp,
        Ask::SubmitTask => submit_task(cx, view, &project, &at).await?,
        Ask::TaskInfo => {
            match cx.machines.task(&at, &job.id.to_string()).await {
                Ok(Some(info)) => {
                    task = Some(info.status);
                    cx.pulls.note(job.id, &info);
                    Answer::Task(task_state(&info))
                }
                // The shim died before it had started anything, and a restarted one forgets such tasks.
                Ok(None) => match submit_task(cx, view, &project, &at).await? {
                    Answer::TaskTaken => Answer::Task(TaskState::default()),
                    other => other,
                },
                Err(error) => not_there(&error),
            }
        }
        Ask::StartRunner(cluster) => match runner_orders::order(cx, view, cluster).await? {
            Err(why) => Answer::Impossible(why),
            Ok(order) => {
                cx.machines
                    .start_runner(&at, runner_port(job.runtime_data.as_ref()), order)
                    .await
            }
        },
        Ask::Pull { since } => {
            let port = runner_port(job.runtime_data.as_ref());
            let answer = match cx.watches.take(job.id, *since) {
                Some(answer) => Ok(answer),
                None => cx.machines.pull(&at, port, *since, None).await,
            };
            match answer {
                Ok(answer) => {
                    let mut report = pulled(&answer, true);
                    report.stored =
                        job_logs::store(cx, &project.name, &view.run.name, job, answer).await;
                    Answer::Pulled(kept_for_readers(cx, view, report))
                }
                Err(error) if error.is_refused() => Answer::NotUp,
                Err(error) => Answer::Unreachable(error.to_string()),
            }
        }
    };
    let answer = match (ask, answer) {
        // A runner that is gone may have taken its container along: the shim knows why.
        (
            Ask::StartRunner(_) | Ask::Pull { .. },
            silence @ (Answer::NotUp | Answer::Unreachable(_)),
        ) if view.instance.as_ref().is_some_and(InstanceRow::has_shim) => {
            match cx.machines.task(&at, &job.id.to_string()).await {
                Ok(Some(info)) if info.status == TaskStatus::Terminated => {
                    Answer::Task(task_state(&info))
                }
                _ => silence,
            }
        }
        (_, answer) => answer,
    };
    Ok(Asked {
        answer,
        at: Some(at),
        task,
    })
}

/// The report without its end, if that is to wait for somebody who reads the log at the job.
fn kept_for_readers(cx: &Context, view: &View, report: Pulled) -> Pulled {
    let job = &view.job;
    let can_be_entered = job
        .runtime_data
        .as_ref()
        .and_then(|data| data.ports.as_ref())
        .is_some_and(|ports| ports.contains_key(&SSH_PORT));
    let (run, started, now) = (job.run_id, job.started_at, cx.now());
    if can_be_entered && cx.readers.hold(run, job.id, started, &report, now) {
        return Pulled {
            ended: None,
            ..report
        };
    }
    report
}

/// What a job tells whose end waits; `None` while it still does. Its runner ends by itself once its log was read.
async fn held(cx: &Context, view: &View) -> Result<Option<Asked>, StepError> {
    let job = &view.job;
    let mut is_read = true;
    if let Some(data) = job.provisioning_data.as_deref() {
        let project = facts::project(cx, job.project_id).await?;
        let owner = facts::owner(cx, &project, job.project_id, view.instance.as_ref()).await?;
        if let Ok(at) = own_hosts::way(cx, data, &owner).await?
            && let Ok(Some(info)) = cx.machines.task(&at, &job.id.to_string()).await
        {
            is_read = info.status == TaskStatus::Terminated;
        }
    }
    let end = cx.readers.release(job.id, is_read, cx.now());
    Ok(end.map(|end| Asked {
        answer: Answer::Pulled(end),
        at: None,
        task: None,
    }))
}

/// Gives the shim the job's task.
async fn submit_task(
    cx: &Context,
    view: &View,
    project: &facts::ProjectFacts,
    at: &Address,
) -> Result<Answer, StepError> {
    let job = &view.job;
    let (_, user_keys) = facts::user(cx, &view.run).await?;
    let mut container_ssh_keys = vec![project.public_key.trim().to_owned()];
    container_ssh_keys.extend(user_keys.iter().cloned());
    let registry = match runner_orders::registry(cx, view).await? {
        Err(why) => return Ok(Answer::Impossible(why)),
        Ok(registry) => registry,
    };
    // Nobody enters this machine through its own jobs.
    let (host_ssh_user, host_ssh_keys) = match &job.provisioning_data {
        Some(data) if !at.is_local() => (data.username.clone(), user_keys),
        _ => (String::new(), Vec::new()),
    };
    let order = TaskOrder {
        job,
        volumes: &view.volumes,
        container_ssh_keys,
        host_ssh_user,
        host_ssh_keys,
        registry,
    };
    Ok(cx.machines.submit_task(at, &order.config()).await)
}

/// What to keep an eye on after this step.
fn next_watch(view: &View, ask: &Ask, asked: &Asked, changes: &Changes) -> Option<watch::Target> {
    match (ask, &asked.answer) {
        (Ask::SubmitTask, Answer::TaskTaken) => Some(watch::Target::Task(TaskStatus::Pending)),
        (Ask::TaskInfo, Answer::Task(task)) if task.ended.is_none() => {
            asked.task.map(watch::Target::Task)
        }
        (Ask::Pull { .. }, Answer::Pulled(pulled)) if pulled.stored && pulled.ended.is_none() => {
            let position = changes.jobs.iter().find(|patch| patch.id == view.job.id);
            let since = position
                .and_then(|patch| patch.runner_timestamp)
                .unwrap_or(view.job.runner_timestamp);
            Some(watch::Target::Runner {
                port: runner_port(view.job.runtime_data.as_ref()),
                since,
            })
        }
        _ => None,
    }
}

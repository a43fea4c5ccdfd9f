//! Jobs that end: the runner is asked, its last words are read, the shim forgets the task.

use std::sync::Arc;
use std::time::Duration;

use dstack_api::jobs::JobStatus;
use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::ids::JobId;
use dstack_engine::job_terminating::{self, Answer, Ask, Plan, View};
use dstack_store::lease::{self, Claim, Lease};
use dstack_store::{DbError, Tx, views};

use super::driver::{Pipe, StepError, finish};
use super::{Context, facts, job_logs, own_hosts, volume_calls};
use crate::machines::{pulled, runner_port};

/// How long the last words are waited for in one step; the runner answers earlier.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The pipeline.
pub(super) struct JobsTerminating;

impl Pipe for JobsTerminating {
    type Id = JobId;
    const PIPELINE: Pipeline = Pipeline::JobsTerminating;
    const WORKERS: usize = 32;

    fn claim(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<JobId>>, DbError> {
        lease::claim_jobs_terminating(tx, how)
    }

    async fn step(cx: Arc<Context>, lease: Lease<JobId>) -> Result<Option<Duration>, StepError> {
        let (id, now, known) = (lease.id(), cx.now(), Arc::clone(&cx.known));
        cx.watches.drop_job(id);
        cx.pulls.forget(id);
        let view = cx
            .store
            .read(move |tx| views::job_terminating(tx, id, now, &known))
            .await?;
        let Some(mut view) = view else {
            return finish(&cx, lease, Changes::nothing()).await;
        };
        let changes = match job_terminating::plan(&view) {
            Plan::Change(changes) => changes,
            Plan::Ask(ask) => {
                let answer = ask_agent(&cx, &view, &ask).await?;
                view.now = cx.now();
                job_terminating::conclude(&view, &ask, &answer)
            }
        };
        let is_over = changes
            .jobs
            .iter()
            .any(|patch| patch.id == id && patch.status.is_some_and(JobStatus::is_finished));
        let look_again = finish(&cx, lease, changes).await?;
        if is_over {
            job_logs::forget(&cx, id.0);
        }
        Ok(look_again)
    }
}

async fn ask_agent(cx: &Context, view: &View, ask: &Ask) -> Result<Answer, StepError> {
    let job = &view.job;
    let Some(data) = job.provisioning_data.as_deref() else {
        return Ok(Answer::Failed("the job has no machine".to_owned()));
    };
    let project = facts::project(cx, job.project_id).await?;
    if let Ask::Detach { volume, force } = ask {
        let held = view.volumes.iter().find(|it| it.volume.id == volume.id);
        let how = held.and_then(|it| it.attachment.data.clone());
        return volume_calls::detach(cx, volume, how, data, *force).await;
    }
    let owner = facts::owner(cx, &project, job.project_id, view.instance.as_ref()).await?;
    let at = match own_hosts::way(cx, data, &owner).await? {
        Ok(at) => at,
        Err(error) => return Ok(Answer::Failed(error.to_string())),
    };
    let port = runner_port(job.runtime_data.as_ref());
    Ok(match ask {
        // Asked above: it needs no way to the machine.
        Ask::Detach { .. } => Answer::Failed("the volume's backend was not asked".to_owned()),
        // The shim kills it in the next step.
        Ask::Stop { abort: true } => Answer::Done,
        Ask::Stop { abort: false } => match cx.machines.stop(&at, port).await {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Failed(error.to_string()),
        },
        Ask::Pull { since } => match cx.machines.pull(&at, port, *since, Some(LAST_WORDS)).await {
            Ok(answer) => {
                let (mut report, has_more) = (pulled(&answer, true), answer.has_more);
                report.stored =
                    job_logs::store(cx, &project.name, &view.run.name, job, answer).await;
                Answer::Pulled(report, has_more)
            }
            Err(error) => Answer::Failed(error.to_string()),
        },
        Ask::Remove { reason, message } => {
            match cx
                .machines
                .remove(&at, &job.id.to_string(), reason.clone(), message.clone())
                .await
            {
                Ok(()) => Answer::Done,
                Err(error) => Answer::Failed(error.to_string()),
            }
        }
    })
}

//! Eyes on agents between two steps: the next step comes when there is something to see.
//!
//! After a step that left a job waiting for its agent, one long poll is armed for it. When the agent has news, the row is
//! hinted; what a runner already answered is kept for the step, so nothing is read twice. A watch that fails or ends
//! without news changes nothing: the row's timer is there as well.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dstack_agent_protocol::runner::PullResponse;
use dstack_agent_protocol::shim::TaskStatus;
use dstack_engine::changes::{Hint, Pipeline};
use dstack_engine::ids::JobId;
use dstack_remote::Address;
use tokio::task::AbortHandle;

use super::Context;

/// The longest poll; agents answer earlier by themselves.
const LONGEST: Duration = Duration::from_secs(8);

/// A watch from before this was of use to nobody.
const OLD: Duration = Duration::from_secs(120);

/// The watches that are armed.
#[derive(Default)]
pub(crate) struct Watches(Mutex<HashMap<JobId, Watch>>);

struct Watch {
    task: AbortHandle,
    armed: Instant,
    /// What the runner answered, and the position that was asked for.
    answer: Option<(i64, PullResponse)>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What to watch for.
#[derive(Debug)]
pub(crate) enum Target {
    /// The shim's task is no longer in this status.
    Task(TaskStatus),
    /// The runner at this port has something behind this position.
    Runner {
        /// The runner's port.
        port: u16,
        /// The position.
        since: i64,
    },
}

impl Watches {
    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<JobId, Watch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a watch already read from this position.
    pub(crate) fn take(&self, job: JobId, since: i64) -> Option<PullResponse> {
        let mut watch = self.all().remove(&job)?;
        watch
            .answer
            .take()
            .filter(|(asked, _)| *asked == since)
            .map(|(_, answer)| answer)
    }

    /// Ends the watches of jobs that another server has taken over since.
    pub(crate) fn drop_old(&self) {
        self.all().retain(|_, watch| watch.armed.elapsed() < OLD);
    }

    /// Ends the watch of a job.
    pub(crate) fn drop_job(&self, job: JobId) {
        drop(self.all().remove(&job));
    }
}

/// Arms the watch of a job, in place of an earlier one.
pub(crate) fn arm(cx: &Arc<Context>, job: JobId, at: Address, target: Target, at_most: Duration) {
    let wait = at_most.min(LONGEST);
    let task = tokio::spawn(watch(Arc::clone(cx), job, at, target, wait)).abort_handle();
    let watch = Watch {
        task,
        armed: Instant::now(),
        answer: None,
    };
    drop(cx.watches.all().insert(job, watch));
}

async fn watch(cx: Arc<Context>, job: JobId, at: Address, target: Target, wait: Duration) {
    match target {
        Target::Task(known) => {
            if !cx
                .machines
                .task_changed(&at, &job.to_string(), known, wait)
                .await
            {
                return;
            }
        }
        Target::Runner { port, since } => {
            let Ok(answer) = cx.machines.pull(&at, port, since, Some(wait)).await else {
                return;
            };
            if answer.job_logs.is_empty()
                && answer.job_states.is_empty()
                && answer.runner_logs.is_empty()
            {
                return;
            }
            match cx.watches.all().get_mut(&job) {
                Some(watch) => watch.answer = Some((since, answer)),
                None => return,
            }
        }
    }
    let hint = Hint {
        pipeline: Pipeline::JobsRunning,
        id: job.0,
    };
    let now = cx.now();
    match cx
        .store
        .write(move |tx| dstack_store::lease::hint(tx, hint, now))
        .await
    {
        Ok(()) => cx.hints.send(&[hint]),
        Err(error) => tracing::debug!(%error, "a watch could not wake its job"),
    }
}

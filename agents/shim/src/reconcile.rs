//! Compares tasks with what really runs; the only place where the end of a container or process is noticed.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dstack_agent_protocol::process_runtime::TMP_DIR;
use dstack_agent_protocol::reason;
use dstack_agent_protocol::shim::TaskStatus;

use crate::clean_up::release;
use crate::docker::{self, ContainerState, Engine};
use crate::job_end::{Witness, after_code_0};
use crate::lifecycle::RUNNER_DIR;
use crate::process::{self, Outcome};
use crate::registry::Slot;
use crate::shim::Shim;
use crate::task::Work;

/// Pause between two looks at everything; ends are mostly noticed earlier, by a watcher.
const INTERVAL: Duration = Duration::from_secs(5);
/// Pause between two looks at one process.
const PROCESS_POLL: Duration = Duration::from_millis(200);

/// Looks at all tasks again and again.
pub(crate) async fn run(shim: Arc<Shim>) {
    loop {
        pass(&shim).await;
        tokio::select! {
            () = shim.nudge.notified() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// Nudges the reconciler when the work of a running task ends.
pub(crate) fn watch(shim: &Arc<Shim>, slot: &Arc<Slot>) {
    let (shim, slot) = (Arc::clone(shim), Arc::clone(slot));
    let tracker = shim.background.clone();
    tracker.spawn(async move {
        match (slot.read(|task| task.work.clone()), shim.runtimes.engine()) {
            (Work::Container(id), Some(engine)) => engine.wait(&id).await,
            (Work::Process(record), _) => {
                while record.is_alive() {
                    tokio::time::sleep(PROCESS_POLL).await;
                }
            }
            (Work::Container(_), None) | (Work::Nothing, _) => {}
        }
        shim.nudge.notify_one();
    });
}

/// States of all containers by id; `None` if the engine does not tell, or if no task needs it.
async fn containers(shim: &Shim) -> Option<HashMap<String, ContainerState>> {
    let is_needed = |slot: &Arc<Slot>| {
        slot.read(|task| {
            task.status == TaskStatus::Running && matches!(task.work, Work::Container(_))
        })
    };
    let engine = shim.runtimes.engine()?;
    if !shim.tasks.all().iter().any(is_needed) {
        return None;
    }
    match engine.list(&shim.home).await {
        Ok(listed) => Some(listed.into_iter().map(|c| (c.id, c.state)).collect()),
        Err(err) => {
            tracing::error!(error = %err, "containers cannot be listed");
            None
        }
    }
}

async fn pass(shim: &Shim) {
    let containers = containers(shim).await;
    for slot in shim.tasks.all() {
        // Somebody starts, stops or removes it just now: its turn comes in the next pass.
        let Ok(_operation) = slot.operation.try_lock() else {
            continue;
        };
        match slot.read(|task| (task.status, task.is_cleaned_up)) {
            (TaskStatus::Running, _) => {
                if let Some((reason, message)) = ended(shim, &slot, containers.as_ref()).await {
                    let id = slot.read(|task| task.config.id.clone());
                    tracing::info!(task.id = id, reason, message, "a task ended");
                    slot.update(|task| task.finish(reason, &message));
                    slot.save();
                    release(shim, &slot).await;
                }
            }
            (TaskStatus::Terminated, false) => {
                release(shim, &slot).await;
            }
            _ => {}
        }
        slot.save_again();
    }
}

/// Why a running task is over; `None` if it is not, or if that cannot be told now.
async fn ended(
    shim: &Shim,
    slot: &Slot,
    containers: Option<&HashMap<String, ContainerState>>,
) -> Option<(&'static str, String)> {
    let (work, dir) = slot.read(|task| (task.work.clone(), task.dir.clone()));
    match (work, shim.runtimes.engine()) {
        (Work::Container(id), Some(engine)) => match containers?.get(&id) {
            Some(ContainerState::Alive) => None,
            // The list is older than this moment: the task may have been started since.
            _ => container_ended(engine, &id, dir.as_deref()).await,
        },
        (Work::Process(record), _) => {
            let dir = dir?;
            match record.outcome(&dir) {
                Outcome::Alive => None,
                Outcome::Exited(0) => Some(after_code_0(&dir.join(TMP_DIR), Witness::Keeper)),
                Outcome::Exited(code) => Some((
                    reason::CONTAINER_EXITED_WITH_ERROR,
                    process::why_ended(code, &dir),
                )),
                Outcome::Lost => Some((reason::EXECUTOR_ERROR, "process not found".to_owned())),
            }
        }
        (Work::Container(_), None) => Some((
            reason::EXECUTOR_ERROR,
            "the shim runs without Docker now".to_owned(),
        )),
        (Work::Nothing, _) => Some(not_started()),
    }
}

fn not_started() -> (&'static str, String) {
    (
        reason::EXECUTOR_ERROR,
        "container was not started".to_owned(),
    )
}

async fn container_ended(
    engine: &Engine,
    id: &str,
    dir: Option<&Path>,
) -> Option<(&'static str, String)> {
    match engine.state(id).await {
        Ok((ContainerState::Alive, _)) => None,
        Ok((ContainerState::Created, _)) => Some(not_started()),
        Ok((ContainerState::Exited, 0)) => Some(match dir {
            Some(dir) => after_code_0(&dir.join(RUNNER_DIR), Witness::Engine),
            // Another shim's, which has left nothing here to ask.
            None => (reason::DONE_BY_RUNNER, String::new()),
        }),
        Ok((ContainerState::Exited, _)) => Some((
            reason::CONTAINER_EXITED_WITH_ERROR,
            engine.last_log_lines(id).await,
        )),
        Err(err) if docker::is_not_found(&err) => {
            Some((reason::EXECUTOR_ERROR, "container not found".to_owned()))
        }
        Err(err) => {
            tracing::error!(container.id = id, error = %err, "a container cannot be inspected");
            None
        }
    }
}

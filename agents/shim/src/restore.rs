//! Finds tasks again after a restart: containers by their labels, processes and details by their state files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use dstack_agent_protocol::shim::{TaskConfig, TaskStatus, VolumeInfo};

use crate::docker::{self, ContainerState, Engine, Listed};
use crate::lifecycle::{RUNNER_DIR, discard_dir};
use crate::registry::Slot;
use crate::shim::Shim;
use crate::state_file::State;
use crate::task::{Task, Work};
use crate::volumes::{self, VOLUMES_DIR};
use crate::{process, reconcile};

/// Brings all tasks of an earlier shim back, deletes what belongs to none, and makes keys agree with them.
pub(crate) async fn restore(shim: &Arc<Shim>) -> anyhow::Result<()> {
    let mut states = read_states(&shim.tasks_dir()).context("task directories cannot be read")?;
    if let Some(engine) = shim.runtimes.engine() {
        for container in engine
            .list(&shim.home)
            .await
            .context("containers cannot be listed")?
        {
            let Some(id) = container.task_id.clone() else {
                tracing::warn!(
                    container.name = container.name,
                    "a container has no task id"
                );
                continue;
            };
            let state = states.remove(&id);
            if container.state == ContainerState::Created {
                forget(engine, &container, state).await;
                continue;
            }
            let task = container_task(shim, engine, id, container, state).await;
            add(shim, task);
        }
    }
    let mut users = BTreeSet::new();
    for (dir, state) in states.into_values() {
        if !state.config.host_ssh_keys.is_empty() {
            users.insert(state.config.host_ssh_user.clone());
        }
        if state.process.is_some() {
            add(shim, process_task(dir, state));
        } else if shim.runtimes.engine().is_none() && !state.is_process {
            // Its container may run and use the directory: without the engine nobody knows.
            tracing::warn!(
                task.id = state.id,
                "a container's task waits for a shim with Docker"
            );
        } else {
            discard(&dir, &state);
        }
    }
    for slot in shim.tasks.all() {
        slot.read(|task| {
            if !task.config.host_ssh_keys.is_empty() {
                users.insert(task.config.host_ssh_user.clone());
            }
        });
    }
    for user in users {
        if let Err(err) = shim.reconcile_host_keys(&user) {
            tracing::error!(user, error = %err, "keys of tasks cannot be written");
        }
    }
    shim.remove_mount_targets();
    Ok(())
}

/// Takes away a container that the last shim made and did not start. The job has not begun: the server finds the task
/// unknown and submits it again.
async fn forget(engine: &Engine, container: &Listed, state: Option<(PathBuf, State)>) {
    tracing::info!(
        container.name,
        "a container that was never started is removed"
    );
    if let Err(err) = engine.remove(&container.id).await {
        tracing::error!(container.name, error = %err, "it cannot be removed");
    }
    if let Some((dir, state)) = state {
        discard(&dir, &state);
    }
}

/// Ends what a task without container or process has left.
fn discard(dir: &Path, state: &State) {
    for volume in &state.config.volumes {
        if !state.cleaned_up
            && let Err(err) = volumes::unmount(&volume.name)
        {
            tracing::error!(task.id = state.id, error = %err, "a left-over volume stays mounted");
        }
    }
    if let Err(err) = discard_dir(dir) {
        tracing::warn!(dir = %dir.display(), error = %err, "a left-over task cannot be removed");
    }
}

/// Whether a task directory was made in the very moment in which the shim died: it holds nothing yet but the empty part
/// that a container would see. Others without a state file may be those of a shim that kept none.
fn is_unborn(dir: &Path) -> bool {
    let entries = fs::read_dir(dir).map(|entries| {
        let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
        names.collect::<io::Result<Vec<_>>>()
    });
    let Ok(Ok(names)) = entries else { return false };
    let is_empty =
        |name: &str| fs::read_dir(dir.join(name)).is_ok_and(|mut entries| entries.next().is_none());
    names
        .iter()
        .all(|name| (name == RUNNER_DIR && is_empty(RUNNER_DIR)) || name == "task.json.tmp")
}

/// State files by task id. A file that cannot be read is left alone; a directory that holds nothing yet goes.
fn read_states(parent: &Path) -> io::Result<BTreeMap<String, (PathBuf, State)>> {
    let entries = match fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(err) => return Err(err),
    };
    let mut states = BTreeMap::new();
    for entry in entries {
        let dir = entry?.path();
        match State::read(&dir) {
            Ok(Some(state)) => {
                states.insert(state.id.clone(), (dir, state));
            }
            Ok(None) if is_unborn(&dir) => {
                if let Err(err) = discard_dir(&dir) {
                    tracing::warn!(dir = %dir.display(), error = %err, "a left-over directory cannot be removed");
                }
            }
            Ok(None) => {}
            Err(err) => {
                tracing::error!(dir = %dir.display(), error = %err, "a state file cannot be read");
            }
        }
    }
    Ok(states)
}

fn add(shim: &Arc<Shim>, task: Task) {
    tracing::info!(task.id = task.config.id, status = %task.status, "a task was found again");
    if let Some(slot) = shim.tasks.add(task) {
        lock_gpus(shim, &slot);
        if slot.status() == TaskStatus::Running {
            reconcile::watch(shim, &slot);
        }
    }
}

fn lock_gpus(shim: &Shim, slot: &Slot) {
    slot.update(|task| {
        if !task.is_cleaned_up {
            let ids = task.gpus.take().unwrap_or_default();
            task.gpus = Some(shim.gpu_lock.take(&ids));
        }
    });
}

/// A recorded reason means that the task is over; else the reconciler decides.
fn task_of(state: State) -> Task {
    let mut task = Task::new(state.config);
    task.status = TaskStatus::Running;
    if !state.termination_reason.is_empty() || state.cleaned_up {
        task.status = TaskStatus::Terminated;
    }
    task.reason = state.termination_reason;
    task.message = state.termination_message;
    task.is_cleaned_up = state.cleaned_up;
    task.is_process = state.is_process;
    if let Some(record) = state.process {
        task.work = Work::Process(record);
    }
    task
}

fn process_task(dir: PathBuf, state: State) -> Task {
    let gpus = state.gpus.clone();
    let mut task = task_of(state);
    task.ports = process::ports(&dir);
    task.gpus = Some(gpus);
    if let Some(name) = dir.file_name() {
        task.name = name.to_string_lossy().into_owned();
    }
    task.dir = Some(dir);
    task
}

async fn container_task(
    shim: &Shim,
    engine: &Engine,
    id: String,
    container: Listed,
    state: Option<(PathBuf, State)>,
) -> Task {
    let (dir, mut task) = match state {
        Some((dir, state)) => (Some(dir), task_of(state)),
        None => {
            let dir = shim.tasks_dir().join(&container.name);
            (
                dir.is_dir().then_some(dir),
                task_without_state(id, &container),
            )
        }
    };
    task.name = container.name;
    task.dir = dir;
    match engine.inspect(&container.id).await {
        Ok(inspected) => {
            task.ports = Some(docker::ports_of(&inspected));
            if let Some(vendor) = shim.gpus.vendor {
                task.gpus = Some(docker::gpu_ids(&inspected, vendor));
            }
        }
        Err(err) => {
            tracing::error!(container.name = task.name, error = %err, "a container cannot be inspected");
        }
    }
    task.work = Work::Container(container.id);
    task
}

/// A container of a shim that kept no state files: its volumes can be told from its mounts.
fn task_without_state(id: String, container: &Listed) -> Task {
    let volumes = container.mount_sources.iter().filter_map(|source| {
        let name = Path::new(source)
            .strip_prefix(VOLUMES_DIR)
            .ok()?
            .to_string_lossy()
            .into_owned();
        Some(VolumeInfo {
            name,
            ..VolumeInfo::default()
        })
    });
    let config = TaskConfig {
        id,
        volumes: volumes.collect(),
        ..TaskConfig::default()
    };
    let mut task = Task::new(config);
    task.status = TaskStatus::Running;
    task
}

//! A task's life: submit, start, terminate, remove.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dstack_agent_kit::http::HttpError;
use dstack_agent_protocol::reason;
use dstack_agent_protocol::shim::{
    PortMapping, TaskConfig, TaskInfo, TaskStatus, TerminateRequest,
};

use crate::clean_up::release;
use crate::docker::{self, Engine};
use crate::gpu::Vendor;
use crate::process::{self, StartError};
use crate::registry::Slot;
use crate::shim::Shim;
use crate::task::{Rejected, Task, Work, is_valid_name};
use crate::{mounts, reconcile, volumes};

/// Part of the engine's error when the driver has no display device.
const NO_DISPLAY_DEVICE: &str = "/dev/nvidia-modeset";
/// How long a call waits for another one on the same task; clients wait 9 s.
const OPERATION_WAIT: Duration = Duration::from_secs(8);
/// The part of a task's directory that is the runner's temp dir in a container.
pub(crate) const RUNNER_DIR: &str = "runner";

/// Why a start ended.
#[derive(Debug)]
enum Failure {
    /// The task ends with this reason and message.
    Ends(&'static str, String),
    /// The task was terminated meanwhile; its reason is known.
    Superseded(Rejected),
}

impl From<Rejected> for Failure {
    fn from(rejected: Rejected) -> Self {
        Self::Superseded(rejected)
    }
}

fn executor_error(message: impl std::fmt::Display) -> Failure {
    Failure::Ends(reason::EXECUTOR_ERROR, message.to_string())
}

fn creating_error(message: impl std::fmt::Display) -> Failure {
    Failure::Ends(reason::CREATING_CONTAINER_ERROR, message.to_string())
}

/// Takes a task in; the work goes on in the background.
pub(crate) fn submit(shim: &Arc<Shim>, config: TaskConfig) -> Result<TaskInfo, HttpError> {
    for (field, value) in [
        ("id", &config.id),
        ("name", &config.name),
        ("image_name", &config.image_name),
    ] {
        if value.is_empty() {
            return Err(HttpError::bad_request(format!("empty {field}")));
        }
    }
    if !is_valid_name(&config.name) {
        return Err(HttpError::bad_request(format!(
            "invalid name \"{}\": use letters, digits, \"_\", \".\" and \"-\"",
            config.name
        )));
    }
    let id = config.id.clone();
    let Some(slot) = shim.tasks.add(Task::new(config)) else {
        return Err(HttpError::conflict(format!(
            "request error: task {id} is already submitted"
        )));
    };
    let info = slot.info();
    shim.background.spawn(start(Arc::clone(shim), slot));
    Ok(info)
}

async fn start(shim: Arc<Shim>, slot: Arc<Slot>) {
    let _operation = slot.operation.lock().await;
    let id = slot.read(|task| task.config.id.clone());
    match start_steps(&shim, &slot).await {
        Ok(()) => {
            tracing::info!(task.id = id, "a task runs");
            reconcile::watch(&shim, &slot);
        }
        Err(failure) => {
            match failure {
                Failure::Ends(reason, message) => {
                    tracing::error!(task.id = id, reason, message, "a task did not start");
                    slot.update(|task| task.finish(reason, &message));
                }
                Failure::Superseded(rejected) => {
                    tracing::info!(task.id = id, %rejected, "a task was ended while it started");
                }
            }
            slot.save();
            release(&shim, &slot).await;
        }
    }
}

async fn start_steps(shim: &Shim, slot: &Slot) -> Result<(), Failure> {
    slot.advance(TaskStatus::Preparing)?;
    let (config, name) = slot.read(|task| (task.config.clone(), task.name.clone()));
    // Settled before anything is written down: what is written says which runtime the task is of.
    let is_process = tokio::select! {
        is_process = shim.runtimes.is_process(&config) => is_process,
        () = slot.cancel_pull.cancelled() => {
            // Told to end: this says so.
            slot.advance(TaskStatus::Pulling)?;
            false
        }
    };
    slot.update(|task| task.is_process = is_process);
    let dir = make_dir(&shim.tasks_dir(), &name).map_err(executor_error)?;
    slot.update(|task| task.dir = Some(dir.clone()));
    // On a full disk nothing is begun that a restarted shim would not know of.
    slot.try_save()
        .map_err(|err| executor_error(format!("the task cannot be written down: {err}")))?;
    let gpus = match config.gpu {
        0 => Vec::new(),
        wanted => shim.gpu_lock.acquire(wanted).map_err(executor_error)?,
    };
    slot.update(|task| task.gpus = Some(gpus.clone()));
    if !config.host_ssh_keys.is_empty() {
        shim.reconcile_host_keys(&config.host_ssh_user)
            .map_err(|err| executor_error(format!("reconcileHostSshKeys error: {err}")))?;
    }
    mount_volumes(shim, &config)
        .await
        .map_err(|err| executor_error(format!("prepareVolumes error: {err}")))?;
    mounts::prepare_instance_mounts(&config.instance_mounts)
        .map_err(|err| executor_error(format!("prepareInstanceMountPoints error: {err}")))?;
    slot.advance(TaskStatus::Pulling)?;
    let work = Start {
        shim,
        slot,
        config: &config,
        name: &name,
        dir: &dir,
        gpus: &gpus,
    };
    let ports = match shim.runtimes.engine() {
        Some(engine) if !is_process => work.in_container(engine).await?,
        _ => work.as_process().await?,
    };
    slot.update(|task| {
        task.advance(TaskStatus::Running)?;
        task.ports = Some(ports);
        Ok::<_, Rejected>(())
    })?;
    Ok(())
}

async fn mount_volumes(shim: &Shim, config: &TaskConfig) -> Result<(), String> {
    for volume in config.volumes.clone() {
        let _one_change = shim.volume_locks.lock(&volume.name).await;
        tokio::task::spawn_blocking(move || volumes::mount(&volume))
            .await
            .map_err(|err| err.to_string())?
            .map_err(|err| err.to_string())?;
    }
    Ok(())
}

/// The later steps of a start and what they need.
struct Start<'a> {
    shim: &'a Shim,
    slot: &'a Slot,
    config: &'a TaskConfig,
    name: &'a str,
    dir: &'a Path,
    gpus: &'a [String],
}

impl Start<'_> {
    async fn in_container(&self, engine: &Engine) -> Result<Vec<PortMapping>, Failure> {
        let Self {
            slot, config, dir, ..
        } = self;
        let log = dir.join("pull.log");
        docker::pull(engine, config, &log, &slot.cancel_pull, |progress| {
            slot.update(|task| task.progress = Some(progress));
        })
        .await
        .map_err(|err| creating_error(format!("pullImage error: {err}")))?;
        slot.update(|task| task.forget_login());
        slot.advance(TaskStatus::Creating)?;
        let mut id = self.create(engine, true).await?;
        if let Err(err) = engine.start(&id).await {
            let has_no_display = self.shim.gpus.vendor == Some(Vendor::Nvidia)
                && config.gpu_devices.is_empty()
                && docker::message(&err).contains(NO_DISPLAY_DEVICE);
            let retried = if has_no_display {
                engine
                    .remove(&id)
                    .await
                    .map_err(|err| self.not_started(err))?;
                id = self.create(engine, false).await?;
                engine.start(&id).await
            } else {
                Err(err)
            };
            if let Err(err) = retried {
                let lines = engine.last_log_lines(&id).await;
                tracing::error!(task.name = self.name, error = %err, "a container did not start");
                return Err(Failure::Ends(reason::CONTAINER_EXITED_WITH_ERROR, lines));
            }
        }
        engine
            .ports(&id, config.network_mode)
            .await
            .map_err(|err| self.not_started(err))
    }

    async fn create(&self, engine: &Engine, has_display: bool) -> Result<String, Failure> {
        let request = docker::Request {
            config: self.config,
            defaults: &self.shim.defaults,
            home: &self.shim.home,
            runner_dir: self.dir.join(RUNNER_DIR),
            vendor: self.shim.gpus.vendor,
            gpus: self.gpus,
            has_display,
            root: Path::new("/"),
        };
        let id = engine.create(self.name, &request).await.map_err(|err| {
            creating_error(format!("createContainer error: {}", docker::message(&err)))
        })?;
        self.slot
            .update(|task| task.work = Work::Container(id.clone()));
        Ok(id)
    }

    #[expect(clippy::unused_self, reason = "reads as a step of this start")]
    fn not_started(&self, err: bollard::errors::Error) -> Failure {
        executor_error(format!("the engine failed: {}", docker::message(&err)))
    }

    async fn as_process(&self) -> Result<Vec<PortMapping>, Failure> {
        self.slot.advance(TaskStatus::Creating)?;
        let create_error = |err: io::Error| creating_error(format!("createProcess error: {err}"));
        process::prepare(self.dir).map_err(create_error)?;
        let request = process::Request {
            config: self.config,
            defaults: &self.shim.defaults,
            name: self.name,
            dir: self.dir,
            vendor: self.shim.gpus.vendor,
            gpus: self.gpus,
        };
        let spawned = process::spawn(&request).map_err(create_error)?;
        self.slot
            .update(|task| task.work = Work::Process(spawned.record.clone()));
        // Before the keeper goes on, so that a shim that dies now is followed by one that knows the process.
        self.slot.save();
        spawned.release(self.dir).await.map_err(|err| match err {
            StartError::Create(err) => create_error(err),
            StartError::Exited(lines) => Failure::Ends(reason::CONTAINER_EXITED_WITH_ERROR, lines),
        })
    }
}

/// Makes the directory of a task, with the part that containers see.
fn make_dir(parent: &Path, name: &str) -> io::Result<PathBuf> {
    let dir = parent.join(name);
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(parent)?;
    // Left over from a removal that failed half-way: its content must not come to life again.
    if dir.exists() {
        discard_dir(&dir)?;
    }
    DirBuilder::new().mode(0o700).create(&dir)?;
    DirBuilder::new().mode(0o755).create(dir.join(RUNNER_DIR))?;
    Ok(dir)
}

/// Removes a task directory; what cannot be removed is renamed out of the way.
pub(crate) fn discard_dir(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Ok(()) => return Ok(()),
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(err) => {
            tracing::warn!(dir = %dir.display(), error = %err, "a task directory stays as trash");
        }
    }
    let micros = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_micros();
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    fs::rename(dir, dir.with_file_name(format!(".trash-{name}-{micros}")))
}

/// Ends a task. While it starts, it is only marked and the start gives up; a running one has ended when this returns.
pub(crate) async fn terminate(
    shim: &Shim,
    slot: &Slot,
    request: &TerminateRequest,
) -> Result<TaskInfo, HttpError> {
    let (reason, message) = (&request.termination_reason, &request.termination_message);
    let is_running = slot.update(|task| {
        let is_running = task.status == TaskStatus::Running;
        if !is_running {
            task.finish(reason, message);
        }
        is_running
    });
    if !is_running {
        slot.cancel_pull.cancel();
        slot.save();
        return Ok(slot.info());
    }
    let _operation = operation(slot).await?;
    stop_work(shim, slot, request.timeout)
        .await
        .map_err(HttpError::internal)?;
    slot.update(|task| task.finish(reason, message));
    slot.save();
    release(shim, slot).await;
    Ok(slot.info())
}

/// Stops what runs for a task; nothing or something that has ended is fine.
pub(crate) async fn stop_work(shim: &Shim, slot: &Slot, timeout_s: u32) -> Result<(), String> {
    let (work, name) = slot.read(|task| (task.work.clone(), task.name.clone()));
    match (work, shim.runtimes.engine()) {
        (Work::Nothing, _) => Ok(()),
        (Work::Container(id), Some(engine)) => engine
            .stop(&id, timeout_s)
            .await
            .map_err(|err| docker::message(&err)),
        (Work::Container(_), None) => Err("no Docker engine".to_owned()),
        (Work::Process(record), _) => process::stop(&record, &name, timeout_s).await,
    }
}

/// Forgets a terminated task and deletes all it left.
pub(crate) async fn remove(shim: &Shim, slot: &Slot) -> Result<(), HttpError> {
    let (id, status) = slot.read(|task| (task.config.id.clone(), task.status));
    if status != TaskStatus::Terminated {
        return Err(HttpError::conflict(format!(
            "request error: cannot remove task {id} with {status} status"
        )));
    }
    let _operation = operation(slot).await?;
    if !release(shim, slot).await {
        return Err(HttpError::internal(format!(
            "task {id} could not be cleaned up"
        )));
    }
    let (work, dir) = slot.read(|task| (task.work.clone(), task.dir.clone()));
    if let (Work::Container(container), Some(engine)) = (&work, shim.runtimes.engine()) {
        let removed = engine.remove(container).await;
        removed.map_err(|err| HttpError::internal(docker::message(&err)))?;
    }
    if let Some(dir) = dir
        && let Err(err) = discard_dir(&dir)
    {
        tracing::error!(task.id = id, error = %err, "a task directory could not be removed");
    }
    shim.tasks.forget(&id);
    tracing::info!(task.id = id, "a task was removed");
    Ok(())
}

async fn operation(slot: &Slot) -> Result<tokio::sync::MutexGuard<'_, ()>, HttpError> {
    tokio::time::timeout(OPERATION_WAIT, slot.operation.lock())
        .await
        .map_err(|_| HttpError::conflict("request error: the task is busy, try again"))
}

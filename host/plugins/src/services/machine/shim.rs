//! Starts, finds and stops the shim of a home. All three may be called at any moment, any number of times.

use super::keeper;
use crate::services::unix_http;
use bytes::Bytes;
use dstack_backend_types::{
    BackendError, ErrorKind,
    services::{FoundShim, ShimState},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Deserialize;
use std::{
    ffi::OsString,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use tokio::time::{Instant, sleep};

const SOCKET: &str = "shim.sock";
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Stopping a container may take its time; killing does not.
const TERMINATE_LIMIT: Duration = Duration::from_secs(15);
const KEEPER_LIMIT: Duration = Duration::from_secs(6);
const STOP_LIMIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// How the shim is.
pub(super) async fn state(home: &Path) -> ShimState {
    let socket = home.join(SOCKET);
    let is_running = keeper::is_alive(home);
    let answer = unix_http::request(&socket, "GET", "/api/healthcheck", "", ANSWER_LIMIT);
    let is_ready = is_running && matches!(answer.await, Ok((200, _)));
    ShimState {
        is_running,
        is_ready,
        home: home.display().to_string(),
        socket: socket.display().to_string(),
    }
}

/// The files of the agents.
#[derive(Debug)]
pub(super) struct Agents {
    pub(super) shim: PathBuf,
    pub(super) runner: PathBuf,
}

/// Starts keeper and shim, unless they run.
pub(super) async fn start(
    home: &Path,
    agents: &Agents,
    flags: &[String],
) -> Result<ShimState, BackendError> {
    let failed = |what: &str, e: &io::Error| {
        BackendError::new(
            ErrorKind::Provisioning,
            format!("cannot {what} {}: {e}", home.display()),
        )
    };
    if keeper::is_alive(home) {
        return Ok(state(home).await);
    }
    // Others must not reach the socket: whoever does may run anything as us.
    let mut builder = std::fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(home)
        .map_err(|e| failed("make the folder", &e))?;
    let mut command: Vec<OsString> = vec![
        agents.shim.clone().into(),
        "--shim-home".into(),
        home.into(),
        "--socket".into(),
        home.join(SOCKET).into(),
    ];
    command.extend(["--runner-binary-path".into(), agents.runner.clone().into()]);
    command.extend(flags.iter().map(OsString::from));
    keeper::spawn(home, &command)
        .await
        .map_err(|e| failed("start a shim in", &e))?;
    let started = Instant::now();
    while !keeper::is_alive(home) {
        if started.elapsed() > KEEPER_LIMIT {
            let message = format!(
                "the keeper of the shim in {} did not start; see keeper.log there",
                home.display()
            );
            return Err(BackendError::new(ErrorKind::Provisioning, message));
        }
        sleep(POLL).await;
    }
    Ok(state(home).await)
}

#[derive(Deserialize)]
struct Tasks {
    #[serde(default)]
    tasks: Vec<Task>,
}

#[derive(Deserialize)]
struct Task {
    id: String,
}

/// All homes in `folder`. One without a keeper is listed too: a start or a stop was cut short there.
pub(super) fn list(folder: &Path) -> Result<Vec<FoundShim>, BackendError> {
    let failed =
        |e: io::Error| BackendError::internal(format!("cannot read {}: {e}", folder.display()));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        // Stopped and removed just now, or nobody's home.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            continue;
        };
        if !metadata.is_dir() {
            continue;
        }
        let created = metadata.created().or_else(|_| metadata.modified()).ok();
        let since = created.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        found.push(FoundShim {
            name,
            is_running: keeper::is_alive(&entry.path()),
            created_at_us: since.and_then(|since| i64::try_from(since.as_micros()).ok()),
        });
    }
    Ok(found)
}

/// Ends all tasks, then keeper and shim.
pub(super) async fn stop(
    home: &Path,
    agents: impl FnOnce() -> Result<Agents, BackendError>,
) -> Result<ShimState, BackendError> {
    if !home.exists() {
        return Ok(state(home).await);
    }
    if !keeper::is_alive(home) && has_tasks(home) {
        // Tasks outlive their shim, and only a shim knows how to end them.
        end_processes(home).await?;
        let flags = ["--runtime".to_owned(), "auto".to_owned()];
        start(home, &agents()?, &flags).await?;
    }
    // A shim between two starts cannot end its tasks: give it the keeper's pause to come back.
    let mut is_ready = state(home).await.is_ready;
    let asked = Instant::now();
    while !is_ready && keeper::is_alive(home) && asked.elapsed() < STOP_LIMIT {
        sleep(POLL).await;
        is_ready = state(home).await.is_ready;
    }
    if is_ready {
        end_tasks(&home.join(SOCKET)).await?;
    } else if has_tasks(home) {
        return Err(BackendError::not_yet_terminated(format!(
            "the shim in {} does not come up to end its tasks; see keeper.log there",
            home.display()
        )));
    }
    end_processes(home).await?;
    if let Err(error) = std::fs::remove_file(home.join(SOCKET))
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(home = %home.display(), %error, "cannot remove the socket of a stopped shim");
    }
    Ok(state(home).await)
}

/// Whether the shim's folder of tasks holds any.
fn has_tasks(home: &Path) -> bool {
    let tasks = std::fs::read_dir(home.join("runners"));
    tasks
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| entry.path().join("task.json").exists())
}

async fn end_tasks(socket: &Path) -> Result<(), BackendError> {
    const REASON: &str =
        r#"{"termination_reason":"terminated_by_server","termination_message":"","timeout":0}"#;
    let failed = |what: String| {
        tracing::warn!(socket = %socket.display(), what, "a shim that is being stopped does not end its tasks");
        BackendError::not_yet_terminated(what)
    };
    let listed = unix_http::request(socket, "GET", "/api/tasks", "", ANSWER_LIMIT).await;
    let tasks = match listed {
        Ok((200, body)) => serde_json::from_slice::<Tasks>(&body)
            .map_err(|e| failed(format!("the shim's list of tasks is not understood: {e}")))?,
        other => {
            return Err(failed(format!(
                "the shim does not list its tasks: {}",
                said(other)
            )));
        }
    };
    for task in tasks.tasks {
        for (action, body) in [("terminate", REASON), ("remove", "")] {
            let path = format!("/api/tasks/{}/{action}", task.id);
            match unix_http::request(socket, "POST", &path, body, TERMINATE_LIMIT).await {
                Ok((200 | 404, _)) => {}
                other => {
                    return Err(failed(format!(
                        "task {}: {action}: {}",
                        task.id,
                        said(other)
                    )));
                }
            }
        }
    }
    Ok(())
}

fn said(answer: io::Result<(u16, Bytes)>) -> String {
    match answer {
        Ok((status, body)) => format!("{status} {}", String::from_utf8_lossy(&body).trim()),
        Err(error) => error.to_string(),
    }
}

/// Kills the keeper first, so that it starts nothing, then asks the shim to end and at last kills it.
async fn end_processes(home: &Path) -> Result<(), BackendError> {
    let signal = |pid: i32, signal: Signal| {
        // Fails only if the process is gone, which is what we want.
        if let Err(error) = kill(Pid::from_raw(pid), signal) {
            tracing::debug!(pid, %error, "signal not delivered");
        }
    };
    let keepers = keeper::keepers(home);
    let mut shims: Vec<i32> = keepers
        .iter()
        .flat_map(|pid| keeper::children(*pid))
        .collect();
    for pid in keepers {
        signal(pid, Signal::SIGKILL);
    }
    shims.extend(keeper::strays(home));
    shims.sort_unstable();
    shims.dedup();
    let shims: Vec<_> = shims
        .into_iter()
        .filter_map(|pid| Some((pid, keeper::stat(pid)?)))
        .collect();
    for (pid, _) in &shims {
        signal(*pid, Signal::SIGTERM);
    }
    let asked = Instant::now();
    let mut is_killed = false;
    loop {
        let left: Vec<i32> = shims
            .iter()
            .filter(|(pid, seen)| keeper::still_runs(*pid, *seen))
            .map(|(pid, _)| *pid)
            .collect();
        if left.is_empty() && !keeper::is_alive(home) {
            return Ok(());
        }
        if asked.elapsed() > STOP_LIMIT * 2 {
            return Err(BackendError::not_yet_terminated(format!(
                "the shim in {} does not end",
                home.display()
            )));
        }
        if asked.elapsed() > STOP_LIMIT && !is_killed {
            is_killed = true;
            for pid in left {
                signal(pid, Signal::SIGKILL);
            }
        }
        sleep(POLL).await;
    }
}

/// Removes what a stopped shim has left.
pub(super) fn remove_home(home: &Path) -> Result<(), BackendError> {
    match std::fs::remove_dir_all(home) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A process of the task may still be writing: the next call finds it gone.
        Err(error) => Err(BackendError::not_yet_terminated(format!(
            "cannot remove {}: {error}",
            home.display()
        ))),
    }
}

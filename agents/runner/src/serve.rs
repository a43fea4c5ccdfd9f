//! From the command line to the last pull.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dstack_agent_kit::http::{Listen, Listener, serve};
use dstack_agent_kit::logging::{self, Level, Tee};
use dstack_agent_kit::stop::Stop;

use crate::args::StartArgs;
use crate::children::Children;
use crate::end_mark::EndMark;
use crate::history::History;
use crate::metrics::{Cgroup, Vendor};
use crate::paths::Paths;
use crate::raw_log::RawLog;
use crate::runner::{Phase, Runner, Setting};
use crate::users::Database;
use crate::{api, process, session, sshd};

/// A runner without a job gives up after this.
const JOB_LIMIT: Duration = Duration::from_secs(5 * 60);
/// Logs wait for their readers this long after the job.
const DRAIN_LIMIT: Duration = Duration::from_secs(5 * 60);
/// The same once the runner itself was told to end.
const HURRIED_DRAIN_LIMIT: Duration = Duration::from_secs(3);

/// Why the runner ended without having run a job, or without having told how it ended.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Not root, in a container.
    #[error("must be root: running as uid {0}")]
    NotRoot(u32),
    /// Nobody submitted and started a job.
    #[error("no job submitted")]
    NoJob,
    /// The job was not done, and nobody has asked how it ended: an exit with 0 would say that it was done.
    #[error("ended before the server learned how the job ended")]
    Untold,
    /// A signal came before the job was started.
    #[error("interrupted before a job was started")]
    Interrupted,
    /// Something the runner needs cannot be set up.
    #[error("cannot set up {what}: {source}")]
    SetUp {
        /// The thing.
        what: String,
        /// Why not.
        source: io::Error,
    },
}

fn cannot(what: impl Into<String>) -> impl FnOnce(io::Error) -> StartError {
    let what = what.into();
    move |source| StartError::SetUp { what, source }
}

/// Serves one job to its end. The job's own result does not matter: it travels over the API.
///
/// # Errors
/// If the runner cannot start, or ends before a job was started.
pub fn start(log_level: Level, args: StartArgs) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(cannot("the runtime"))?;
    let ended = runtime.block_on(run(log_level, args));
    // Threads that wait for programs which would not end are left behind.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

async fn run(log_level: Level, args: StartArgs) -> Result<(), StartError> {
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let paths = match &args.task_dir {
        Some(dir) => Paths::in_task(&absolute(dir)?),
        None => Paths::in_container(&args.temp_dir),
    };
    make_dir(&paths.temp)?;
    // Before the log: a log without it is that of a runner which leaves no word.
    let end_mark = EndMark::reserve(&paths.temp).map_err(cannot("the mark of the job's end"))?;
    let tee = Tee::new();
    tee.add(io::stdout());
    let log = paths.temp.join("default.log");
    let file = OpenOptions::new().append(true).create(true).open(&log);
    tee.add(file.map_err(cannot(log.display().to_string()))?);
    logging::init(log_level, &tee);
    let uid = nix::unistd::geteuid();
    if args.task_dir.is_none() && !uid.is_root() {
        return Err(StartError::NotRoot(uid.as_raw()));
    }
    sshd::make_root(&paths.dstack, args.task_dir.is_none())
        .map_err(cannot(paths.dstack.display().to_string()))?;
    let children = Children::default();
    children.start_reaping().map_err(cannot("reaping"))?;
    let ssh_server = start_sshd(&args, &paths, &children)?;
    let history = Arc::new(History::create(&paths.temp).map_err(cannot("the pull log"))?);
    let raw = RawLog::create(&paths.temp.join("job.log")).map_err(cannot("job.log"))?;
    let setting = setting(&args, paths, ssh_server.is_some());
    let runner = Arc::new(Runner::new(setting, history, raw, children.clone(), tee));
    let signals = Stop::on_signals().map_err(cannot("signals"))?;
    let listen = match &args.http_socket {
        Some(path) => Listen::Unix(path.clone()),
        None => Listen::Tcp {
            host: args.http_address.clone(),
            port: args.http_port,
        },
    };
    let listener = Listener::bind(&listen)
        .await
        .map_err(cannot("the HTTP server"))?;
    if let (Some(path), Some(port)) = (&args.port_file, listener.port()) {
        write_port(path, port).map_err(cannot(path.display().to_string()))?;
    }
    tracing::info!(port = listener.port(), "waiting for a job");
    let no_more_requests = Stop::new();
    let server = tokio::spawn({
        let (router, stop) = (api::router(Arc::clone(&runner)), no_more_requests.clone());
        async move { serve(listener, router, &stop).await }
    });
    let ended = supervise(&runner, &signals, DRAIN_LIMIT).await;
    no_more_requests.request();
    tokio::select! {
        joined = server => if let Err(error) = joined { tracing::error!(%error, "the HTTP server failed") },
        () = signals.forced() => {}
    }
    if let Some(ssh_server) = ssh_server {
        let stopped = tokio::task::spawn_blocking(move || ssh_server.stop()).await;
        drop(stopped);
    }
    children.kill_all();
    if args.task_dir.is_some() {
        // No container ends with us: what left the job's session would stay for ever.
        let killed = tokio::task::spawn_blocking(move || {
            session::kill_descendants();
            children.reap()
        });
        drop(killed.await);
    }
    if let (Ok(()), Some(state)) = (&ended, runner.end())
        && let Err(error) = end_mark.write(state)
    {
        tracing::error!(%error, "the end of the job is not written down");
    }
    ended
}

/// Waits for a job, for its end, for the readers of its logs.
async fn supervise(
    runner: &Runner,
    signals: &Stop,
    drain_limit: Duration,
) -> Result<(), StartError> {
    tokio::select! {
        () = runner.reached(Phase::ServeLogs) => {}
        () = tokio::time::sleep(JOB_LIMIT) => return Err(StartError::NoJob),
        () = signals.requested() => return Err(StartError::Interrupted),
    }
    tokio::select! {
        () = runner.reached(Phase::WaitLogsFinished) => {}
        () = signals.requested() => {
            tracing::info!("told to end, stopping the job");
            runner.stop.cancel();
            tokio::select! {
                () = runner.reached(Phase::WaitLogsFinished) => {}
                () = signals.forced() => return Err(StartError::Untold),
            }
        }
    }
    let hurried = async {
        signals.requested().await;
        drop(tokio::time::timeout(HURRIED_DRAIN_LIMIT, runner.last_pull()).await);
    };
    tokio::select! {
        () = runner.all_taken() => {}
        () = hurried => {}
        () = signals.forced() => {}
        () = tokio::time::sleep(drain_limit) => tracing::warn!("logs were not taken in time"),
    }
    if runner.is_end_known() {
        Ok(())
    } else {
        Err(StartError::Untold)
    }
}

fn start_sshd(
    args: &StartArgs,
    paths: &Paths,
    children: &Children,
) -> Result<Option<sshd::Sshd>, StartError> {
    if args.no_sshd || args.task_dir.is_some() {
        return Ok(None);
    }
    let settings = sshd::Settings {
        dstack: &paths.dstack,
        temp: &paths.temp,
        port: args.ssh_port,
        log_level: &args.ssh_log_level,
        authorized_keys: &args.ssh_authorized_keys,
    };
    sshd::start(&settings, children)
        .map(Some)
        .map_err(cannot("the ssh server"))
}

fn setting(args: &StartArgs, paths: Paths, has_sshd: bool) -> Setting {
    let users = Database::read(&paths.passwd, &paths.group);
    let uid = nix::unistd::geteuid().as_raw();
    // The environment may come from another user, for example through sudo.
    let home = users.home_of(uid).unwrap_or_else(|| PathBuf::from("/root"));
    Setting {
        paths,
        ssh_port: args.ssh_port,
        has_sshd,
        home,
        may_switch_user: process::may_switch_user(),
        environment: std::env::vars_os().collect(),
        cgroup: Cgroup::find(),
        gpu_vendor: Vendor::find(),
    }
}

fn absolute(dir: &Path) -> Result<PathBuf, StartError> {
    std::path::absolute(dir).map_err(cannot(dir.display().to_string()))
}

fn make_dir(dir: &Path) -> Result<(), StartError> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(dir);
    made.and_then(|()| std::fs::set_permissions(dir, Permissions::from_mode(0o755)))
        .map_err(cannot(dir.display().to_string()))
}

/// Whoever sees the file sees all of it.
fn write_port(path: &Path, port: u16) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".tmp");
    std::fs::write(&part, format!("{port}\n"))?;
    std::fs::rename(&part, path)
}

#[cfg(test)]
mod tests {
    use dstack_agent_protocol::runner::{JobState, SubmitRequest};

    use super::*;
    use crate::history::Change;

    #[tokio::test]
    async fn an_end_that_nobody_asks_for_in_time_looks_done_only_if_it_is() {
        for (state, is_done) in [
            (JobState::Done, true),
            (JobState::Failed, false),
            (JobState::Terminated, false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let runner = Runner::for_tests(dir.path());
            runner.submit(SubmitRequest::default()).unwrap();
            runner.begin().unwrap();
            runner.finish(Change::to(state));
            let ended = supervise(&runner, &Stop::new(), Duration::from_millis(1)).await;
            assert_eq!(ended.is_ok(), is_done, "{state:?}: {ended:?}");
        }
    }
}

//! The way of a job from `run` to its end.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dstack_agent_protocol::reason;
use dstack_agent_protocol::runner::{JobState, RepoData, SubmitRequest};
use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::cluster::NodeLogin;
use crate::credentials::GitLogin;
use crate::environment::{self, Places};
use crate::expand::{expand, expand_absolute};
use crate::history::Change;
use crate::output::{Pump, Quota};
use crate::process::{self, Program, Started};
use crate::repo::{self, Checkout};
use crate::runner::{Runner, Submitted};
use crate::users::Account;
use crate::{archives, cluster, files, session, sshd};

/// A killed process is waited for this long.
const REAP: Duration = Duration::from_secs(5);

/// Who runs the job, and where.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    pub(crate) account: Account,
    pub(crate) working_dir: PathBuf,
}

/// Resolves user and working directory; the change tells the server what failed.
pub(crate) fn resolve(runner: &Runner, job: &SubmitRequest) -> Result<Resolved, Change> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        let message = format!("Failed to set job {what} ({error})");
        tracing::error!("{message}");
        Change::to(JobState::Failed).because(reason::EXECUTOR_ERROR, message)
    };
    let account = runner
        .account(job.job_spec.user.as_ref())
        .map_err(|e| failed("user", &e))?;
    let paths = &runner.setting.paths;
    let working_dir = match (job.job_spec.working_dir.as_deref(), &paths.own_work) {
        (Some(dir), _) => {
            let dir = expand_absolute(dir, &account.home).map_err(|e| failed("working dir", &e))?;
            paths.place(dir, is_workflow_mounted(paths.own_work.as_deref()))
        }
        (None, Some(work)) => work.clone(),
        (None, None) => std::env::current_dir().map_err(|e| failed("working dir", &e))?,
    };
    Ok(Resolved {
        account,
        working_dir,
    })
}

/// Whether `/workflow` is the task's own directory.
fn is_workflow_mounted(work: Option<&Path>) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    work.is_some_and(|work| {
        id(work).is_some() && id(work) == id(Path::new(crate::paths::Paths::default_repo_dir()))
    })
}

/// Does the work of the job beside the API and records how it ended. A bug of ours ends the job, not the runner.
pub(crate) fn spawn(runner: Arc<Runner>, work: impl Future<Output = Change> + Send + 'static) {
    let work = tokio::spawn(work);
    tokio::spawn(async move {
        let change = work.await.unwrap_or_else(|error| internal(&error));
        runner.finish(change);
    });
}

/// Sets up and runs the job; gives its last state.
pub(crate) async fn execute(runner: Arc<Runner>, job: Submitted, resolved: Resolved) -> Change {
    let prepared = tokio::task::spawn_blocking({
        let (runner, job) = (Arc::clone(&runner), job.clone());
        move || set_up(&runner, &job.request, &resolved)
    });
    let prepared = tokio::select! {
        prepared = prepared => prepared,
        () = runner.stop.cancelled() => return Change::to(JobState::Terminated),
    };
    let (program, logins) = match prepared {
        Ok(Ok(prepared)) => prepared,
        Ok(Err(change)) => return change,
        Err(error) => return internal(&error),
    };
    runner.history.add_state(Change::to(JobState::Running));
    let is_over = CancellationToken::new();
    let tracking = tokio::spawn({
        let (runner, is_over) = (Arc::clone(&runner), is_over.clone());
        async move {
            // Where nobody can log in, nobody is absent.
            if runner.setting.has_sshd {
                runner.tracker.run(runner.setting.ssh_port, is_over).await;
            }
        }
    });
    let change = run(&runner, &job, program).await;
    is_over.cancel();
    drop((tracking.await, logins));
    change
}

/// What a bug of ours becomes.
fn internal(error: &JoinError) -> Change {
    tracing::error!(%error, "the runner failed");
    Change::to(JobState::Failed).because(reason::EXECUTOR_ERROR, "Internal error of the runner")
}

/// What the job has of credentials while it runs.
#[derive(Debug, Default)]
struct Logins {
    git: GitLogin,
    nodes: Option<NodeLogin>,
}

type Prepared = (Program, Logins);

/// Credentials, repository, files, environment. Blocks the thread.
fn set_up(runner: &Runner, job: &SubmitRequest, resolved: &Resolved) -> Result<Prepared, Change> {
    let Resolved {
        account,
        working_dir,
    } = resolved;
    let paths = &runner.setting.paths;
    if let Some(home) = &paths.own_home {
        warn("home", files::make_dirs(home, account));
    }
    let logins = set_up_logins(runner, job, account);
    let spec = &job.job_spec;
    let failed = |reason, what: &str, error: &dyn std::fmt::Display| {
        let message = format!("Failed to set up {what} ({error})");
        tracing::error!("{message}");
        Change::to(JobState::Failed).because(reason, message)
    };
    let repo_dir = spec.repo_dir.as_deref().filter(|dir| !dir.is_empty());
    let repo_dir = expand(
        repo_dir.unwrap_or(crate::paths::Paths::default_repo_dir()),
        working_dir,
        &account.home,
    )
    .map(|dir| paths.place(dir, is_workflow_mounted(paths.own_work.as_deref())))
    .map_err(|e| failed(reason::CONTAINER_EXITED_WITH_ERROR, "the repo", &e))?;
    set_up_repo(runner, job, account, &repo_dir)
        .map_err(|e| failed(reason::CONTAINER_EXITED_WITH_ERROR, "the repo", &e))?;
    set_up_files(runner, job, resolved).map_err(|e| failed(reason::EXECUTOR_ERROR, "files", &e))?;
    let hostfile = environment::hostfile(&job.cluster_info)
        .map_err(|e| failed(reason::EXECUTOR_ERROR, "the MPI hostfile", &e))?;
    warn("MPI hostfile", std::fs::write(paths.hostfile(), hostfile));
    files::make_dirs(working_dir, account).map_err(|e| {
        let what = format!("the working dir {}", working_dir.display());
        failed(reason::EXECUTOR_ERROR, &what, &e)
    })?;
    if paths.own_work.as_ref() == Some(working_dir) {
        files::give(working_dir, account);
    }
    let hostfile = paths.hostfile();
    let places = Places {
        repo_dir: &repo_dir,
        working_dir,
        hostfile: &hostfile,
    };
    let mut env = environment::build(runner.setting.environment.clone(), job, places);
    if !env.contains_key(OsStr::new("GIT_CONFIG_COUNT")) {
        let variables = logins.git.variables.iter();
        env.extend(variables.map(|(key, value)| (key.into(), value.into())));
    }
    let login_profile = paths.login_profile.as_deref();
    warn(
        "login profile",
        environment::write_profile(&env, &paths.profile(), login_profile),
    );
    env.insert("HOME".into(), account.home.clone().into());
    let program = Program {
        argv: spec.commands.clone(),
        dir: working_dir.clone(),
        env,
        account: account.clone(),
    };
    Ok((program, logins))
}

fn set_up_logins(runner: &Runner, job: &SubmitRequest, account: &Account) -> Logins {
    let mut logins = Logins::default();
    if account.home == Path::new("/") {
        return logins;
    }
    if let Some(credentials) = &job.repo_credentials {
        match GitLogin::write(credentials, &account.home, account) {
            Ok(written) => logins.git = written,
            Err(error) => tracing::warn!(%error, "git credentials are not set up for the user"),
        }
    }
    match set_up_cluster(runner, job, account) {
        Ok(written) => logins.nodes = written,
        Err(error) => tracing::warn!(%error, "ssh between the nodes is not set up"),
    }
    logins
}

/// Things the job can do without.
fn warn(what: &str, done: io::Result<()>) {
    if let Err(error) = done {
        tracing::warn!(%error, "{what} is not set up");
    }
}

fn set_up_cluster(
    runner: &Runner,
    job: &SubmitRequest,
    account: &Account,
) -> io::Result<Option<NodeLogin>> {
    let key = job.job_spec.ssh_key.as_ref();
    let Some(key) = key.filter(|_| cluster::has_peers(key, &job.cluster_info)) else {
        return Ok(None);
    };
    let setting = &runner.setting;
    let login = NodeLogin::write(
        key,
        &job.cluster_info,
        setting.ssh_port,
        &account.home,
        account,
    )?;
    if setting.has_sshd {
        sshd::authorize(&setting.paths.authorized_keys(), &key.public)?;
    }
    Ok(Some(login))
}

fn set_up_repo(
    runner: &Runner,
    job: &SubmitRequest,
    account: &Account,
    dir: &Path,
) -> Result<(), repo::RepoError> {
    let run_spec = &job.run.run_spec;
    let data: &RepoData = job
        .job_spec
        .repo_data
        .as_ref()
        .unwrap_or(&run_spec.repo_data);
    if data.repo_type.is_empty() {
        return Ok(());
    }
    let paths = &runner.setting.paths;
    let blob = runner.blob_path(&run_spec.repo_id);
    repo::set_up(&Checkout {
        data,
        credentials: job.repo_credentials.as_ref(),
        is_single_branch: job.job_spec.single_branch.unwrap_or_default(),
        exists_action: job.job_spec.repo_exists_action.as_deref(),
        dir,
        blob: blob.exists().then_some(blob),
        temp: &paths.temp,
        home: &runner.setting.home,
        account,
        children: &runner.children,
        may_install: paths.own_work.is_none(),
    })?;
    warn("removal of uploaded code", files::remove(&paths.blobs()));
    Ok(())
}

fn set_up_files(runner: &Runner, job: &SubmitRequest, resolved: &Resolved) -> io::Result<()> {
    let Resolved {
        account,
        working_dir,
    } = resolved;
    for archive in &job.job_spec.file_archives {
        let target = expand(&archive.path, working_dir, &account.home).map_err(io::Error::other)?;
        let paths = &runner.setting.paths;
        let is_mounted = is_workflow_mounted(paths.own_work.as_deref());
        paths
            .check_replaceable(&target, is_mounted)
            .and_then(|()| archives::unpack_at(&runner.archive_path(&archive.id), &target, account))
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", archive.path)))?;
    }
    files::remove(&runner.setting.paths.archives())
}

/// Runs the command to its end.
async fn run(runner: &Arc<Runner>, job: &Submitted, program: Program) -> Change {
    let Started { child, terminal } = match process::start(&runner.children, &program) {
        Ok(started) => started,
        Err(error) => return not_started(runner, &program, &error),
    };
    let session = child.pid();
    let quota = job.request.log_quota_hour;
    let over_quota = Arc::new(Notify::new());
    let is_over_quota = Arc::new(AtomicBool::new(false));
    let has_ended = Arc::new(AtomicBool::new(false));
    let terminal_reader = match terminal.try_clone() {
        Ok(reader) => reader,
        Err(error) => {
            session::kill_all(session);
            return not_started(runner, &program, &error);
        }
    };
    let pump = Pump {
        terminal: terminal_reader,
        raw: Arc::clone(&runner.raw),
        history: Arc::clone(&runner.history),
        quota: Arc::new(Mutex::new(Quota::new(quota, job.at))),
        has_ended: Arc::clone(&has_ended),
        over_quota: Box::new({
            let (told, flag) = (Arc::clone(&over_quota), Arc::clone(&is_over_quota));
            move || {
                flag.store(true, Ordering::Release);
                told.notify_one();
            }
        }),
    };
    // What it ends with is asked for at several places.
    let pump = tokio::task::spawn_blocking(move || pump.run())
        .map(|ended| ended.err().map(Arc::new))
        .shared();
    let mut end = tokio::task::spawn_blocking(move || {
        let status = child.wait();
        has_ended.store(true, Ordering::Release);
        status
    });
    let limit = job.request.job_spec.max_duration.filter(|secs| *secs > 0);
    let mut is_too_long = false;
    let mut status = None;
    tokio::select! {
        ended = &mut end => status = Some(ended),
        () = runner.stop.cancelled() => {
            tracing::info!("stopping the job");
            session::end(session, || terminal.interrupt()).await;
        }
        () = after(limit) => {
            is_too_long = true;
            tracing::info!("the job ran for as long as it may");
            session::end(session, || terminal.interrupt()).await;
        }
        () = over_quota.notified() => session::kill_all(session),
        // It ends before the command only by a bug of ours: nobody would read the terminal, and the job would hang.
        Some(_) = pump.clone() => session::kill_all(session),
    }
    let status = match status {
        Some(ended) => Some(ended),
        None => tokio::time::timeout(REAP, end).await.ok(),
    };
    // What the job left running must not outlive it where no container ends with it.
    let broken = pump.await;
    session::kill_all(session);
    if let Some(error) = broken {
        return internal(&error);
    }
    conclude(
        Causes {
            is_stopped: runner.stop.is_cancelled(),
            is_too_long,
            over_quota: quota.filter(|_| is_over_quota.load(Ordering::Acquire)),
        },
        status.and_then(Result::ok).and_then(Result::ok),
    )
}

async fn after(limit: Option<u64>) {
    match limit {
        Some(secs) => tokio::time::sleep(Duration::from_secs(secs)).await,
        None => std::future::pending().await,
    }
}

fn not_started(runner: &Runner, program: &Program, error: &io::Error) -> Change {
    let name = program.argv.first().map_or("the command", String::as_str);
    let message = format!("Failed to start {name} ({error})");
    tracing::error!("{message}");
    // The user looks for it in the job's log.
    runner
        .history
        .add_job_log(format!("{message}\n").as_bytes());
    Change::to(JobState::Failed).because("", message)
}

/// Why a job ended other than by itself.
#[derive(Debug, Clone, Copy, Default)]
struct Causes {
    is_stopped: bool,
    is_too_long: bool,
    over_quota: Option<u64>,
}

/// The last state: the first cause that applies, else the exit status.
fn conclude(causes: Causes, status: Option<ExitStatus>) -> Change {
    if causes.is_stopped {
        return Change::to(JobState::Terminated);
    }
    if causes.is_too_long {
        let change = Change::to(JobState::Terminated);
        return change.because(reason::MAX_DURATION_EXCEEDED, "Max duration exceeded");
    }
    if let Some(quota) = causes.over_quota {
        let message = format!("Job log output exceeded the hourly quota of {quota} bytes");
        return Change::to(JobState::Failed).because(reason::LOG_QUOTA_EXCEEDED, message);
    }
    match status {
        Some(status) if status.success() => Change::to(JobState::Done).with_exit_status(0),
        // Without a code a signal ended it.
        Some(status) => Change::to(JobState::Failed).with_exit_status(status.code().unwrap_or(-1)),
        None => Change::to(JobState::Failed).with_exit_status(-1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Phase;
    use dstack_agent_protocol::runner::PullResponse;
    use std::os::unix::process::ExitStatusExt;

    #[tokio::test]
    async fn a_bug_of_ours_fails_the_job_and_lets_its_log_be_pulled() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Arc::new(Runner::for_tests(dir.path()));
        runner.submit(SubmitRequest::default()).unwrap();
        runner.begin().unwrap();
        runner.history.add_job_log(b"before\n");
        spawn(Arc::clone(&runner), async { panic!("a bug") });
        runner.reached(Phase::WaitLogsFinished).await;
        let pull = runner.select(0);
        let mut json = Vec::new();
        runner.answer(&pull).write(&mut json).unwrap();
        let answer: PullResponse = serde_json::from_slice(&json).unwrap();
        assert!(!answer.has_more);
        assert_eq!(answer.job_logs.len(), 1);
        let last = answer.job_states.last().unwrap();
        assert_eq!(
            (
                last.state,
                last.termination_reason.as_str(),
                last.exit_status
            ),
            (JobState::Failed, "executor_error", None)
        );
        assert_eq!(last.termination_message, "Internal error of the runner");
    }

    #[test]
    fn the_first_cause_wins_over_the_exit_status() {
        let ok = Some(ExitStatus::from_raw(0));
        let all = Causes {
            is_stopped: true,
            is_too_long: true,
            over_quota: Some(10),
        };
        assert_eq!(conclude(all, ok), Change::to(JobState::Terminated));
        let long = Causes {
            is_stopped: false,
            ..all
        };
        let change = conclude(long, ok);
        assert_eq!(
            (change.state, change.reason, change.exit_status),
            (JobState::Terminated, "max_duration_exceeded", None)
        );
        assert_eq!(change.message, "Max duration exceeded");
        let change = conclude(
            Causes {
                is_too_long: false,
                ..long
            },
            ok,
        );
        assert_eq!(
            (change.state, change.reason),
            (JobState::Failed, "log_quota_exceeded")
        );
        assert_eq!(
            change.message,
            "Job log output exceeded the hourly quota of 10 bytes"
        );
    }

    #[test]
    fn exit_codes_and_signals_become_states() {
        let end = |raw| {
            let change = conclude(Causes::default(), Some(ExitStatus::from_raw(raw)));
            (change.state, change.reason, change.exit_status)
        };
        assert_eq!(end(0), (JobState::Done, "", Some(0)));
        assert_eq!(end(7 << 8), (JobState::Failed, "", Some(7)));
        assert_eq!(end(9), (JobState::Failed, "", Some(-1)));
    }
}

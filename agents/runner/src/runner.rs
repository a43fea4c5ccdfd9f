//! The runner's state: one job, from its submission to its last pull.
//!
//! ```text
//! wait_submit ─► wait_run ─► serve_logs ─► wait_logs_finished
//!                  └─┘ a new submission replaces the job
//! ```

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use dstack_agent_kit::logging::Tee;
use dstack_agent_protocol::runner::{JobState, SubmitRequest, UnixUser};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::answer::Answer;
use crate::children::Children;
use crate::connections::Tracker;
use crate::environment::Environment;
use crate::history::{Change, History, RunnerLog, Selection};
use crate::metrics::{Cgroup, Vendor};
use crate::paths::Paths;
use crate::raw_log::RawLog;
use crate::users::{Account, Database, UserError};

/// Where the runner is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    WaitSubmit,
    WaitRun,
    ServeLogs,
    WaitLogsFinished,
}

/// The call is not allowed in this phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conflict;

/// A job that was handed over.
#[derive(Debug, Clone)]
pub(crate) struct Submitted {
    pub(crate) request: Arc<SubmitRequest>,
    pub(crate) at: Instant,
}

/// What a pull takes.
#[derive(Debug)]
pub(crate) struct Pull {
    pub(crate) selection: Selection,
    no_connections_secs: i64,
    pub(crate) has_more: bool,
}

/// What does not change while the runner lives.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) paths: Paths,
    pub(crate) ssh_port: u16,
    pub(crate) has_sshd: bool,
    /// Home of the runner's own user.
    pub(crate) home: PathBuf,
    pub(crate) may_switch_user: bool,
    pub(crate) environment: Environment,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) gpu_vendor: Option<Vendor>,
}

#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) setting: Setting,
    pub(crate) history: Arc<History>,
    pub(crate) raw: Arc<RawLog>,
    pub(crate) children: Children,
    pub(crate) tracker: Tracker,
    pub(crate) tee: Tee,
    /// Cancelled when the job is to end.
    pub(crate) stop: CancellationToken,
    job: Mutex<Option<Submitted>>,
    phase: watch::Sender<Phase>,
    /// How the job has ended.
    end: OnceLock<JobState>,
    is_pulled: watch::Sender<bool>,
    is_watched: watch::Sender<bool>,
}

impl Runner {
    pub(crate) fn new(
        setting: Setting,
        history: Arc<History>,
        raw: RawLog,
        children: Children,
        tee: Tee,
    ) -> Self {
        Self {
            setting,
            history,
            raw: Arc::new(raw),
            children,
            tracker: Tracker::default(),
            tee,
            stop: CancellationToken::new(),
            job: Mutex::default(),
            phase: watch::Sender::new(Phase::WaitSubmit),
            end: OnceLock::new(),
            is_pulled: watch::Sender::new(false),
            is_watched: watch::Sender::new(false),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(crate) async fn reached(&self, phase: Phase) {
        // The sender lives as long as `self`.
        drop(self.phase.subscribe().wait_for(|now| *now >= phase).await);
    }

    /// Takes a job, or another one in its place.
    pub(crate) fn submit(&self, request: SubmitRequest) -> Result<(), Conflict> {
        let mut job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        if self.phase() > Phase::WaitRun {
            return Err(Conflict);
        }
        *job = Some(Submitted {
            request: Arc::new(request),
            at: Instant::now(),
        });
        self.phase.send_replace(Phase::WaitRun);
        Ok(())
    }

    /// The job that waits to be run.
    pub(crate) fn waiting(&self) -> Result<Submitted, Conflict> {
        let job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*job, self.phase()) {
            (Some(job), Phase::WaitRun) => Ok(job.clone()),
            _ => Err(Conflict),
        }
    }

    /// Begins the job: nothing can be submitted or uploaded any more.
    pub(crate) fn begin(&self) -> Result<Submitted, Conflict> {
        let job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*job, self.phase()) {
            (Some(job), Phase::WaitRun) => {
                self.phase.send_replace(Phase::ServeLogs);
                Ok(job.clone())
            }
            _ => Err(Conflict),
        }
    }

    /// From now on our own log is the job's too: in a file beside it, and for the server to pull.
    pub(crate) fn start_log(&self) {
        let path = self.setting.paths.temp.join("runner.log");
        match OpenOptions::new().append(true).create(true).open(&path) {
            Ok(file) => self.tee.add(file),
            Err(error) => tracing::warn!(%error, "there is no runner.log"),
        }
        self.tee.add(RunnerLog(Arc::clone(&self.history)));
    }

    /// Records how the job ended. From now on a pull that takes all is the last.
    pub(crate) fn finish(&self, change: Change) {
        tracing::info!(state = ?change.state, reason = change.reason, exit_status = change.exit_status, "the job has ended");
        // A job ends once.
        self.end.set(change.state).ok();
        self.history.add_state(change);
        self.raw.end();
        self.phase.send_replace(Phase::WaitLogsFinished);
    }

    /// Everything later than `timestamp`.
    pub(crate) fn select(&self, timestamp: i64) -> Pull {
        // Asked for first: what is recorded before this phase must be in an answer that says it is the last.
        let is_over = self.phase() == Phase::WaitLogsFinished;
        let selection = self.history.select(timestamp);
        Pull {
            has_more: !(is_over && selection.is_complete),
            no_connections_secs: self.tracker.idle_secs(),
            selection,
        }
    }

    /// The answer to a pull, to be written out.
    pub(crate) fn answer<'a>(&'a self, pull: &'a Pull) -> Answer<'a> {
        Answer {
            selection: &pull.selection,
            reader: &self.history.reader,
            no_connections_secs: pull.no_connections_secs,
            has_more: pull.has_more,
        }
    }

    /// An answer has been written out. One that was the last lets the runner end.
    pub(crate) fn pulled(&self, pull: &Pull) {
        if !pull.has_more {
            self.is_pulled.send_replace(true);
        }
    }

    /// A client has seen all of the raw log.
    pub(crate) fn watched(&self) {
        self.is_watched.send_replace(true);
    }

    /// Waits for a last pull and for a client that has seen the whole raw log.
    pub(crate) async fn all_taken(&self) {
        let (mut pulled, mut watched) = (self.is_pulled.subscribe(), self.is_watched.subscribe());
        drop(pulled.wait_for(|is| *is).await);
        drop(watched.wait_for(|is| *is).await);
    }

    /// How the job ended, once it has.
    pub(crate) fn end(&self) -> Option<JobState> {
        self.end.get().copied()
    }

    /// Whether the server knows how the job ended, or will guess it right: an exit with 0 means to it that all is well.
    pub(crate) fn is_end_known(&self) -> bool {
        self.end() == Some(JobState::Done) || *self.is_pulled.borrow()
    }

    pub(crate) async fn last_pull(&self) {
        drop(self.is_pulled.subscribe().wait_for(|is| *is).await);
    }

    /// Who the job runs as.
    pub(crate) fn account(&self, wanted: Option<&UnixUser>) -> Result<Account, UserError> {
        let Setting {
            paths,
            home,
            may_switch_user,
            ..
        } = &self.setting;
        let users = Database::read(&paths.passwd, &paths.group);
        let (uid, gid) = (
            nix::unistd::geteuid().as_raw(),
            nix::unistd::getegid().as_raw(),
        );
        let own = || users.own(uid, gid, paths.own_home.as_ref().unwrap_or(home).clone());
        let Some(wanted) = wanted else {
            return Ok(own());
        };
        if !may_switch_user && paths.own_home.is_some() {
            tracing::warn!("without root the job runs as the runner's own user");
            return Ok(own());
        }
        let account = users.resolve(wanted)?;
        if !may_switch_user {
            tracing::warn!("no capability to become another user, the job runs as the runner's");
        }
        Ok(Account {
            is_switched: *may_switch_user,
            ..account
        })
    }

    /// Where the uploaded code of a repository lies; its id is the user's and no path.
    pub(crate) fn blob_path(&self, repo_id: &str) -> PathBuf {
        self.setting.paths.blobs().join(safe_name(repo_id))
    }

    pub(crate) fn archive_path(&self, id: &str) -> PathBuf {
        self.setting.paths.archives().join(safe_name(id))
    }
}

/// A file name for any text: different texts get different names, and none leads elsewhere.
fn safe_name(text: &str) -> OsString {
    let mut name = String::from("_");
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    // Longest name of a file on Linux.
    name.truncate(255);
    name.into()
}

#[cfg(test)]
impl Runner {
    /// A runner whose files are in `dir`.
    pub(crate) fn for_tests(dir: &std::path::Path) -> Self {
        let setting = Setting {
            paths: Paths::in_task(dir),
            ssh_port: 0,
            has_sshd: false,
            home: dir.to_owned(),
            may_switch_user: false,
            environment: Environment::new(),
            cgroup: None,
            gpu_vendor: None,
        };
        let history = Arc::new(History::create(dir).expect("a history"));
        let raw = RawLog::create(&dir.join("job.log")).expect("a raw log");
        Self::new(setting, history, raw, Children::default(), Tee::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_allowed_in_their_phases_only() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner::for_tests(dir.path());
        let named = |id: &str| {
            let mut request = SubmitRequest::default();
            request.job_submission.id = id.to_owned();
            request
        };
        assert!(runner.waiting().is_err() && runner.begin().is_err());
        runner.submit(named("a")).unwrap();
        runner.submit(named("b")).unwrap();
        assert_eq!(runner.waiting().unwrap().request.job_submission.id, "b");
        assert_eq!(runner.begin().unwrap().request.job_submission.id, "b");
        assert!(
            runner.submit(named("c")).is_err()
                && runner.waiting().is_err()
                && runner.begin().is_err()
        );
    }

    #[test]
    fn there_is_more_until_the_last_state_was_pulled() {
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner::for_tests(dir.path());
        runner.submit(SubmitRequest::default()).unwrap();
        runner.begin().unwrap();
        let pull = || {
            let pull = runner.select(0);
            let mut json = Vec::new();
            runner.answer(&pull).write(&mut json).unwrap();
            runner.pulled(&pull);
            serde_json::from_slice::<serde_json::Value>(&json).unwrap()
        };
        assert_eq!(pull()["has_more"], true);
        assert!(!*runner.is_pulled.borrow());
        runner.finish(Change::to(JobState::Done).with_exit_status(0));
        for _ in 0..2 {
            let pulled = pull();
            assert_eq!(pulled["has_more"], false);
            assert_eq!(pulled["job_states"][0]["state"], "done");
        }
        assert!(*runner.is_pulled.borrow());
    }

    #[test]
    fn names_of_uploads_lead_nowhere_else() {
        assert_eq!(safe_name("../a b"), "_%2e%2e%2fa%20b");
        assert_eq!(safe_name("7d9c1c5e-00"), "_7d9c1c5e-00");
        assert_eq!(safe_name(""), "_");
        assert_eq!(safe_name(&"x".repeat(999)).len(), 255);
    }
}

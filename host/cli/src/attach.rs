//! Follows a run to its end: progress, then the log by way of the server, and its ports by way of SSH.

mod link;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dstack_api::jobs::{JobStatus, JobSubmission, JobTerminationReason};
use dstack_api::runs::{Run, RunStatus, StopRunsRequest};
use jiff::Timestamp;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use uuid::Uuid;

use self::link::Link;
use crate::cmd::logs::{LogReader, get_run};
use crate::cx::{Cx, Here};
use crate::error::CliError;
use crate::ssh::{self, Wishes};
use crate::ui::Tone;
use crate::view;

/// How long a server may be away, for a restart, before following ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// What following does beside waiting.
#[derive(Debug)]
pub(crate) struct Follow {
    /// What was done to the run; none if it was there before.
    pub(crate) verb: Option<&'static str>,
    /// Leave on Ctrl+C without a question.
    pub(crate) is_quick: bool,
    pub(crate) shows_log: bool,
    pub(crate) since: Option<Timestamp>,
    /// The replica; none is the lowest that runs.
    pub(crate) replica: Option<u32>,
    /// The job of the replica.
    pub(crate) job: u32,
    pub(crate) wishes: Wishes,
}

/// Shows how the run gets on and what it prints, with its ports here. Ok if it ends well, or if the person leaves it.
pub(crate) fn follow(
    run: Run,
    follow: Follow,
    here: &Here,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    let name = run.run_spec.run_name.clone().unwrap_or_default();
    if let Some(verb) = follow.verb.filter(|_| !cx.ui.is_terminal()) {
        cx.ui.line(format!("Run {name} {verb}"))?;
    }
    let interrupts = Interrupts::listen();
    let mut follower = Follower {
        name,
        here,
        started: Instant::now(),
        // The line above says as much.
        said: "submitted".to_owned(),
        submission: None,
        reader: None,
        link: Link::new(),
        is_stopping: false,
        away_since: None,
        follow,
    };
    let mut run = run;
    loop {
        match follower.step(&run, cx) {
            Ok(()) if run.status.is_finished() => return follower.end(&run, cx),
            Ok(()) => {}
            Err(error) => follower.bear(error, cx)?,
        }
        follower.pause(&interrupts);
        if interrupts.is_ended() {
            return Ok(());
        }
        if interrupts.take() && !follower.interrupted(&interrupts, cx)? {
            return Ok(());
        }
        match get_run(here, &follower.name) {
            Ok(next) => {
                follower.away_since = None;
                run = next;
            }
            Err(error) => follower.bear(error, cx)?,
        }
    }
}

struct Follower<'a> {
    name: String,
    here: &'a Here,
    follow: Follow,
    started: Instant,
    /// The last status that was shown where there is no live view.
    said: String,
    /// The try that is shown.
    submission: Option<Uuid>,
    /// Its log.
    reader: Option<LogReader>,
    /// The way into it.
    link: Link,
    is_stopping: bool,
    away_since: Option<Instant>,
}

impl Follower<'_> {
    /// Shows what is new. The log is read after the status, so that behind a final status no line is missing.
    fn step(&mut self, run: &Run, cx: &mut Cx<'_>) -> Result<(), CliError> {
        let job = ssh::choose_job(run, self.follow.replica, self.follow.job);
        let Some((job, last)) = job.and_then(|job| Some((job, ssh::last(job)?))) else {
            return self.progress(run, cx);
        };
        if !has_log(last) {
            return self.progress(run, cx);
        }
        if self.submission != Some(last.id) {
            if let Some(mut old) = self.reader.take() {
                old.drain(self.here, cx)?;
            }
            self.progress(run, cx)?;
            cx.ui.live_end();
            self.submission = Some(last.id);
            self.link = Link::new();
            if self.follow.shows_log {
                let since = self.follow.since;
                self.reader = Some(LogReader::new(&self.name, last.id, false, since));
            }
        }
        if last.status == JobStatus::Running && !self.is_stopping {
            let is_needed = self.follow.verb.is_none();
            let wishes = &self.follow.wishes;
            self.link.step(run, job, wishes, is_needed, self.here, cx)?;
        }
        if let Some(reader) = &mut self.reader {
            reader.drain_through(self.link.rewriter(), self.here, cx)?;
        }
        Ok(())
    }

    /// A live table on a terminal, elsewhere a line for each change.
    fn progress(&mut self, run: &Run, cx: &mut Cx<'_>) -> Result<(), CliError> {
        if cx.ui.is_terminal() {
            let table = view::runs::table(&cx.ui, std::slice::from_ref(run), false, cx.now());
            return cx.ui.live(&table);
        }
        let status = view::runs::progress(run);
        if status != self.said && !run.status.is_finished() {
            cx.ui.line(format!("{}: {status}", self.name))?;
            self.said = status;
        }
        Ok(())
    }

    /// Waits for the next look: short at first, when much happens, and no longer than until the log has something new.
    fn pause(&self, interrupts: &Interrupts) {
        let wait = match self.started.elapsed().as_secs() {
            _ if self.away_since.is_some() => Duration::from_millis(500),
            0..5 => Duration::from_millis(100),
            5..60 => Duration::from_millis(250),
            _ => Duration::from_secs(1),
        };
        let until = Instant::now() + wait;
        while !interrupts.is_set() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            match &self.reader {
                Some(reader) if self.away_since.is_none() => {
                    let news = reader.await_news(self.here, left.min(Duration::from_millis(250)));
                    // An error comes again with the next look, where it is dealt with.
                    if news.unwrap_or(true) {
                        return;
                    }
                }
                _ => std::thread::sleep(left.min(Duration::from_millis(50))),
            }
        }
    }

    /// A server that is away comes back after a restart, and the run goes on meanwhile.
    fn bear(&mut self, error: CliError, cx: &mut Cx<'_>) -> Result<(), CliError> {
        if !error.is_passing() {
            return Err(error);
        }
        match self.away_since {
            None => {
                self.away_since = Some(Instant::now());
                cx.ui.live_end();
                cx.ui.warn(&format!(
                    "The server does not answer; the run {} goes on. Trying again...",
                    self.name
                ))
            }
            Some(since) if since.elapsed() < PATIENCE => Ok(()),
            Some(_) => Err(error),
        }
    }

    /// Whether to go on following.
    fn interrupted(&mut self, interrupts: &Interrupts, cx: &mut Cx<'_>) -> Result<bool, CliError> {
        cx.ui.live_end();
        if self.follow.verb.is_none() {
            return Ok(false);
        }
        let question = format!("Stop the run {} before detaching?", self.name);
        if self.follow.is_quick
            || self.is_stopping
            || !cx.ui.confirm_last(&question, || interrupts.take())?
        {
            cx.ui.line(format!(
                "Detached; the run {0} goes on. `dstack attach --logs {0}` comes back to it.",
                self.name
            ))?;
            return Ok(false);
        }
        let order = StopRunsRequest {
            runs_names: vec![self.name.clone()],
            abort: false,
        };
        self.here
            .client
            .post::<()>(&self.here.path("runs/stop"), &order)?;
        self.is_stopping = true;
        cx.ui.line("Stopping...")?;
        Ok(true)
    }

    /// The last words: how it ended and, if badly, why and where to look.
    fn end(&self, run: &Run, cx: &mut Cx<'_>) -> Result<(), CliError> {
        cx.ui.live_end();
        let status = capitalised(&view::runs::run_status(run));
        if run.status == RunStatus::Done {
            let text = cx.ui.paint(Tone::Good, &status);
            return cx.ui.line(text);
        }
        let last = run.jobs.first().and_then(|job| job.job_submissions.last());
        let reason = last
            .and_then(|last| {
                last.termination_reason_message
                    .clone()
                    .or_else(|| last.error.clone())
            })
            .or_else(|| run.error.clone());
        let mut text = cx.ui.paint_note(Tone::Bad, &status);
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            text.push('\n');
            text.push_str(&capitalised(&reason));
        }
        // A job that never had a machine has no such log.
        let no_capacity = JobTerminationReason::FailedToStartDueToNoCapacity.as_str();
        let had_machine =
            last.is_none_or(|last| last.termination_reason.as_deref() != Some(no_capacity));
        if run.status == RunStatus::Failed && had_machine {
            text.push_str(&format!(
                "\nSee `dstack logs -d {}` for details.",
                self.name
            ));
        }
        cx.ui.note(text)?;
        Err(CliError::Quiet)
    }
}

fn has_log(job: &JobSubmission) -> bool {
    !matches!(
        job.status,
        JobStatus::Submitted | JobStatus::Provisioning | JobStatus::Pulling
    )
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// Ctrl+C as something to ask for, while this lives.
struct Interrupts {
    flag: Arc<AtomicBool>,
    /// The process is asked to end: what it opened is closed first.
    ends: Arc<AtomicBool>,
    registrations: Vec<signal_hook::SigId>,
}

impl Interrupts {
    fn listen() -> Self {
        let (flag, ends) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let signals = [(SIGINT, &flag), (SIGTERM, &ends), (SIGHUP, &ends)];
        // Without it Ctrl+C ends the process, which leaves the run going too.
        let registrations = signals
            .into_iter()
            .filter_map(|(signal, flag)| signal_hook::flag::register(signal, Arc::clone(flag)).ok())
            .collect();
        Self {
            flag,
            ends,
            registrations,
        }
    }

    fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed) || self.is_ended()
    }

    fn is_ended(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        self.flag.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        for id in &self.registrations {
            signal_hook::low_level::unregister(*id);
        }
    }
}

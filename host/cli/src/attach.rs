//! Follows a run from its submission to its end: progress, then the log, by way of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dstack_api::jobs::{JobStatus, JobSubmission, JobTerminationReason};
use dstack_api::runs::{Run, RunStatus, StopRunsRequest};

use crate::cmd::logs::{LogReader, get_run};
use crate::cx::{Cx, Here};
use crate::error::CliError;
use crate::ui::Tone;
use crate::view;

/// How long a server may be away, for a restart, before following ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// Shows how the run gets on and what it prints. Ok if it ends well, or if the person leaves it.
///
/// `verb` says what was done to the run; `is_quick` leaves on Ctrl+C without a question.
pub(crate) fn follow(
    run: Run,
    verb: &str,
    is_quick: bool,
    here: &Here,
    cx: &mut Cx<'_>,
) -> Result<(), CliError> {
    let name = run.run_spec.run_name.clone().unwrap_or_default();
    if !cx.ui.is_terminal() {
        cx.ui.line(format!("Run {name} {verb}"))?;
    }
    let interrupts = Interrupts::listen();
    let mut follower = Follower {
        name,
        here,
        started: Instant::now(),
        // The line above says as much.
        said: "submitted".to_owned(),
        reader: None,
        is_stopping: false,
        away_since: None,
    };
    let mut run = run;
    loop {
        match follower.step(&run, cx) {
            Ok(()) if run.status.is_finished() => return follower.end(&run, cx),
            Ok(()) => {}
            Err(error) => follower.bear(error, cx)?,
        }
        follower.pause(&interrupts);
        if interrupts.take() && !follower.interrupted(is_quick, &interrupts, cx)? {
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
    started: Instant,
    /// The last status that was shown where there is no live view.
    said: String,
    /// The log of the current try.
    reader: Option<LogReader>,
    is_stopping: bool,
    away_since: Option<Instant>,
}

impl Follower<'_> {
    /// Shows what is new. The log is read after the status, so that behind a final status no line is missing.
    fn step(&mut self, run: &Run, cx: &mut Cx<'_>) -> Result<(), CliError> {
        let last = run.jobs.first().and_then(|job| job.job_submissions.last());
        match last.filter(|last| has_log(last)) {
            Some(last) => {
                if self
                    .reader
                    .as_ref()
                    .is_none_or(|reader| reader.submission() != last.id)
                {
                    if let Some(mut old) = self.reader.take() {
                        old.drain(self.here, cx)?;
                    }
                    self.progress(run, cx)?;
                    cx.ui.live_end();
                    if let (None, Some(note)) = (&self.reader, unforwarded(last, run)) {
                        cx.ui.warn(&note)?;
                    }
                    self.reader = Some(LogReader::new(&self.name, last.id, false, None));
                }
                if let Some(reader) = &mut self.reader {
                    reader.drain(self.here, cx)?;
                }
                Ok(())
            }
            None => self.progress(run, cx),
        }
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

    /// Waits for the next look: short at first, when much happens.
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
            std::thread::sleep(left.min(Duration::from_millis(50)));
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
    fn interrupted(
        &mut self,
        is_quick: bool,
        interrupts: &Interrupts,
        cx: &mut Cx<'_>,
    ) -> Result<bool, CliError> {
        cx.ui.live_end();
        let question = format!("Stop the run {} before detaching?", self.name);
        if is_quick || self.is_stopping || !cx.ui.confirm_last(&question, || interrupts.take())? {
            cx.ui.line(format!(
                "Detached; the run {0} goes on. `dstack logs -f {0}` shows its log again.",
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

/// Says that nobody forwards the job's ports, if it has any and still runs.
fn unforwarded(last: &JobSubmission, run: &Run) -> Option<String> {
    let ports: Vec<String> = run
        .jobs
        .first()?
        .job_spec
        .app_specs
        .iter()
        .flatten()
        .map(|app| app.port.to_string())
        .collect();
    let shown = last.status == JobStatus::Running && !ports.is_empty();
    shown.then(|| {
        format!(
            "Ports are not forwarded by this version: {} can be reached on the job's machine only.",
            ports.join(", ")
        )
    })
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
    registration: Option<signal_hook::SigId>,
}

impl Interrupts {
    fn listen() -> Self {
        let flag = Arc::new(AtomicBool::new(false));
        // Without it Ctrl+C ends the process, which leaves the run going too.
        let registration =
            signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&flag)).ok();
        Self { flag, registration }
    }

    fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        self.flag.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        if let Some(id) = self.registration {
            signal_hook::low_level::unregister(id);
        }
    }
}

//! The way into the job that is shown: opened in the background, said once, kept alive.

use std::time::{Duration, Instant};

use dstack_api::jobs::Job;
use dstack_api::runs::Run;

use crate::cx::{Cx, Here};
use crate::error::CliError;
use crate::ssh::{self, Connection, Opening, Rewriter, Way, Wishes};
use crate::ui::Tone;

/// How long the IDE's address may come later than the login.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) struct Link {
    state: State,
    /// When the job was first seen to run.
    since: Option<Instant>,
    is_said: bool,
    is_away: bool,
    rewriter: Option<Rewriter>,
}

enum State {
    None,
    Opening(Opening),
    Open(Box<Connection>),
    /// There is none, or it was given up.
    Without,
}

impl Link {
    pub(super) fn new() -> Self {
        Self {
            state: State::None,
            since: None,
            is_said: false,
            is_away: false,
            rewriter: None,
        }
    }

    pub(super) fn rewriter(&self) -> Option<&Rewriter> {
        self.rewriter.as_ref()
    }

    /// Gets on with it. `is_needed`: without a way in there is nothing to do, so its failure is an error; else it is
    /// a warning, and only where there are ports or an IDE to miss.
    pub(super) fn step(
        &mut self,
        run: &Run,
        job: &Job,
        wishes: &Wishes,
        is_needed: bool,
        here: &Here,
        cx: &mut Cx<'_>,
    ) -> Result<(), CliError> {
        self.since.get_or_insert_with(Instant::now);
        let result = match &mut self.state {
            State::None => match ssh::open(run, job, wishes, here, cx) {
                Ok(Way::Ssh(opening)) => {
                    self.state = State::Opening(opening);
                    return Ok(());
                }
                Ok(Way::SameMachine) => {
                    self.state = State::Without;
                    return same_machine(job, is_needed, cx);
                }
                Err(error) => Err(error),
            },
            State::Opening(opening) => match opening.poll() {
                None => return Ok(()),
                Some(result) => result,
            },
            State::Open(connection) => {
                let is_up = connection.keep();
                if self.is_away == is_up {
                    self.is_away = !is_up;
                    let text = if is_up {
                        "The connection to the job is back."
                    } else {
                        "The connection to the job is lost; trying again..."
                    };
                    cx.ui.warn(text)?;
                }
                return self.say(job, cx);
            }
            State::Without => return Ok(()),
        };
        match result {
            Ok(connection) => {
                self.rewriter = Some(Rewriter::of(&connection));
                self.state = State::Open(Box::new(connection));
                self.say(job, cx)
            }
            Err(error) if is_needed => Err(error),
            Err(error) => {
                self.state = State::Without;
                let misses = job.job_spec.app_specs.iter().flatten().next().is_some()
                    || ide_url(job).is_some();
                if misses {
                    let name = run.run_spec.run_name.as_deref().unwrap_or_default();
                    cx.ui.warn(&format!(
                        "The job's ports are not here: {error}\nThe run goes on; `dstack attach {name}` tries again."
                    ))?;
                }
                Ok(())
            }
        }
    }

    /// Says how to use it, once everything is known.
    fn say(&mut self, job: &Job, cx: &mut Cx<'_>) -> Result<(), CliError> {
        let State::Open(connection) = &self.state else {
            return Ok(());
        };
        let info = job.job_connection_info.as_ref();
        let ide = info.and_then(|info| info.ide_name.as_deref());
        let waits = ide.is_some()
            && ide_url(job).is_none()
            && self.since.is_some_and(|since| since.elapsed() < PATIENCE);
        if self.is_said || waits {
            return Ok(());
        }
        self.is_said = true;
        let mut lines = Vec::new();
        for forward in &connection.forwards {
            lines.push(format!(
                "http://{}:{}{} is port {} of the job",
                connection.host, forward.local, forward.suffix, forward.remote
            ));
        }
        if let (Some(ide), Some(url)) = (ide, ide_url(job)) {
            lines.push(format!("To open in {ide}, use this link: {url}"));
        }
        lines.push(format!("To log in, use: ssh {}", connection.name));
        for line in lines {
            let line = cx.ui.paint_note(Tone::Dim, &line);
            cx.ui.note(line)?;
        }
        Ok(())
    }
}

fn ide_url(job: &Job) -> Option<&str> {
    job.job_connection_info
        .as_ref()?
        .attached_ide_url
        .as_deref()
}

/// A job without a container and without sshd: nothing can or need be forwarded.
fn same_machine(job: &Job, is_needed: bool, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let ports = job.job_spec.app_specs.iter().flatten();
    let ports: Vec<String> = ports.map(|app| app.port.to_string()).collect();
    if ports.is_empty() && !is_needed {
        return Ok(());
    }
    let mut text =
        "The job is a process on the server's own machine; there is no login of its own to attach to.".to_owned();
    if !ports.is_empty() {
        text.push_str(&format!(
            " Its ports are on that machine: {}.",
            ports.join(", ")
        ));
    }
    cx.ui.warn(&text)
}

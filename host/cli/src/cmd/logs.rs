//! `dstack logs`: what a run printed.

use std::time::{Duration, Instant};

use dstack_api::jobs::JobSubmission;
use dstack_api::logs::{JobSubmissionLogs, PollLogsRequest};
use dstack_api::runs::{GetRunRequest, Run};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::cmd::stop::not_found;
use crate::cx::{Cx, Here, ProjectOption};
use crate::error::CliError;
use crate::ssh::Rewriter;

/// How often a followed log is asked for at first, and later.
pub(crate) const FAST: Duration = Duration::from_millis(250);
pub(crate) const SLOW: Duration = Duration::from_secs(1);
/// How long a followed log is asked for fast after it said something.
const LIVELY: u32 = 120;

/// The log of a run
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dstack logs NAME\n  dstack logs -f NAME                 goes on until the run ends\n  dstack logs NAME --since 10m\n  dstack logs -d NAME                 what the runner says, to find out why a run failed"
)]
pub(crate) struct Args {
    #[command(flatten)]
    project: ProjectOption,
    /// The name of the run
    run_name: String,
    /// What the runner says of itself instead of what the run printed
    #[arg(short, long)]
    diagnose: bool,
    /// Go on until the run ends
    #[arg(short, long)]
    follow: bool,
    /// The replica
    #[arg(long, default_value_t = 0, value_name = "N")]
    replica: u32,
    /// The job of the replica
    #[arg(long, default_value_t = 0, value_name = "N")]
    job: u32,
    /// Only what came after this: a duration such as 10m, or an RFC 3339 time
    #[arg(long, value_parser = since)]
    since: Option<Timestamp>,
}

pub(crate) fn run(args: &Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    let run = get_run(&here, &args.run_name)?;
    let job = run
        .jobs
        .iter()
        .find(|job| job.job_spec.replica_num == args.replica && job.job_spec.job_num == args.job)
        .ok_or_else(|| {
            CliError::message(format!(
                "run {} has no replica {} job {}",
                args.run_name, args.replica, args.job
            ))
        })?;
    let Some(last) = job.job_submissions.last() else {
        return Ok(());
    };
    let mut reader = LogReader::new(&args.run_name, last.id, args.diagnose, args.since);
    reader.drain(&here, cx)?;
    if !args.follow {
        return Ok(());
    }
    let mut quiet = 0;
    let mut ended = last.status.is_finished();
    while !ended {
        reader.await_news(&here, if quiet < LIVELY { FAST } else { SLOW })?;
        // The status is read before the log, so that the last lines are behind the last status.
        let run = get_run(&here, &args.run_name)?;
        ended = submission(&run, last.id).is_none_or(|job| job.status.is_finished());
        quiet = if reader.drain(&here, cx)? {
            0
        } else {
            quiet + 1
        };
    }
    Ok(())
}

pub(crate) fn get_run(here: &Here, name: &str) -> Result<Run, CliError> {
    let ask = GetRunRequest {
        run_name: Some(name.to_owned()),
        id: None,
    };
    here.client
        .post(&here.path("runs/get"), &ask)
        .map_err(|error| not_found(error, name))
}

/// The submission with this id, if the answer still has it.
pub(crate) fn submission(run: &Run, id: Uuid) -> Option<&JobSubmission> {
    run.jobs
        .iter()
        .flat_map(|job| &job.job_submissions)
        .find(|job| job.id == id)
}

/// Reads one submission's log from where it stopped.
#[derive(Debug)]
pub(crate) struct LogReader {
    run_name: String,
    submission: Uuid,
    diagnose: bool,
    since: Option<Timestamp>,
    token: Option<String>,
}

impl LogReader {
    pub(crate) fn new(
        run_name: &str,
        submission: Uuid,
        diagnose: bool,
        since: Option<Timestamp>,
    ) -> Self {
        Self {
            run_name: run_name.to_owned(),
            submission,
            diagnose,
            since,
            token: None,
        }
    }

    fn question(&self, limit: u32) -> PollLogsRequest {
        PollLogsRequest {
            run_name: self.run_name.clone(),
            job_submission_id: self.submission,
            start_time: self.since,
            end_time: None,
            descending: false,
            next_token: self.token.clone(),
            limit,
            diagnose: self.diagnose,
        }
    }

    /// Waits until there is something to read, at most for `limit`; whether there is. A server that does not know how to
    /// wait answers at once: then the rest of the time is slept.
    pub(crate) fn await_news(&self, here: &Here, limit: Duration) -> Result<bool, CliError> {
        let until = Instant::now() + limit;
        let path = format!("logs/poll?wait_ms={}", limit.as_millis());
        let page: JobSubmissionLogs = here.client.post(&here.path(&path), &self.question(1))?;
        if page.logs.is_empty() {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
        Ok(!page.logs.is_empty())
    }

    /// Prints everything that is there by now; true if there was something.
    pub(crate) fn drain(&mut self, here: &Here, cx: &mut Cx<'_>) -> Result<bool, CliError> {
        self.drain_through(None, here, cx)
    }

    /// The same, with addresses of forwarded ports as they are here.
    pub(crate) fn drain_through(
        &mut self,
        rewriter: Option<&Rewriter>,
        here: &Here,
        cx: &mut Cx<'_>,
    ) -> Result<bool, CliError> {
        let mut any = false;
        loop {
            let page: JobSubmissionLogs = here
                .client
                .post(&here.path("logs/poll"), &self.question(1000))?;
            let mut text = Vec::new();
            for event in &page.logs {
                let bytes = event.bytes().map_err(|error| {
                    CliError::message(format!(
                        "the server sent a log line that is not base64: {error}"
                    ))
                })?;
                match rewriter {
                    Some(rewriter) => text.extend_from_slice(&rewriter.rewrite(bytes)),
                    None => text.extend_from_slice(&bytes),
                }
            }
            if !text.is_empty() {
                cx.ui.raw(&text)?;
                any = true;
            }
            match page.next_token {
                Some(token) => self.token = Some(token),
                None => {
                    if let Some(last) = page.logs.last() {
                        // Times of one log never repeat, so the next poll begins behind the last one.
                        self.since = Some(last.timestamp);
                        self.token = None;
                    }
                    return Ok(any);
                }
            }
        }
    }
}

/// A time, or a duration before now.
pub(crate) fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let unit = text.chars().last().unwrap_or(' ');
    let count: Option<i64> = text
        .strip_suffix(unit)
        .and_then(|number| number.trim().parse().ok());
    let seconds = match (count, unit) {
        (Some(count), 's') => Some(count),
        (Some(count), 'm') => count.checked_mul(60),
        (Some(count), 'h') => count.checked_mul(3600),
        (Some(count), 'd') => count.checked_mul(86_400),
        (Some(count), 'w') => count.checked_mul(604_800),
        _ => None,
    };
    seconds
        .filter(|seconds| *seconds >= 0)
        .and_then(|seconds| {
            Timestamp::now()
                .checked_sub(SignedDuration::from_secs(seconds))
                .ok()
        })
        .ok_or_else(|| {
            "give a duration such as 30s, 10m, 2h, 1d or a time such as 2026-01-31T12:00:00Z"
                .to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_takes_durations_and_times() {
        let now = Timestamp::now().as_second();
        let before = since("10m").unwrap().as_second();
        assert!((now - 600 - before).abs() <= 1);
        assert_eq!(
            since("2026-01-31T12:00:00Z").unwrap().to_string(),
            "2026-01-31T12:00:00Z"
        );
        for bad in [
            "",
            "10",
            "m",
            "-5m",
            "10y",
            "yesterday",
            "99999999999999999w",
        ] {
            assert!(since(bad).is_err(), "{bad}");
        }
    }
}

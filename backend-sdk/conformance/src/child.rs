//! A process of its own for the checks: this very program, started again. It comes to the same suite, finds itself to be the
//! child, makes the checks and writes each result to a file. If it dies, the check it was at has failed, and a new one goes on
//! with the next.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use serde::{Deserialize, Serialize};

use crate::report::{CheckResult, Failure, Outcome, Report};
use crate::run::{self, Progress};
use crate::suite::{Isolation, Suite, SuiteError};

/// File for the results; its presence makes a process the child.
const RESULTS: &str = "DSTACK_CONFORMANCE_RESULTS";
/// How many checks were made already.
const FROM: &str = "DSTACK_CONFORMANCE_FROM";
/// Which suite it is, if a test runs several.
const KEY: &str = "DSTACK_CONFORMANCE_KEY";
/// A check that takes longer hangs.
const CHECK_LIMIT: Duration = Duration::from_secs(180);
/// Lines of the child's standard error that a failure shows.
const SHOWN_LINES: usize = 6;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Begin(String),
    End(CheckResult),
    Done(Report),
    Refused(String),
}

pub(crate) fn is_child() -> bool {
    env::var_os(RESULTS).is_some()
}

/// Tells suites of one program apart.
fn key(suite: &Suite) -> String {
    format!(
        "{}|{}|{:?}",
        suite.path.display(),
        suite.only.join(","),
        suite.without
    )
}

/// Arguments with which this program comes to the same suite again.
pub(crate) fn way_back(suite: &Suite) -> Option<Vec<OsString>> {
    if let Some(args) = &suite.child_args {
        return Some(args.clone());
    }
    let args: Vec<OsString> = env::args_os().skip(1).collect();
    if args.iter().any(|arg| arg == "--exact") {
        return Some(args);
    }
    // A test of the usual harness runs on a thread with the test's name.
    let thread = thread::current();
    let name = thread.name().filter(|name| *name != "main")?;
    Some(
        [name, "--exact", "--nocapture"]
            .map(OsString::from)
            .to_vec(),
    )
}

/// The child's side. Never returns if this is the suite that it was started for.
pub(crate) fn serve(suite: Suite) -> Result<Report, SuiteError> {
    let path = env::var_os(RESULTS).unwrap_or_default();
    let wanted = env::var_os(KEY).unwrap_or_default();
    if wanted != key(&suite).as_str() {
        // Another suite of the same test: not our turn.
        return Ok(Report::default());
    }
    let from = env::var_os(FROM)
        .and_then(|text| text.to_str()?.parse().ok())
        .unwrap_or(0);
    let failed = |source| SuiteError::File {
        what: "the results file",
        path: path.clone().into(),
        source,
    };
    let mut file = File::options().append(true).open(&path).map_err(failed)?;
    let mut write = |line: &Line| {
        let text = serde_json::to_string(line).unwrap_or_default();
        // The parent sees a missing line as a crash.
        drop(writeln!(file, "{text}"));
    };
    let ended = run::run(
        suite,
        Isolation::Process,
        from,
        &mut |progress| match progress {
            Progress::Begin(id) => write(&Line::Begin(id.to_owned())),
            Progress::End(result) => write(&Line::End(result.clone())),
        },
    );
    match ended {
        Ok(report) => write(&Line::Done(report)),
        Err(error) => write(&Line::Refused(error.to_string())),
    }
    #[allow(clippy::exit, reason = "the child has done what it was started for")]
    std::process::exit(0)
}

/// The parent's side.
pub(crate) fn run(suite: &Suite, args: &[OsString]) -> Result<Report, SuiteError> {
    let folder = tempfile::tempdir().map_err(|error| child(&error.to_string()))?;
    let all = run::chosen(suite);
    let mut report = Report::default();
    let mut starts = 0;
    loop {
        starts += 1;
        let results = folder.path().join(format!("{starts}.jsonl"));
        let errors = folder.path().join(format!("{starts}.stderr"));
        let status = start(suite, args, &results, &errors, report.results.len())?;
        let mut open: Option<String> = None;
        let mut done = None;
        for line in read(&results)? {
            match line {
                Line::Begin(id) => open = Some(id),
                Line::End(result) => {
                    open = None;
                    report.results.push(result);
                }
                Line::Done(ended) => done = Some(ended),
                Line::Refused(reason) => return Err(child(&reason)),
            }
        }
        if let Some(ended) = done {
            report.plugin = ended.plugin;
            report.version = ended.version;
            report.isolation = ended.isolation;
            report.notes = ended.notes;
            run::note_what_was_left_out(&mut report);
            return Ok(report);
        }
        let last = last_lines(&errors);
        let Some(check) = open.and_then(|id| all.iter().find(|check| check.id == id)) else {
            return Err(child(&format!(
                "it ended ({status}) before the first check: {}",
                last.join(" | ")
            )));
        };
        report.results.push(CheckResult {
            id: check.id.to_owned(),
            title: check.title.to_owned(),
            why: check.why.to_owned(),
            outcome: Outcome::Failed(Failure {
                expected: "the plugin's process to live".to_owned(),
                seen: format!("it ended: {status}"),
                remedy: "find what ends the process: abort, exit, a stack overflow, a fault in C code; a panic would have been a typed error".to_owned(),
                exchange: last,
            }),
            took_ms: 0,
        });
        if report.results.len() >= all.len() {
            report.isolation = "process".to_owned();
            report.plugin = suite.path.display().to_string();
            return Ok(report);
        }
    }
}

fn child(reason: &str) -> SuiteError {
    SuiteError::Child {
        reason: reason.to_owned(),
    }
}

/// Starts a child and waits for its end; how it ended, for people.
fn start(
    suite: &Suite,
    args: &[OsString],
    results: &Path,
    errors: &Path,
    from: usize,
) -> Result<String, SuiteError> {
    let failed = |error: std::io::Error| child(&error.to_string());
    File::create(results).map_err(failed)?;
    let errors = File::create(errors).map_err(failed)?;
    let mut process = Command::new(env::current_exe().map_err(failed)?)
        .args(args)
        .env(RESULTS, results)
        .env(FROM, from.to_string())
        .env(KEY, key(suite))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(failed)?;
    let mut seen = 0;
    let mut since = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(status) = process.try_wait().map_err(failed)? {
            return Ok(status.to_string());
        }
        let size = fs::metadata(results).map_or(0, |metadata| metadata.len());
        if size != seen {
            seen = size;
            since = Instant::now();
        }
        if since.elapsed() > CHECK_LIMIT {
            process.kill().map_err(failed)?;
            process.wait().map_err(failed)?;
            return Ok(format!(
                "killed, since nothing happened for {} s",
                CHECK_LIMIT.as_secs()
            ));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(40));
    }
}

fn read(results: &Path) -> Result<Vec<Line>, SuiteError> {
    let text = fs::read_to_string(results).map_err(|error| child(&error.to_string()))?;
    // The last line may be half written.
    Ok(text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect())
}

fn last_lines(errors: &Path) -> Vec<String> {
    let text = fs::read(errors).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines
        .iter()
        .rev()
        .take(SHOWN_LINES)
        .rev()
        .map(|line| format!("stderr: {line}"))
        .collect()
}

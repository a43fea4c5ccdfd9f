//! A job's log on its whole way: from the job through runner and server into files, and to whoever follows it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use dstack_e2e::{Runtime, fleet, prepared_with, task};
use dstack_test_support::server::{TestServer, bin_dir, wait_for};

use crate::agents::{self, cpu, row};
use crate::measure::{Row, median};

const PATIENCE: Duration = Duration::from_secs(600);
/// Bytes that the job of the measure writes.
const LOG_BYTES: u32 = 200_000_000;

/// A server without a quota, with a machine that is up.
fn server() -> Result<TestServer> {
    let quota = [("DSTACK_SERVER_LOG_QUOTA_PER_JOB_HOUR", "0")];
    let mut server = prepared_with(Runtime::Process, &quota)?;
    server.spawn()?;
    fleet(&server, 1)?;
    run(&server, "warm", "true")?;
    server.finished("warm", PATIENCE)?;
    Ok(server)
}

fn run(server: &TestServer, name: &str, line: &str) -> Result<()> {
    let text = task(name, Runtime::Process, &[line]);
    let path = server.file(&format!("{name}.dstack.yml"), &text)?;
    server.ok(&["apply", "-f", &path, "-y", "-d"]).map(drop)
}

/// What logs cost: out of the runner alone, and up to the server's files.
pub(crate) fn all() -> Result<Vec<Row>> {
    let mut rows = agents::logs()?;
    rows.extend(stored()?);
    Ok(rows)
}

fn stored() -> Result<Vec<Row>> {
    let server = server()?;
    let line = "a line of a log with a number of words, as programs write them";
    let before = cpu(server.pid().context("a server")?)?;
    let began = Instant::now();
    run(
        &server,
        "flood",
        &format!("yes '{line}' | head -c {LOG_BYTES}"),
    )?;
    let mut runner = 0.0;
    let run = wait_for("the end of the flood", PATIENCE, || {
        for (pid, line) in server.processes()? {
            if line.contains("--task-dir") && line.contains("dstack-runner") {
                // The last look at one that has ended meanwhile is the one before.
                runner = cpu(pid).unwrap_or(runner).max(runner);
            }
        }
        let run = server.run("flood")?;
        let status = run["status"].as_str().unwrap_or_default();
        Ok(matches!(status, "done" | "failed" | "terminated").then_some(run))
    })?;
    let took = began.elapsed().as_secs_f64();
    ensure!(run["status"] == "done", "{run}");
    let host = cpu(server.pid().context("a server")?)? - before;
    let submission = run["jobs"][0]["job_submissions"][0]["id"]
        .as_str()
        .context("an id")?;
    let file = format!(".dstack/server/projects/main/logs/flood/{submission}/job.log");
    let size = fs::metadata(server.home().join(file))?.len();
    ensure!(size > u64::from(LOG_BYTES), "{size} bytes were stored");
    let megabytes = f64::from(LOG_BYTES) / 1_000_000.0;
    let hundreds = megabytes / 100.0;
    Ok(vec![
        rate("runner to server's files", megabytes / took),
        row("server's CPU for 100 MB of log", "s", host / hundreds, 1.0),
        row(
            "runner's and server's CPU for 100 MB of log",
            "s",
            (host + runner) / hundreds,
            2.0,
        ),
    ])
}

/// A rate: more is better, and what is shown is the time of 200 MB, for which less is.
fn rate(what: &'static str, megabytes_per_second: f64) -> Row {
    row(what, "s/200 MB", 200.0 / megabytes_per_second, 10.0)
}

/// From the writing of a line to its arrival in a terminal: out of the runner alone, and at `dstack logs -f`.
pub(crate) fn latency() -> Result<Vec<Row>> {
    let mut rows = agents::latency()?;
    let server = server()?;
    run(
        &server,
        "clock",
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.43; date +%s%N; done",
    )?;
    wait_for("the first line", PATIENCE, || {
        Ok((!server.ok(&["logs", "clock"])?.is_empty()).then_some(()))
    })?;
    let mut client = server
        .command(&bin_dir().join("dstack"))
        .args(["logs", "-f", "clock"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let out = client.stdout.take().context("its output")?;
    let mut figures = Vec::new();
    for line in BufReader::new(out).lines() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        if let Ok(written) = line?.trim().parse() {
            let late = now.saturating_sub(Duration::from_nanos(written));
            figures.push(late.as_secs_f64() * 1000.0);
        }
    }
    ensure!(client.wait()?.success(), "`dstack logs -f` failed");
    // Those that were there before the client came are no measure.
    let live = figures.split_off(3.min(figures.len()));
    ensure!(!live.is_empty(), "no line arrived alone");
    rows.push(row(
        "a log line at `dstack logs -f`",
        "ms",
        median(live),
        100.0,
    ));
    Ok(rows)
}

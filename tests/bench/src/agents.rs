//! The agents by themselves: size, start, memory, and what logs cost.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dstack_test_support::server::bin_dir;
use serde_json::{Value, json};

use crate::measure::{Row, median};

const ROUNDS: usize = 7;
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that the job of the log measure writes.
const LOG_BYTES: u64 = 200_000_000;
const MB: f64 = 1_000_000.0;
/// Ticks a second in what Linux reports to programs.
const TICKS: f64 = 100.0;

fn agent(name: &str) -> PathBuf {
    let arch = std::env::consts::ARCH;
    bin_dir().join("agents").join(arch).join(name)
}

/// A figure that has no counterpart in the reference.
pub(crate) fn row(what: &'static str, unit: &'static str, ours: f64, target: f64) -> Row {
    Row {
        what,
        unit,
        ours,
        target,
        reference: None,
    }
}

/// Files as they are uploaded to machines.
pub(crate) fn sizes() -> Result<Vec<Row>> {
    let size = |name| -> Result<f64> {
        let path = agent(name);
        let found = fs::metadata(&path).with_context(|| path.display().to_string())?;
        #[expect(clippy::cast_precision_loss, reason = "a size of some megabytes")]
        Ok(found.len() as f64 / MB)
    };
    Ok(vec![
        row("size of dstack-shim", "MB", size("dstack-shim")?, 10.0),
        row("size of dstack-runner", "MB", size("dstack-runner")?, 8.0),
    ])
}

/// An agent with its socket; killed with this value.
struct Agent {
    child: Child,
    socket: PathBuf,
}

impl Agent {
    fn spawn(command: &mut Command, socket: PathBuf) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn()?;
        Ok(Self { child, socket })
    }

    fn runner(dir: &Path) -> Result<Self> {
        let socket = dir.join("r.sock");
        let mut command = Command::new(agent("dstack-runner"));
        command
            .args(["start", "--task-dir"])
            .arg(dir.join("task"))
            .arg("--http-socket")
            .arg(&socket);
        fs::create_dir_all(dir.join("task/work"))?;
        Self::spawn(&mut command, socket)
    }

    fn shim(dir: &Path) -> Result<Self> {
        let socket = dir.join("s.sock");
        let mut command = Command::new(agent("dstack-shim"));
        command
            .args(["--runtime", "process", "--shim-home"])
            .arg(dir)
            .arg("--socket")
            .arg(&socket)
            .arg("--runner-binary-path")
            .arg(agent("dstack-runner"));
        Self::spawn(&mut command, socket)
    }

    /// Asks until there is an answer.
    fn ready(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while ask(&self.socket, "GET", "/api/healthcheck", None).is_err() {
            ensure!(Instant::now() < deadline, "the agent does not answer");
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// One request; HTTP/1.0, so that the end of the answer is the end of the connection.
fn ask(socket: &Path, method: &str, path: &str, body: Option<&Value>) -> Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .context("an answer without a head")?;
    let body = answer.split_off(end + 4);
    let head = String::from_utf8_lossy(&answer);
    ensure!(head.contains(" 200 "), "{method} {path}: {head}");
    Ok(body)
}

/// From the start of the process to the first answer.
pub(crate) fn start() -> Result<Vec<Row>> {
    let (mut runners, mut shims) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let dir = tempfile::tempdir()?;
        let began = Instant::now();
        Agent::runner(dir.path())?.ready()?;
        runners.push(began.elapsed().as_secs_f64() * 1000.0);
        let dir = tempfile::tempdir()?;
        let began = Instant::now();
        Agent::shim(dir.path())?.ready()?;
        shims.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(vec![
        row("start of the runner, no login", "ms", median(runners), 20.0),
        row("start of the shim", "ms", median(shims), 20.0),
    ])
}

fn submit(socket: &Path, script: &str) -> Result<()> {
    let job = json!({"job_spec": {"commands": ["/bin/sh", "-c", script], "jobs_per_replica": 1}});
    ask(socket, "POST", "/api/submit", Some(&job))?;
    ask(socket, "POST", "/api/run", None).map(drop)
}

/// Takes the whole log of a job; gives the bytes of it in base64.
fn take_all(socket: &Path) -> Result<usize> {
    let (mut taken, mut at) = (0, 0);
    loop {
        let path = format!("/api/pull?timestamp={at}&wait_ms=5000");
        let pulled: Value = serde_json::from_slice(&ask(socket, "GET", &path, None)?)?;
        for log in pulled["job_logs"].as_array().context("job_logs")? {
            taken += log["message"].as_str().context("message")?.len();
        }
        at = pulled["last_updated"].as_i64().context("last_updated")?;
        if pulled["has_more"] == false {
            return Ok(taken);
        }
    }
}

/// What a job's log costs on its way out of the runner.
pub(crate) fn logs() -> Result<Vec<Row>> {
    let dir = tempfile::tempdir()?;
    let runner = Agent::runner(dir.path())?;
    runner.ready()?;
    let began = Instant::now();
    let line = "a line of a log with a number of words, as programs write them";
    submit(
        &runner.socket,
        &format!("yes '{line}' | head -c {LOG_BYTES}"),
    )?;
    let taken = take_all(&runner.socket)?;
    let took = began.elapsed().as_secs_f64();
    let expected = usize::try_from(LOG_BYTES)? / 3 * 4;
    ensure!(taken >= expected, "{taken} of {expected} bytes arrived");
    let hundreds = 2.0;
    let status = fs::read_to_string(format!("/proc/{}/status", runner.child.id()))?;
    Ok(vec![
        row("200 MB of log out of the runner (20 MB/s)", "s", took, 10.0),
        row(
            "runner's CPU for 100 MB of log",
            "s",
            cpu(runner.child.id())? / hundreds,
            2.0,
        ),
        row(
            "runner's most memory meanwhile",
            "MB",
            kilobytes(&status, "VmHWM:")? / 1024.0,
            64.0,
        ),
    ])
}

/// From the writing of a line to its arrival at whoever waits for it.
pub(crate) fn latency() -> Result<Vec<Row>> {
    let dir = tempfile::tempdir()?;
    let runner = Agent::runner(dir.path())?;
    runner.ready()?;
    submit(
        &runner.socket,
        "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.4; date +%s%N; done",
    )?;
    let mut figures = Vec::new();
    let mut at = 0;
    loop {
        let path = format!("/api/pull?timestamp={at}&wait_ms=5000");
        let pulled: Value = serde_json::from_slice(&ask(&runner.socket, "GET", &path, None)?)?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        for log in pulled["job_logs"].as_array().context("job_logs")? {
            let text = decode(log["message"].as_str().context("message")?);
            if let Ok(written) = text.trim().parse::<u64>() {
                let late = now.saturating_sub(Duration::from_nanos(written));
                figures.push(late.as_secs_f64() * 1000.0);
            }
        }
        at = pulled["last_updated"].as_i64().context("last_updated")?;
        if pulled["has_more"] == false {
            break;
        }
    }
    ensure!(!figures.is_empty(), "no line arrived alone");
    Ok(vec![row(
        "a log line out of the runner",
        "ms",
        median(figures),
        50.0,
    )])
}

/// Base64 of a line of digits.
fn decode(text: &str) -> String {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => 0,
    };
    let mut out = String::new();
    for group in text.as_bytes().chunks(4) {
        let bits = group.iter().fold(0, |bits, byte| bits << 6 | value(*byte));
        out.extend(bits.to_be_bytes()[1..].iter().map(|byte| char::from(*byte)));
    }
    out.trim_end_matches('\0').to_owned()
}

/// Resident memory of both agents while a job runs.
pub(crate) fn memory() -> Result<Vec<Row>> {
    let dir = tempfile::tempdir()?;
    let shim = Agent::shim(dir.path())?;
    shim.ready()?;
    let task = json!({"id": "bench", "name": "bench", "image_name": "none"});
    ask(&shim.socket, "POST", "/api/tasks", Some(&task))?;
    let deadline = Instant::now() + PATIENCE;
    let port = loop {
        let path = "/api/tasks/bench?wait=creating&timeout_ms=500";
        let told: Value = serde_json::from_slice(&ask(&shim.socket, "GET", path, None)?)?;
        if told["status"] == "running" {
            break told["ports"][0]["host"].as_u64().context("a port")?;
        }
        ensure!(
            told["status"] != "terminated" && Instant::now() < deadline,
            "{told}"
        );
    };
    let ask_runner = |method: &str, path: &str, body: &str| -> Result<()> {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", u16::try_from(port)?))?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        stream.read_to_end(&mut Vec::new())?;
        Ok(())
    };
    let job = json!({"job_spec": {"commands": ["/bin/sh", "-c", "seq 1000; sleep 60"]}});
    ask_runner("POST", "/api/submit", &job.to_string())?;
    ask_runner("POST", "/api/run", "")?;
    std::thread::sleep(Duration::from_secs(2));
    ask_runner("GET", "/api/pull", "")?;
    let rss = |pid: u32| -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(kilobytes(&status, "VmRSS:")? / 1024.0)
    };
    let runner = runner_of(dir.path())?;
    let rows = vec![
        row(
            "shim's memory while a job runs",
            "MB",
            rss(shim.child.id())?,
            12.0,
        ),
        row("runner's memory while a job runs", "MB", rss(runner)?, 12.0),
    ];
    let end = json!({"termination_reason": "terminated_by_user", "timeout": 0});
    ask(
        &shim.socket,
        "POST",
        "/api/tasks/bench/terminate",
        Some(&end),
    )?;
    Ok(rows)
}

/// The process whose arguments name a task of this home.
fn runner_of(home: &Path) -> Result<u32> {
    let home = home.display().to_string();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&line);
        if words.contains("--task-dir") && words.contains(&home) {
            let name = path.file_name().and_then(|name| name.to_str());
            return name.and_then(|name| name.parse().ok()).context("a number");
        }
    }
    bail!("there is no runner")
}

fn kilobytes(status: &str, field: &str) -> Result<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    Ok(line
        .context("a field")?
        .trim()
        .trim_end_matches("kB")
        .trim()
        .parse()?)
}

/// CPU seconds of a process so far, without its children.
pub(crate) fn cpu(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = text.rsplit(')').next().unwrap_or_default();
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || -> Result<f64> { Ok(fields.next().context("a field")?.parse()?) };
    Ok((next()? + next()?) / TICKS)
}

//! Start, stop, and a server that does nothing.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dstack_test_support::server::{TestServer, bin_dir};

use crate::measure::{Row, median};

const ROUNDS: usize = 7;

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// `dstack --version`.
pub(crate) fn version() -> Result<Vec<Row>> {
    let mut figures = Vec::new();
    for _ in 0..ROUNDS * 3 {
        let began = Instant::now();
        Command::new(bin_dir().join("dstack"))
            .arg("--version")
            .output()?;
        figures.push(ms(began.elapsed()));
    }
    Ok(vec![Row {
        what: "dstack --version",
        unit: "ms",
        ours: median(figures),
        target: 5.0,
        reference: Some(1730.0),
    }])
}

/// From the start of the process to the first answered request; and the stop.
pub(crate) fn start() -> Result<Vec<Row>> {
    let (mut first, mut second, mut stop) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut server = TestServer::prepare(&[])?;
        for figures in [&mut first, &mut second] {
            let began = Instant::now();
            server.spawn()?;
            server.post("/api/server/get_info", &serde_json::Value::Null)?;
            figures.push(ms(began.elapsed()));
            stop.push(ms(server.stop()?));
        }
    }
    let row = |what, ours, target, reference| Row {
        what,
        unit: "ms",
        ours: median(ours),
        target,
        reference: Some(reference),
    };
    Ok(vec![
        row("first start to first answer", first, 100.0, 15_700.0),
        row("second start to first answer", second, 50.0, 9000.0),
        row("stop with nothing active", stop, 200.0, 3300.0),
    ])
}

/// Memory and CPU of an idle server with the local plugin in use.
pub(crate) fn idle() -> Result<Vec<Row>> {
    const WINDOW: Duration = Duration::from_secs(30);
    let server = TestServer::start(&[])?;
    server.ok(&["offer", "--json"])?; // loads the plugin
    std::thread::sleep(Duration::from_secs(3));
    let pid = server.pid().context("the server runs")?;
    let before = cpu_ticks(pid)?;
    std::thread::sleep(WINDOW);
    let ticks = cpu_ticks(pid)? - before;
    // 100 ticks a second is what Linux reports to programs on every machine of today.
    let percent = ticks / 100.0 / WINDOW.as_secs_f64() * 100.0;
    Ok(vec![
        Row {
            what: "idle memory with the local plugin",
            unit: "MB",
            ours: rss_mb(pid)?,
            target: 20.0,
            reference: Some(456.0),
        },
        Row {
            what: "idle CPU of one core",
            unit: "%",
            ours: percent.max(0.01),
            target: 0.1,
            reference: Some(1.4),
        },
    ])
}

fn cpu_ticks(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = text.rsplit(')').next().unwrap_or_default();
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || {
        fields
            .next()
            .and_then(|field| field.parse::<f64>().ok())
            .context("utime and stime")
    };
    Ok(next()? + next()?)
}

fn rss_mb(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("VmRSS")?;
    let kb: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kb / 1024.0)
}

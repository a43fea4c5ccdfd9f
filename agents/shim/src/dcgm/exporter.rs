//! The exporter of GPU metrics: a program of NVIDIA's that serves Prometheus text on the machine's loopback.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use super::counters;
use crate::args::Args;
use crate::programs;

const PROGRAM: &str = "dcgm-exporter";
const COUNTERS_FILE: &str = "dcgm-counters.csv";
const HTTP_LIMIT: Duration = Duration::from_secs(10);
const VERSION_LIMIT: Duration = Duration::from_secs(10);
/// Far more than an exporter of the largest machines tells.
const LARGEST_REPLY: usize = 64 * 1024 * 1024;
/// An exporter that ends is started again, but not in a busy loop.
const RESTART_PAUSE: Duration = Duration::from_secs(30);

/// The exporter of this machine.
#[derive(Debug)]
pub(crate) struct Exporter {
    program: PathBuf,
    arguments: Vec<String>,
    url: Uri,
    /// How often it collects; more often it need not be asked.
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    child: Option<Child>,
    started_at: Instant,
    last: Option<(Instant, Arc<str>)>,
}

impl Exporter {
    /// Starts the exporter if this machine has one that works.
    pub(crate) async fn start(args: &Args, home: &Path) -> Option<Self> {
        let program = programs::find(PROGRAM)?;
        match Self::try_start(args, home, program).await {
            Ok(exporter) => {
                tracing::info!(url = %exporter.url, "GPU metrics are exported");
                Some(exporter)
            }
            Err(err) => {
                tracing::warn!(error = format!("{err:#}"), "there are no GPU metrics");
                None
            }
        }
    }

    async fn try_start(args: &Args, home: &Path, program: PathBuf) -> anyhow::Result<Self> {
        let mut version = Command::new(&program);
        let version = version.arg("-v").stdin(Stdio::null()).kill_on_drop(true);
        let told = tokio::time::timeout(VERSION_LIMIT, version.output()).await??;
        anyhow::ensure!(told.status.success(), "{PROGRAM} -v: {}", told.status);
        let counters = home.join(COUNTERS_FILE);
        std::fs::write(&counters, counters::file())?;
        let port = args.dcgm_exporter_http_port;
        let interval = u64::from(args.dcgm_exporter_interval);
        let arguments = vec![
            "-f".to_owned(),
            counters.to_string_lossy().into_owned(),
            "-a".to_owned(),
            format!("localhost:{port}"),
            "-c".to_owned(),
            interval.to_string(),
        ];
        let child = spawn(&program, &arguments)?;
        Ok(Self {
            program,
            arguments,
            url: format!("http://localhost:{port}/metrics").parse()?,
            interval: Duration::from_millis(interval),
            state: Mutex::new(State {
                child: Some(child),
                started_at: Instant::now(),
                last: None,
            }),
        })
    }

    /// All metrics, not older than the collect interval.
    ///
    /// # Errors
    /// Why the exporter gives none now.
    pub(crate) async fn metrics(&self) -> Result<Arc<str>, String> {
        let mut state = self.state.lock().await;
        if let Some((at, text)) = &state.last
            && at.elapsed() < self.interval
        {
            return Ok(Arc::clone(text));
        }
        self.revive(&mut state);
        let text: Arc<str> = match tokio::time::timeout(HTTP_LIMIT, self.fetch()).await {
            Ok(fetched) => fetched?.into(),
            Err(_) => return Err(format!("{} does not answer", self.url)),
        };
        state.last = Some((Instant::now(), Arc::clone(&text)));
        Ok(text)
    }

    /// Starts the program again if it has ended.
    fn revive(&self, state: &mut State) {
        let has_ended = match &mut state.child {
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => true,
        };
        if !has_ended || state.started_at.elapsed() < RESTART_PAUSE {
            return;
        }
        tracing::warn!("the exporter of GPU metrics has ended and is started again");
        state.started_at = Instant::now();
        state.child = spawn(&self.program, &self.arguments)
            .inspect_err(|err| tracing::warn!(error = %err, "it does not start"))
            .ok();
    }

    async fn fetch(&self) -> Result<String, String> {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let response = client
            .get(self.url.clone())
            .await
            .map_err(|err| format!("GET {}: {err}", self.url))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST_REPLY)
            .collect()
            .await
            .map_err(|err| format!("GET {}: {err}", self.url))?
            .to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        if status == StatusCode::OK {
            Ok(text)
        } else {
            Err(format!("GET {}: {status}: {}", self.url, text.trim()))
        }
    }

    /// Ends the program.
    pub(crate) async fn stop(&self) {
        if let Some(child) = &mut self.state.lock().await.child {
            super::stop(child).await;
        }
    }
}

fn spawn(program: &Path, arguments: &[String]) -> std::io::Result<Child> {
    super::spawn(Command::new(program).args(arguments))
}

/// The samples of some GPUs, each metric with its two describing lines once.
pub(crate) fn of_gpus(metrics: &str, ids: &[String]) -> String {
    let mut described: BTreeMap<&str, String> = BTreeMap::new();
    let mut text = String::new();
    for line in metrics.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.split(' ');
            if let (Some("HELP" | "TYPE"), Some(name)) = (words.next(), words.next()) {
                let lines = described.entry(name).or_default();
                lines.push_str(line);
                lines.push('\n');
            }
            continue;
        }
        if !ids
            .iter()
            .any(|id| !id.is_empty() && line.contains(id.as_str()))
        {
            continue;
        }
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        if let Some(lines) = described.remove(name) {
            text.push_str(&lines);
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_gets_the_samples_of_its_gpus_described_once() {
        let all = include_str!("../../tests/fixtures/dcgm-exporter.txt");
        let text = of_gpus(all, &["GPU-aaaa".to_owned()]);
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split('{').next().unwrap())
            .collect();
        assert_eq!(
            lines,
            [
                "# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).",
                "# TYPE DCGM_FI_DEV_SM_CLOCK gauge",
                "DCGM_FI_DEV_SM_CLOCK",
                "# HELP DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION Total energy consumption since boot (in mJ).",
                "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter",
                "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
                "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
            ]
        );
        assert!(text.ends_with('\n') && !text.contains("GPU-bbbb"));
        assert_eq!(of_gpus(all, &[]), "");
        assert_eq!(of_gpus(all, &[String::new()]), "");
        let both = of_gpus(all, &["GPU-aaaa".to_owned(), "GPU-bbbb".to_owned()]);
        assert_eq!(both, all);
    }
}

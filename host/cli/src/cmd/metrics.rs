//! `dstack metrics`: what the jobs of a run use.

use std::time::Duration;

use dstack_api::metrics::{JobMetrics, Metric};
use dstack_api::runs::{GetRunRequest, Run};
use serde_json::{Value, json};

use crate::cx::{Cx, Here, ProjectOption};
use crate::error::CliError;

/// What the jobs of a run use: processors, memory, GPUs
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  dstack metrics NAME\n  dstack metrics NAME -w")]
pub(crate) struct Args {
    #[command(flatten)]
    project: ProjectOption,
    /// The name of the run
    run_name: String,
    /// A live view; end it with Ctrl+C
    #[arg(short, long, conflicts_with = "json")]
    watch: bool,
    /// Only this replica
    #[arg(long, value_name = "N")]
    replica: Option<u32>,
    /// Only this job of each replica
    #[arg(long, value_name = "N")]
    job: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One job's place and its numbers.
struct Of {
    replica: u32,
    job: u32,
    name: String,
    metrics: JobMetrics,
}

pub(crate) fn run(args: &Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    loop {
        let all = ask(args, &here)?;
        if args.json {
            let jobs: Vec<Value> = all
                .iter()
                .map(|of| {
                    json!({
                        "replica_num": of.replica, "job_num": of.job, "job_name": of.name,
                        "metrics": of.metrics.metrics,
                    })
                })
                .collect();
            return cx
                .ui
                .json(&json!({ "run_name": args.run_name, "jobs": jobs }));
        }
        let rows: Vec<Vec<String>> = all.iter().flat_map(rows).collect();
        let table = cx.ui.table(&["JOB", "CPU", "MEMORY", "GPU"], &rows);
        if !args.watch || !cx.ui.is_terminal() {
            return cx.ui.line(table);
        }
        cx.ui.live(&table)?;
        std::thread::sleep(Duration::from_secs(2));
    }
}

fn ask(args: &Args, here: &Here) -> Result<Vec<Of>, CliError> {
    let ask = GetRunRequest {
        run_name: Some(args.run_name.clone()),
        id: None,
    };
    let run: Run = here
        .client
        .post(&here.path("runs/get"), &ask)
        .map_err(|error| super::stop::not_found(error, &args.run_name))?;
    let wanted = run.jobs.iter().filter(|job| {
        let spec = &job.job_spec;
        args.replica
            .is_none_or(|replica| replica == spec.replica_num)
            && args.job.is_none_or(|number| number == spec.job_num)
    });
    let mut all = Vec::new();
    for job in wanted {
        let spec = &job.job_spec;
        let path = here.path(&format!(
            "metrics/job/{}?replica_num={}&job_num={}&limit=1",
            args.run_name, spec.replica_num, spec.job_num
        ));
        all.push(Of {
            replica: spec.replica_num,
            job: spec.job_num,
            name: spec.job_name.clone(),
            metrics: here.client.get(&path)?,
        });
    }
    Ok(all)
}

/// The newest value of a series.
fn newest(metrics: &[Metric], name: &str) -> Option<f64> {
    let metric = metrics.iter().find(|metric| metric.name == name)?;
    metric.values.first()?.as_f64()
}

fn gigabytes(bytes: f64) -> String {
    format!("{:.1}GB", bytes / f64::from(1 << 30))
}

/// A row of the job, and one more for each further GPU.
fn rows(of: &Of) -> Vec<Vec<String>> {
    let metrics = &of.metrics.metrics;
    let value = |name: &str| newest(metrics, name);
    let cpu = value("cpu_usage_percent").map(|percent| {
        let cpus = value("cpus_detected_num").filter(|cpus| *cpus > 0.0);
        format!("{:.0}%", percent / cpus.unwrap_or(1.0))
    });
    let memory = value("memory_working_set_bytes").map(|used| {
        let total = value("memory_total_bytes").map(gigabytes);
        let of = total.map(|total| format!("/{total}")).unwrap_or_default();
        format!("{}{of}", gigabytes(used))
    });
    let mut gpus = Vec::new();
    while let Some(percent) = value(&format!("gpu_util_percent_gpu{}", gpus.len())) {
        let used = value(&format!("gpu_memory_usage_bytes_gpu{}", gpus.len())).map(gigabytes);
        let total = value("gpu_memory_total_bytes").map(gigabytes);
        let mem = used
            .zip(total)
            .map(|(used, total)| format!(" mem={used}/{total}"));
        gpus.push(format!(
            "gpu={} util={percent:.0}%{}",
            gpus.len(),
            mem.unwrap_or_default()
        ));
    }
    let none = || "-".to_owned();
    let mut rows = vec![vec![
        of.name.clone(),
        cpu.unwrap_or_else(none),
        memory.unwrap_or_else(none),
        gpus.first().cloned().unwrap_or_else(none),
    ]];
    let empty = String::new;
    rows.extend(
        gpus.into_iter()
            .skip(1)
            .map(|gpu| vec![empty(), empty(), empty(), gpu]),
    );
    rows
}

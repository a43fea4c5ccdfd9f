//! The table of runs: of `ps`, and while a run is on its way.

use dstack_api::jobs::{Job, JobSubmission};
use dstack_api::runs::Run;
use jiff::Timestamp;

use super::values;
use crate::ui::{Tone, Ui};

/// Runs as a table. A run with one job is one row; else a row of the run and one for each job.
pub(crate) fn table(ui: &Ui, runs: &[Run], is_verbose: bool, now: Timestamp) -> String {
    let head: &[&str] = if is_verbose {
        &[
            "NAME",
            "BACKEND",
            "RESOURCES",
            "INSTANCE TYPE",
            "PRICE",
            "STATUS",
            "SUBMITTED",
            "ERROR",
        ]
    } else {
        &["NAME", "BACKEND", "GPU", "PRICE", "STATUS", "SUBMITTED"]
    };
    let rows: Vec<Vec<String>> = runs
        .iter()
        .flat_map(|run| rows(ui, run, is_verbose, now))
        .collect();
    ui.table(head, &rows)
}

fn rows(ui: &Ui, run: &Run, is_verbose: bool, now: Timestamp) -> Vec<Vec<String>> {
    let name = run.run_spec.run_name.clone().unwrap_or_default();
    let status = ui.paint(values::run_tone(run.status), &run_status(run));
    let submitted = values::ago(run.submitted_at, now);
    let error = run.error.clone().unwrap_or_default();
    if let [job] = run.jobs.as_slice() {
        return vec![cells(
            Row {
                name,
                status,
                submitted,
                error,
                job: job.job_submissions.last(),
            },
            is_verbose,
        )];
    }
    let mut all = vec![cells(
        Row {
            name,
            status,
            submitted,
            error,
            job: None,
        },
        is_verbose,
    )];
    for job in &run.jobs {
        let last = job.job_submissions.last();
        let status = last.map(|last| job_status(ui, last)).unwrap_or_default();
        let submitted = last
            .map(|last| values::ago(last.submitted_at, now))
            .unwrap_or_default();
        let error = last.and_then(|last| last.error.clone()).unwrap_or_default();
        all.push(cells(
            Row {
                name: job_name(job),
                status,
                submitted,
                error,
                job: last,
            },
            is_verbose,
        ));
    }
    all
}

struct Row<'a> {
    name: String,
    status: String,
    submitted: String,
    error: String,
    job: Option<&'a JobSubmission>,
}

fn cells(row: Row<'_>, is_verbose: bool) -> Vec<String> {
    let data = row.job.and_then(|job| job.job_provisioning_data.as_ref());
    let offer = row
        .job
        .and_then(|job| job.job_runtime_data.as_ref())
        .and_then(|data| data.offer.as_ref());
    let shared = offer.map(|offer| &offer.instance.resources);
    let resources = shared.or(data.map(|data| &data.instance_type.resources));
    let backend = data
        .map(|data| values::backend(&data.backend, &data.region))
        .unwrap_or_default();
    let price = data
        .map(|data| values::price(data.price))
        .unwrap_or_default();
    if is_verbose {
        return vec![
            row.name,
            backend,
            resources.map(values::resources).unwrap_or_default(),
            data.map(|data| data.instance_type.name.clone())
                .unwrap_or_default(),
            price,
            row.status,
            row.submitted,
            row.error,
        ];
    }
    let gpus = resources.map(|resources| values::gpus(resources).unwrap_or_else(|| "-".to_owned()));
    vec![
        row.name,
        backend,
        gpus.unwrap_or_default(),
        price,
        row.status,
        row.submitted,
    ]
}

fn job_name(job: &Job) -> String {
    let spec = &job.job_spec;
    format!("   replica={} job={}", spec.replica_num, spec.job_num)
}

/// The text of the status column. A finished run with one job says how that ended.
pub(crate) fn run_status(run: &Run) -> String {
    if let [job] = run.jobs.as_slice()
        && run.status.is_finished()
        && let Some(last) = job.job_submissions.last()
        && !last.status_message.is_empty()
    {
        return last.status_message.clone();
    }
    if let Some(progress) = run
        .jobs
        .first()
        .and_then(|job| job.job_submissions.last())
        .and_then(|s| s.image_pull_progress)
        && run.status_message == "pulling"
        && progress.total_bytes > 0
    {
        let percent =
            (progress.downloaded_bytes + progress.extracted_bytes) * 50 / progress.total_bytes;
        return format!("pulling {}%", percent.min(100));
    }
    if run.status_message.is_empty() {
        run.status.to_string()
    } else {
        run.status_message.clone()
    }
}

/// Where a run stands in one line: the status and, once known, the machine.
pub(crate) fn progress(run: &Run) -> String {
    let status = run_status(run);
    let last = run.jobs.first().and_then(|job| job.job_submissions.last());
    match last.and_then(|last| last.job_provisioning_data.as_ref()) {
        Some(data) => format!(
            "{status} on {}, {} at {}",
            values::backend(&data.backend, &data.region),
            data.instance_type.name,
            values::price(data.price)
        ),
        None => status,
    }
}

fn job_status(ui: &Ui, job: &JobSubmission) -> String {
    use dstack_api::jobs::JobStatus as S;
    let tone = match job.status {
        S::Running | S::Done => Tone::Good,
        S::Failed => Tone::Bad,
        S::Terminated | S::Aborted => Tone::Dim,
        S::Submitted | S::Provisioning | S::Pulling | S::Terminating => Tone::Warn,
    };
    let text = if job.status_message.is_empty() {
        job.status.to_string()
    } else {
        job.status_message.clone()
    };
    ui.paint(tone, &text)
}

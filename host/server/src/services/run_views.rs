//! Runs as the API shows them, put together from records.

use dstack_agent_protocol::CONTAINER_SSH_PORT;
use dstack_api::config::{Ide, RunConfiguration};
use dstack_api::jobs::{
    self, Job, JobConnectionInfo, JobSpec, JobStatus, JobSubmission, JobTerminationReason,
    RetryEvent,
};
use dstack_api::runs::{Run, RunFleet, RunSpec, RunStatus};
use dstack_store::jobs::JobRecord;
use dstack_store::runs::RunRecord;
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use crate::error::ApiError;
use crate::pulls::Pulls;
use crate::settings::SshProxy;

/// What to show of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Detail<'a> {
    /// Whether the jobs are shown.
    pub(crate) jobs: bool,
    /// Tries per job, newest ones; the job's spec is shown in any case.
    pub(crate) submissions: usize,
    /// How to reach running jobs.
    pub(crate) connections: Option<Option<&'a SshProxy>>,
    /// How far images are.
    pub(crate) pulls: Option<&'a Pulls>,
}

fn parse<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, ApiError> {
    serde_json::from_str(text)
        .map_err(|error| ApiError::Internal(format!("a stored {what} cannot be read: {error}")))
}

/// A run with its jobs. `records` are in the order of replica, job and submission.
pub(crate) fn run(
    record: &RunRecord,
    records: &[JobRecord],
    detail: Detail<'_>,
    now: Timestamp,
) -> Result<Run, ApiError> {
    let spec: RunSpec = parse("run specification", &record.spec)?;
    let mut jobs = Vec::new();
    let mut latest = None;
    for (position, tries) in records
        .chunk_by(|a, b| (a.replica_num, a.job_num) == (b.replica_num, b.job_num))
        .enumerate()
    {
        let Some(last) = tries.last() else { continue };
        let Some(job_spec) = &last.spec else { continue };
        let job_spec: JobSpec = parse("job specification", job_spec)?;
        if position == 0 {
            latest = Some(submission(last, &job_spec, detail.pulls)?);
        }
        if !detail.jobs {
            continue;
        }
        let shown = tries.len().saturating_sub(detail.submissions);
        let submissions: Vec<JobSubmission> = tries
            .iter()
            .skip(shown)
            .map(|record| submission(record, &job_spec, detail.pulls))
            .collect::<Result<_, _>>()?;
        let info = match detail.connections {
            Some(proxy) if last.status == JobStatus::Running => {
                Some(connection(&spec, &job_spec, last, proxy)?)
            }
            _ => None,
        };
        jobs.push(Job {
            job_spec,
            job_submissions: submissions,
            job_connection_info: info,
        });
    }
    let finished = record.status.is_finished();
    Ok(Run {
        id: record.id.0,
        project_name: record.project_name.clone(),
        user: record.user_name.clone(),
        fleet: record
            .fleet_id
            .zip(record.fleet_name.clone())
            .map(|(id, name)| RunFleet { id: id.0, name }),
        submitted_at: record.submitted_at,
        last_processed_at: record.last_processed_at,
        status: record.status,
        status_message: status_message(record.status, records, &spec),
        termination_reason: record
            .termination_reason
            .map(|reason| reason.as_str().to_owned()),
        run_spec: spec,
        jobs,
        latest_job_submission: latest,
        cost: cost(records, now),
        service: record
            .service
            .as_deref()
            .map(|text| parse("service", text))
            .transpose()?,
        deployment_num: record.deployment_num,
        error: record
            .termination_reason
            .and_then(|reason| reason.error())
            .map(str::to_owned),
        deleted: Some(record.deleted),
        next_triggered_at: record.next_triggered_at.filter(|_| !finished),
    })
}

fn submission(
    record: &JobRecord,
    spec: &JobSpec,
    pulls: Option<&Pulls>,
) -> Result<JobSubmission, ApiError> {
    let mut machine: Option<jobs::JobProvisioningData> = record
        .provisioning_data
        .as_deref()
        .map(|text| parse("machine", text))
        .transpose()?;
    let runtime: Option<jobs::JobRuntimeData> = record
        .runtime_data
        .as_deref()
        .map(|text| parse("runtime data", text))
        .transpose()?;
    if let (Some(machine), Some(ports)) = (
        machine.as_mut().filter(|machine| !machine.dockerized),
        runtime.as_ref().and_then(|runtime| runtime.ports.as_ref()),
    ) {
        // Clients go straight to such a job's own sshd: several jobs of one machine differ by its port.
        machine.ssh_port = ports.get(&CONTAINER_SSH_PORT).copied();
    }
    Ok(JobSubmission {
        id: record.id.0,
        submission_num: record.submission_num,
        deployment_num: record.deployment_num,
        submitted_at: record.submitted_at,
        last_processed_at: record.last_processed_at,
        finished_at: record.finished_at,
        inactivity_secs: record.inactivity_secs,
        status: record.status,
        status_message: jobs::status_message(
            record.status,
            record.termination_reason,
            record.termination_reason_message.as_deref(),
            record.exit_status,
        ),
        termination_reason: record
            .termination_reason
            .map(|reason| reason.as_str().to_owned()),
        termination_reason_message: record.termination_reason_message.clone(),
        exit_status: record.exit_status,
        job_provisioning_data: machine,
        job_runtime_data: runtime,
        error: record
            .termination_reason
            .and_then(JobTerminationReason::error)
            .map(str::to_owned),
        // Nobody probes a job that does not run yet.
        probes: record
            .probe_streaks
            .iter()
            .zip(&spec.probes)
            .map(|(streak, _)| jobs::Probe {
                success_streak: *streak,
            })
            .collect(),
        image_pull_progress: pulls
            .filter(|_| record.status == JobStatus::Pulling)
            .and_then(|pulls| pulls.of(record.id)),
    })
}

/// The newest try of each job.
fn newest(records: &[JobRecord]) -> impl Iterator<Item = &JobRecord> {
    records
        .chunk_by(|a, b| (a.replica_num, a.job_num) == (b.replica_num, b.job_num))
        .filter_map(<[JobRecord]>::last)
}

/// `pulling` while every job pulls, `retrying` while a job without capacity is tried again, else the status.
fn status_message(status: RunStatus, records: &[JobRecord], spec: &RunSpec) -> String {
    if !records.is_empty() && newest(records).all(|job| job.status == JobStatus::Pulling) {
        return JobStatus::Pulling.to_string();
    }
    let waits = matches!(status, RunStatus::Submitted | RunStatus::Pending);
    let retries_capacity = || {
        let retry = dstack_engine::spec::run_profile(spec).effective_retry();
        retry.is_some_and(|retry| retry.on_events.contains(&RetryEvent::NoCapacity))
    };
    let had_none = records.iter().any(|job| {
        job.termination_reason == Some(JobTerminationReason::FailedToStartDueToNoCapacity)
    });
    if waits && had_none && retries_capacity() {
        "retrying".to_owned()
    } else {
        status.to_string()
    }
}

/// Dollars for all tries so far, to 4 decimals.
fn cost(records: &[JobRecord], now: Timestamp) -> f64 {
    let total: f64 = records
        .iter()
        .filter_map(|job| {
            let price = job.price_usd_per_hour?;
            let seconds = job
                .finished_at
                .unwrap_or(now)
                .duration_since(job.submitted_at)
                .as_secs_f64()
                .max(0.0);
            Some(price * seconds / 3600.0)
        })
        .sum();
    (total * 10_000.0).round() / 10_000.0
}

fn connection(
    run: &RunSpec,
    job: &JobSpec,
    record: &JobRecord,
    proxy: Option<&SshProxy>,
) -> Result<JobConnectionInfo, ApiError> {
    let name = run.run_name.clone().unwrap_or_default();
    let host = if job.replica_num == 0 && job.job_num == 0 {
        name
    } else {
        job.job_name.clone()
    };
    let runtime: Option<jobs::JobRuntimeData> = record
        .runtime_data
        .as_deref()
        .map(|text| parse("runtime data", text))
        .transpose()?;
    let folder = runtime.and_then(|runtime| runtime.working_dir);
    let mut info = JobConnectionInfo::default();
    if let RunConfiguration::DevEnvironment(dev) = &run.configuration
        && let Some(ide) = dev.ide
    {
        info.ide_name = Some(ide_name(ide).to_owned());
        info.attached_ide_url = folder.as_deref().map(|folder| ide_url(ide, &host, folder));
        info.proxied_ide_url = proxy.zip(folder.as_deref()).map(|(proxy, folder)| {
            let port = proxy
                .port
                .map(|port| format!(":{port}"))
                .unwrap_or_default();
            ide_url(ide, &format!("{}@{}{port}", record.id, proxy.host), folder)
        });
    }
    if let Some(proxy) = proxy {
        let mut command = vec!["ssh".to_owned()];
        if let Some(port) = proxy.port.filter(|port| *port != 22) {
            command.extend(["-p".to_owned(), port.to_string()]);
        }
        command.push(format!("{}@{}", record.id, proxy.host));
        info.proxied_ssh_command = Some(command);
        info.sshproxy_hostname = Some(proxy.host.clone());
        info.sshproxy_port = proxy.port;
        info.sshproxy_upstream_id = Some(record.id.to_string());
    }
    if proxy.is_none_or(|proxy| !proxy.enforced) {
        info.attached_ssh_command = Some(vec!["ssh".to_owned(), host]);
    }
    Ok(info)
}

const fn ide_name(ide: Ide) -> &'static str {
    match ide {
        Ide::Vscode => "VS Code",
        Ide::Cursor => "Cursor",
        Ide::Windsurf => "Windsurf",
        Ide::Zed => "Zed",
    }
}

fn ide_url(ide: Ide, host: &str, folder: &str) -> String {
    match ide {
        Ide::Zed => format!("zed://ssh/{host}{folder}"),
        Ide::Vscode | Ide::Cursor | Ide::Windsurf => {
            format!("{ide}://vscode-remote/ssh-remote+{host}{folder}")
        }
    }
}

//! Readiness probes of service replicas: HTTP over the machine's link, each when it is due.

use std::sync::Arc;
use std::time::Duration;

use dstack_api::jobs::{JobStatus, ProbeSpec};
use dstack_engine::changes::{Hint, Pipeline};
use dstack_engine::model::JobRow;
use dstack_remote::ProbeRequest;
use dstack_store::probes::{self, DueProbe};
use dstack_store::{DbError, instances, jobs, lease};
use jiff::Timestamp;

use super::driver::StepError;
use super::{Context, facts, own_hosts, runner_orders};
use crate::machines::port_of;

/// Probes begun at once; the others follow as soon as these are on their way.
const BATCH: u32 = 100;
/// Between two looks when nothing wakes us: probes may begin on another replica of the server.
const LOOK: Duration = Duration::from_secs(3);
/// How much longer than its timeout a probe may take before somebody else asks it.
const GRACE: Duration = Duration::from_secs(70);

/// Runs until the server stops.
pub(super) async fn run(cx: Arc<Context>) {
    loop {
        let rest = match start_due(&cx).await {
            Ok(rest) => rest,
            Err(error) => {
                tracing::error!(%error, "probes cannot be read");
                LOOK
            }
        };
        tokio::select! {
            () = cx.tasks.stopping() => return,
            () = cx.probes.notified() => {}
            () = tokio::time::sleep(rest) => {}
        }
    }
}

/// Begins the probes that are due; how long until the next one is.
async fn start_due(cx: &Arc<Context>) -> Result<Duration, DbError> {
    let now = cx.now();
    let nobody = cx.store.read(probes::next_due).await?;
    if nobody.is_none_or(|at| at > now) {
        return Ok(until(nobody, now));
    }
    let (due, next) = cx
        .store
        .write(move |tx| {
            let mut taken = Vec::new();
            for probe in probes::due(tx, now, BATCH)? {
                let job = jobs::get(tx, probe.job_id)?;
                let timeout = job
                    .as_ref()
                    .and_then(|job| spec_of(job, probe))
                    .map_or(0, |spec| spec.timeout);
                let busy = GRACE + Duration::from_secs(u64::from(timeout));
                probes::take(tx, probe, now.saturating_add(busy).unwrap_or(now))?;
                taken.extend(job.map(|job| (probe, job)));
            }
            Ok::<_, DbError>((taken, probes::next_due(tx)?))
        })
        .await?;
    for (probe, job) in due {
        let cx = Arc::clone(cx);
        cx.clone().tasks.spawn("probe", async move {
            let id = job.id;
            if let Err(error) = ask(&cx, probe, job).await {
                tracing::warn!(job = %id, %error, "a probe could not be asked");
            }
        });
    }
    Ok(until(next, now))
}

fn until(next: Option<Timestamp>, now: Timestamp) -> Duration {
    let left = next.and_then(|at| Duration::try_from(at.duration_since(now)).ok());
    left.unwrap_or(LOOK).min(LOOK)
}

fn spec_of(job: &JobRow, probe: DueProbe) -> Option<&ProbeSpec> {
    job.spec.probes.get(usize::try_from(probe.num).ok()?)
}

/// Asks once and notes how it went.
async fn ask(cx: &Context, probe: DueProbe, job: JobRow) -> Result<(), StepError> {
    let Some(spec) = spec_of(&job, probe).filter(|_| job.status == JobStatus::Running) else {
        return Ok(cx
            .store
            .write(move |tx| probes::record(tx, probe.job_id, probe.num, 0, None))
            .await?);
    };
    let success = match answers(cx, &job, spec).await? {
        Ok(success) => success,
        Err(why) => {
            tracing::debug!(job = %job.id, probe = probe.num, why, "a probe failed");
            false
        }
    };
    let streak = if success {
        probe.success_streak.saturating_add(1)
    } else {
        0
    };
    let is_over = spec.until_ready && streak >= spec.ready_after;
    let again = Duration::from_secs(u64::from(spec.interval));
    let now = cx.now();
    let next = (!is_over).then(|| now.saturating_add(again).unwrap_or(now));
    let hint = Hint {
        pipeline: Pipeline::JobsRunning,
        id: job.id.0,
    };
    let reached = streak == spec.ready_after;
    cx.store
        .write(move |tx| {
            probes::record(tx, probe.job_id, probe.num, streak, next)?;
            if reached {
                lease::hint(tx, hint, now)?;
            }
            Ok(())
        })
        .await?;
    if reached {
        cx.hints.send(&[hint]);
    }
    Ok(())
}

/// Whether the replica answers with success; or why it could not be asked, for the log.
async fn answers(
    cx: &Context,
    job: &JobRow,
    spec: &ProbeSpec,
) -> Result<Result<bool, String>, StepError> {
    let (Some(data), Some(port)) = (job.provisioning_data.as_deref(), job.spec.service_port) else {
        return Ok(Err("the replica has no machine or no port".to_owned()));
    };
    let request = match request(cx, job, spec).await? {
        Ok(request) => request,
        Err(why) => return Ok(Err(why)),
    };
    let project = facts::project(cx, job.project_id).await?;
    let machine = match job.instance_id {
        Some(id) => cx.store.read(move |tx| instances::get(tx, id)).await?,
        None => None,
    };
    let owner = facts::owner(cx, &project, job.project_id, machine.as_ref()).await?;
    let at = match own_hosts::way(cx, data, &owner).await? {
        Ok(at) => at,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let port = port_of(job.runtime_data.as_deref(), port);
    Ok(cx
        .machines
        .probe(&at, port, request)
        .await
        .map_err(|error| error.to_string()))
}

/// The request with the project's secrets filled in.
async fn request(
    cx: &Context,
    job: &JobRow,
    spec: &ProbeSpec,
) -> Result<Result<ProbeRequest, String>, StepError> {
    let texts = [&spec.url]
        .into_iter()
        .chain(&spec.body)
        .chain(spec.headers.iter().map(|header| &header.value));
    let needed = texts.clone().any(|text| text.contains("${{"));
    let secrets = runner_orders::secrets_of(cx, job.project_id, needed).await?;
    let fill = |text: &String| {
        if needed {
            runner_orders::fill(text, &secrets)
        } else {
            Ok(text.clone())
        }
    };
    let filled = || {
        let mut headers = Vec::new();
        for header in &spec.headers {
            headers.push((header.name.clone(), fill(&header.value)?));
        }
        Ok(ProbeRequest {
            method: spec.method.as_str().to_ascii_uppercase(),
            path: fill(&spec.url)?,
            headers,
            body: spec.body.as_ref().map(fill).transpose()?,
            timeout: Duration::from_secs(u64::from(spec.timeout)),
        })
    };
    Ok(filled())
}

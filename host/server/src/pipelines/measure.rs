//! Asks running jobs what they use, for the metrics of the API and of Prometheus.

use std::sync::Arc;
use std::time::Duration;

use dstack_engine::ids::JobId;
use dstack_engine::model::{InstanceRow, JobRow};
use dstack_remote::Address;
use dstack_store::job_metrics::{self, Point};
use dstack_store::{DbError, instances, jobs};
use futures_util::stream::{self, StreamExt as _};
use jiff::Timestamp;

use super::driver::StepError;
use super::{Context, facts, own_hosts};
use crate::machines::runner_port;

/// Between two rounds.
const EVERY: Duration = Duration::from_secs(10);
/// Jobs that are asked at the same time.
const AT_ONCE: usize = 32;
/// Patience with one machine.
const PATIENCE: Duration = Duration::from_secs(8);

/// Runs until the server stops.
pub(crate) async fn run(cx: Arc<Context>) {
    loop {
        if let Err(error) = round(&cx).await {
            tracing::error!(%error, "the metrics of jobs cannot be taken");
        }
        if !cx.tasks.rest(EVERY).await {
            return;
        }
    }
}

/// Asks every running job once, and writes all answers in one go.
async fn round(cx: &Context) -> Result<(), DbError> {
    let running = cx.store.read(jobs::running).await?;
    let taken: Vec<Taken> = stream::iter(running)
        .map(|id| async move {
            let asked = tokio::time::timeout(PATIENCE, ask(cx, id)).await;
            match asked {
                Ok(Ok(taken)) => taken,
                Ok(Err(error)) => {
                    tracing::debug!(job = %id, %error, "no metrics of a job");
                    None
                }
                Err(_) => None,
            }
        })
        .buffer_unordered(AT_ONCE)
        .filter_map(|taken| async move { taken })
        .collect()
        .await;
    if taken.is_empty() {
        return Ok(());
    }
    let now = cx.now();
    cx.store
        .write(move |tx| {
            for one in taken {
                if let Some((at, point)) = &one.point {
                    job_metrics::insert(tx, one.job, *at, point)?;
                }
                if let Some(text) = &one.exporter {
                    job_metrics::put_exporter(tx, one.job, now, text)?;
                }
            }
            Ok(())
        })
        .await
}

/// What a machine told of a job.
struct Taken {
    job: JobId,
    point: Option<(Timestamp, Point)>,
    /// The text of its GPU exporter.
    exporter: Option<String>,
}

async fn ask(cx: &Context, id: JobId) -> Result<Option<Taken>, StepError> {
    let found = cx
        .store
        .read(move |tx| {
            let Some(job) = jobs::get(tx, id)? else {
                return Ok(None);
            };
            let instance = match job.instance_id {
                Some(id) => instances::get(tx, id)?,
                None => None,
            };
            Ok(Some((job, instance)))
        })
        .await?;
    let Some((job, instance)) = found else {
        return Ok(None);
    };
    let Some(data) = job.provisioning_data.as_deref() else {
        return Ok(None);
    };
    let project = facts::project(cx, job.project_id).await?;
    let owner = facts::owner(cx, &project, job.project_id, instance.as_ref()).await?;
    let Ok(at) = own_hosts::way(cx, data, &owner).await? else {
        return Ok(None);
    };
    Ok(Some(Taken {
        job: id,
        point: point(cx, &at, &job).await,
        exporter: exporter(cx, &at, &job, instance.as_ref()).await,
    }))
}

async fn point(cx: &Context, at: &Address, job: &JobRow) -> Option<(Timestamp, Point)> {
    let port = runner_port(job.runtime_data.as_ref());
    let told = cx.machines.metrics(at, port).await.ok()??;
    let when = Timestamp::from_microsecond(told.timestamp_micro).unwrap_or_else(|_| cx.now());
    let gpus = &told.gpus;
    let point = Point {
        cpu_usage_micro: told.cpu_usage_micro,
        memory_usage_bytes: told.memory_usage_bytes,
        memory_working_set_bytes: told.memory_working_set_bytes,
        gpus_memory_usage_bytes: gpus.iter().map(|gpu| gpu.gpu_memory_usage_bytes).collect(),
        gpus_util_percent: gpus
            .iter()
            .map(|gpu| u64::from(gpu.gpu_util_percent))
            .collect(),
    };
    Some((when, point))
}

/// Only for Prometheus, and only where a shim may have GPUs.
async fn exporter(
    cx: &Context,
    at: &Address,
    job: &JobRow,
    instance: Option<&InstanceRow>,
) -> Option<String> {
    let has_gpus = job
        .provisioning_data
        .as_deref()
        .is_some_and(|data| !data.instance_type.resources.gpus.is_empty());
    if !cx.settings.prometheus_metrics || !has_gpus || !instance.is_some_and(InstanceRow::has_shim)
    {
        return None;
    }
    let text = cx.machines.task_metrics(at, &job.id.to_string()).await;
    text.ok()?.filter(|text| !text.is_empty())
}

//! Running replicas of services: ready for requests; and GPUs that nobody uses.

use std::time::Duration;

use super::{View, secs};
use crate::changes::{Changes, NewProbe, Pipeline};
use crate::model::JobRow;
use crate::spec;

/// How much of the window may be without samples at its beginning, in seconds.
const GAP: i64 = 60;

/// The probes of a job that has just begun to run.
pub(super) fn begin(job: &JobRow, changes: &mut Changes) {
    let probes = (0..).zip(&job.spec.probes).map(|(num, _)| NewProbe {
        job_id: job.id,
        num,
    });
    changes.new_probes.extend(probes);
}

/// Whether a replica may get requests: every probe succeeded often enough in a row. Without probes it may at once.
pub fn is_ready(job: &JobRow, streaks: &[u32]) -> bool {
    job.spec.probes.iter().enumerate().all(|(num, probe)| {
        streaks
            .get(num)
            .is_some_and(|streak| *streak >= probe.ready_after)
    })
}

/// Lets a replica that is ready take requests. Once it does, it stays so. At a gateway, the gateway has to take it first.
pub(super) fn register(view: &View, changes: &mut Changes) {
    let job = &view.job;
    let takes = spec::is_service(&view.run.spec)
        && job.job_num == 0
        && !spec::is_at_gateway(&view.run)
        && spec::takes_requests(&view.run.spec, &job.spec.replica_group);
    if job.registered || !takes || !is_ready(job, &view.probes) {
        return;
    }
    changes.job(job).registered = Some(true);
    changes.event("Service replica is ready", &[job]);
    // A rollout goes on.
    changes.hint(Pipeline::Runs, job.run_id);
}

/// Why the job wastes its GPUs, if it does: one of them was below the limit in every sample of the window.
pub(super) fn wasted(view: &View) -> Option<String> {
    let policy = view.job.spec.utilization_policy.as_ref()?;
    let (window, least) = (policy.time_window, u64::from(policy.min_gpu_utilization));
    let samples: Vec<_> = view
        .gpu_load
        .iter()
        .take_while(|sample| secs(view.now, sample.at) <= window)
        .collect();
    let oldest = samples.last()?;
    if secs(view.now, oldest.at) < window - GAP {
        return None;
    }
    let idle = (0..oldest.percent.len()).find(|gpu| {
        samples.iter().all(|sample| {
            sample
                .percent
                .get(*gpu)
                .is_some_and(|percent| *percent < least)
        })
    })?;
    let window = Duration::from_secs(u64::try_from(window).unwrap_or(0)).as_secs();
    Some(format!(
        "GPU {idle} was used less than {least}% for {window} s"
    ))
}

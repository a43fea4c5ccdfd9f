//! Submitted jobs: offers, then a machine.

use std::sync::Arc;
use std::time::Duration;

use dstack_api::jobs::JobStatus;
use dstack_engine::changes::{Changes, JobPatch, Pipeline};
use dstack_engine::ids::JobId;
use dstack_engine::job_submitted::{self, Conclusion, OfferAsk, Plan, Provision, View};
use dstack_engine::view::FleetOffers;
use dstack_store::lease::{self, Claim, Lease};
use dstack_store::{DbError, Tx, views};
use futures_util::future::join_all;

use super::driver::{Pipe, StepError, chance, finish, write_keeping};
use super::{Context, cloud_calls, facts};

/// The pipeline.
pub(super) struct JobsSubmitted;

impl Pipe for JobsSubmitted {
    type Id = JobId;
    const PIPELINE: Pipeline = Pipeline::JobsSubmitted;
    const WORKERS: usize = 40;

    fn claim(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<JobId>>, DbError> {
        lease::claim_jobs_submitted(tx, how)
    }

    async fn step(cx: Arc<Context>, lease: Lease<JobId>) -> Result<Option<Duration>, StepError> {
        let (id, now, known) = (lease.id(), cx.now(), Arc::clone(&cx.known));
        let view = cx
            .store
            .read(move |tx| views::job_submitted(tx, id, now, &known))
            .await?;
        let Some(mut view) = view else {
            return finish(&cx, lease, Changes::nothing()).await;
        };
        view.backends = Arc::new(cx.clouds.backends(view.job.project_id).await);
        let mut ids = chance();
        let mut plan = job_submitted::plan(&view, &mut ids);
        if let Plan::AskOffers(asks) = &plan {
            view.offers = Some(ask(&cx, &view, asks).await);
            view.now = cx.now();
            plan = job_submitted::plan(&view, &mut ids);
        }
        match plan {
            Plan::Change(changes) => {
                count(&cx, &view, &changes);
                finish(&cx, lease, changes).await
            }
            // Answered already: asking again would ask for ever.
            Plan::AskOffers(_) => finish(&cx, lease, Changes::later(Duration::from_secs(5))).await,
            Plan::Provision(order) => provision(&cx, lease, view, *order).await,
        }
    }
}

/// Counts for Prometheus how long a run waited for its first machine.
fn count(cx: &Context, view: &View, changes: &Changes) {
    let job = &view.job;
    let is_first = (job.replica_num, job.job_num, job.submission_num) == (0, 0, 0);
    let is_placed = |patch: &JobPatch| {
        patch.id == job.id
            && patch
                .status
                .is_some_and(|status| status == JobStatus::Provisioning)
    };
    if is_first && changes.jobs.iter().any(is_placed) {
        let waited = view.now.duration_since(view.run.submitted_at);
        let run_type = super::run_type(&view.run.spec);
        cx.happened
            .provisioned(&view.project_name, run_type, waited);
    }
}

async fn ask(cx: &Context, view: &View, asks: &[OfferAsk]) -> Vec<FleetOffers> {
    join_all(asks.iter().map(|ask| async move {
        let backends = ask.backends.clone();
        let offers = cloud_calls::offers(
            cx,
            view.job.project_id,
            backends,
            &ask.wanted,
            ask.sharing,
            Some(&view.job.spec.image_name),
        )
        .await;
        FleetOffers {
            fleet_id: ask.fleet_id,
            offers,
        }
    }))
    .await
}

/// Writes what must be found after a crash, calls, concludes; again for what is left after a call without an answer.
async fn provision(
    cx: &Context,
    lease: Lease<JobId>,
    mut view: View,
    mut order: Provision,
) -> Result<Option<Duration>, StepError> {
    let project = facts::project(cx, view.job.project_id).await?;
    let (user, keys) = facts::user(cx, &view.run).await?;
    let mut lease = lease;
    loop {
        let Some(kept) = write_keeping(cx, lease, std::mem::take(&mut order.before)).await? else {
            return Ok(Some(Duration::ZERO));
        };
        lease = kept;
        let call = cloud_calls::Order {
            project_id: view.job.project_id,
            project: &project,
            user: &user,
            name: &view.job.name,
            provider_ref: &order.attempt.provider_ref,
            wanted: &order.wanted,
            volumes: &order.volumes,
            job: Some((&view.run, &view.job, &keys)),
        };
        let attempts = cloud_calls::try_in_order(cx, &call, &order.offers).await;
        view.now = cx.now();
        match job_submitted::conclude(&view, &order, &attempts, &mut chance()) {
            Conclusion::Done(changes) => {
                count(cx, &view, &changes);
                return finish(cx, lease, changes).await;
            }
            Conclusion::Again(next) => order = *next,
        }
    }
}

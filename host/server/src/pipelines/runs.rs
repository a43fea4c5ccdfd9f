//! Runs and what they do next. Nobody is called.

use std::sync::Arc;
use std::time::Duration;

use dstack_api::runs::RunStatus;
use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::ids::RunId;
use dstack_store::lease::{self, Claim, Lease};
use dstack_store::{DbError, Tx, views};

use super::driver::{Pipe, StepError, chance, finish};
use super::{Context, facts};

/// The pipeline.
pub(super) struct Runs;

impl Pipe for Runs {
    type Id = RunId;
    const PIPELINE: Pipeline = Pipeline::Runs;
    const WORKERS: usize = 16;

    fn claim(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<RunId>>, DbError> {
        lease::claim_runs(tx, how)
    }

    async fn step(cx: Arc<Context>, lease: Lease<RunId>) -> Result<Option<Duration>, StepError> {
        let (id, now, known) = (lease.id(), cx.now(), Arc::clone(&cx.known));
        let view = cx
            .store
            .read(move |tx| views::run(tx, id, now, &known))
            .await?;
        let Some(view) = view else {
            return finish(&cx, lease, Changes::nothing()).await;
        };
        let changes = dstack_engine::runs::plan(&view, &mut chance());
        let waits = changes
            .runs
            .iter()
            .any(|patch| patch.id == id && patch.status == Some(RunStatus::Pending));
        if waits {
            let project = facts::project(&cx, view.run.project_id).await?;
            let run_type = super::run_type(&view.run.spec);
            cx.happened.pending(&project.name, run_type);
        }
        finish(&cx, lease, changes).await
    }
}

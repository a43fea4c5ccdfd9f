//! Runs and what they do next. Nobody is called.

use std::sync::Arc;
use std::time::Duration;

use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::ids::RunId;
use dstack_store::lease::{self, Claim, Lease};
use dstack_store::{DbError, Tx, views};

use super::Context;
use super::driver::{Pipe, StepError, chance, finish};

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
        let changes = match view {
            Some(view) => dstack_engine::runs::plan(&view, &mut chance()),
            None => Changes::nothing(),
        };
        finish(&cx, lease, changes).await
    }
}

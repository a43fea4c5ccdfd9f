//! Fleets and how many machines they keep. Nobody is called.

use std::sync::Arc;
use std::time::Duration;

use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::ids::FleetId;
use dstack_store::lease::{self, Claim, Lease};
use dstack_store::{DbError, Tx, views};

use super::Context;
use super::driver::{Pipe, StepError, chance, finish};

/// The pipeline.
pub(super) struct Fleets;

impl Pipe for Fleets {
    type Id = FleetId;
    const PIPELINE: Pipeline = Pipeline::Fleets;
    const WORKERS: usize = 8;

    fn claim(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<FleetId>>, DbError> {
        lease::claim_fleets(tx, how)
    }

    async fn step(cx: Arc<Context>, lease: Lease<FleetId>) -> Result<Option<Duration>, StepError> {
        let (id, now) = (lease.id(), cx.now());
        let view = cx.store.read(move |tx| views::fleet(tx, id, now)).await?;
        let changes = match view {
            Some(view) => dstack_engine::fleets::plan(&view, &mut chance()),
            None => Changes::nothing(),
        };
        finish(&cx, lease, changes).await
    }
}

//! Volumes: made, registered, deleted.

use std::sync::Arc;
use std::time::Duration;

use dstack_backend_types::methods::{
    CreateVolumeRequest, DeleteVolumeRequest, RegisterVolumeRequest,
};
use dstack_backend_types::{BackendError, ErrorKind};
use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::ids::VolumeId;
use dstack_engine::volumes::{self, Answer, Call, Plan, View};
use dstack_store::lease::{self, Claim, Lease};
use dstack_store::{DbError, Tx, views};

use super::driver::{Pipe, StepError, finish, write_keeping};
use super::{Context, volume_calls};
use crate::clouds::{call, is_no_backend};

/// The pipeline.
pub(super) struct Volumes;

impl Pipe for Volumes {
    type Id = VolumeId;
    const PIPELINE: Pipeline = Pipeline::Volumes;
    const WORKERS: usize = 10;

    fn claim(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<VolumeId>>, DbError> {
        lease::claim_volumes(tx, how)
    }

    async fn step(cx: Arc<Context>, lease: Lease<VolumeId>) -> Result<Option<Duration>, StepError> {
        let (id, now, known) = (lease.id(), cx.now(), Arc::clone(&cx.known));
        let view = cx
            .store
            .read(move |tx| views::volume(tx, id, now, &known))
            .await?;
        let Some(mut view) = view else {
            return finish(&cx, lease, Changes::nothing()).await;
        };
        match volumes::plan(&view) {
            Plan::Change(changes) => finish(&cx, lease, changes).await,
            Plan::Call(order, before) => {
                let Some(lease) = write_keeping(&cx, lease, before).await? else {
                    return Ok(Some(Duration::ZERO));
                };
                let answer = put(&cx, &view, order).await?;
                view.now = cx.now();
                let changes = volumes::conclude(&view, order, &answer);
                finish(&cx, lease, changes).await
            }
        }
    }
}

async fn put(cx: &Context, view: &View, order: Call) -> Result<Answer, StepError> {
    let row = &view.volume;
    let volume = match volume_calls::volume(cx, row, None).await? {
        Ok(volume) => volume,
        Err(why) => return Ok(Answer::Refused(why)),
    };
    let (project, backend) = (row.project_id, &row.configuration.backend);
    let clouds = &*cx.clouds;
    let answer = match order {
        Call::Create => {
            let order = CreateVolumeRequest { volume };
            let made = call(clouds, project, backend, &order).await;
            made.map(|reply| Answer::Made(Box::new(reply.provisioning_data)))
        }
        Call::Register => {
            let order = RegisterVolumeRequest { volume };
            let found = call(clouds, project, backend, &order).await;
            found.map(|reply| Answer::Made(Box::new(reply.provisioning_data)))
        }
        Call::Delete => {
            let order = DeleteVolumeRequest { volume };
            let deleted = call(clouds, project, backend, &order).await;
            deleted.map(|_| Answer::Deleted)
        }
    };
    Ok(answer.unwrap_or_else(|error| judge(order, error)))
}

/// What an error means: nothing done, perhaps done, to be asked again.
fn judge(order: Call, error: BackendError) -> Answer {
    if is_no_backend(&error) {
        return Answer::NoBackend;
    }
    tracing::info!(?order, kind = ?error.kind, error = error.message, "a volume's call failed");
    match error.kind {
        ErrorKind::NotFound if order == Call::Delete => Answer::Deleted,
        ErrorKind::NotYetTerminated => Answer::NotYet,
        ErrorKind::Timeout
        | ErrorKind::Cancelled
        | ErrorKind::Transport
        | ErrorKind::Panic
        | ErrorKind::Internal
        | ErrorKind::RateLimited
        | ErrorKind::Unavailable => Answer::Unknown(error.message),
        ErrorKind::NoCapacity
        | ErrorKind::NotFound
        | ErrorKind::Auth
        | ErrorKind::Quota
        | ErrorKind::Invalid
        | ErrorKind::Unsupported
        | ErrorKind::Provisioning
        | ErrorKind::SkipOffer
        | ErrorKind::PlacementGroupInUse
        | ErrorKind::PlacementGroupNotSupported
        | ErrorKind::NoCatalog => Answer::Refused(error.message),
    }
}

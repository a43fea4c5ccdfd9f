//! The loop behind every pipeline: claim what is due, work on it, look again when told to.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dstack_engine::changes::{Changes, Pipeline};
use dstack_store::apply::{self, Applied};
use dstack_store::lease::{Claim, Lease, LeaseKey};
use dstack_store::{DbError, Tx};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::Context;

/// How long a lease holds without a heartbeat.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// How often leases in use are extended.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The longest time without a look, in case that a hint was lost.
const SAFETY_NET: Duration = Duration::from_secs(15);

/// Why a step ended early. Its row is due again when its lease ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    /// The database.
    #[error(transparent)]
    Store(#[from] DbError),
    /// A stored secret.
    #[error(transparent)]
    Keyring(#[from] crate::services::keyring::KeyringError),
}

/// What the driver must know of a pipeline.
pub(crate) trait Pipe: Send + Sync + 'static {
    /// Its rows' ids.
    type Id: Copy + Send + Sync + Into<dstack_engine::changes::RowId> + 'static;
    /// Which one it is.
    const PIPELINE: Pipeline;
    /// Steps at a time.
    const WORKERS: usize;

    /// Leases rows that are due.
    fn claim(tx: &mut dyn Tx, how: Claim) -> Result<Vec<Lease<Self::Id>>, DbError>;

    /// One pass over one row: load, plan, call, conclude, apply. Answers when the row is due again.
    fn step(
        cx: Arc<Context>,
        lease: Lease<Self::Id>,
    ) -> impl Future<Output = Result<Option<Duration>, StepError>> + Send;
}

/// Runs a pipeline until the server stops.
pub(crate) async fn run<P: Pipe>(cx: Arc<Context>) {
    let Some(wake) = cx.hints.clock(P::PIPELINE) else {
        return;
    };
    let permits = Arc::new(Semaphore::new(P::WORKERS));
    loop {
        tokio::select! {
            () = cx.tasks.stopping() => return,
            () = wake.due() => {}
        }
        if let Err(error) = start_due::<P>(&cx, &permits).await {
            tracing::error!(pipeline = P::PIPELINE.name(), %error, "cannot claim rows");
            wake.after(Duration::from_secs(1));
        }
    }
}

/// Claims what can be started at once, and starts it.
async fn start_due<P: Pipe>(cx: &Arc<Context>, permits: &Arc<Semaphore>) -> Result<(), DbError> {
    let Some(wake) = cx.hints.clock(P::PIPELINE) else {
        return Ok(());
    };
    let free = permits.available_permits();
    if free == 0 {
        wake.backlog();
        return Ok(());
    }
    let limit = u32::try_from(free).unwrap_or(u32::MAX);
    let how = Claim {
        now: cx.now(),
        sent: Instant::now(),
        duration: LEASE,
        limit,
    };
    let (leases, next) = cx
        .store
        .write(move |tx| {
            let leases = P::claim(tx, how)?;
            let next = dstack_store::lease::next_due(tx, P::PIPELINE, how.now)?;
            Ok((leases, next))
        })
        .await?;
    for lease in leases {
        let Ok(permit) = Arc::clone(permits).try_acquire_owned() else {
            break;
        };
        let row: dstack_engine::changes::RowId = lease.id().into();
        let key = lease.key();
        wake.begin(row.0);
        cx.heart.add(key);
        let cx = Arc::clone(cx);
        cx.stats.begin(P::PIPELINE);
        cx.clone().tasks.spawn("pipeline step", async move {
            let began = Instant::now();
            // A panic in a step must not take the loop with it: the row is due again when its lease ends.
            let done = tokio::spawn(P::step(Arc::clone(&cx), lease)).await;
            let is_good = matches!(done, Ok(Ok(_)));
            cx.stats.end(P::PIPELINE, began.elapsed(), is_good);
            let look_again = match done {
                Ok(Ok(look_again)) => look_again,
                Ok(Err(error)) => {
                    tracing::error!(pipeline = P::PIPELINE.name(), row = %row.0, %error, "a step failed");
                    Some(LEASE)
                }
                Err(error) => {
                    tracing::error!(pipeline = P::PIPELINE.name(), row = %row.0, %error, "a step broke off");
                    Some(LEASE)
                }
            };
            cx.heart.remove(key);
            drop(permit);
            if let Some(wake) = cx.hints.clock(P::PIPELINE) {
                wake.end(row.0, look_again);
            }
        });
    }
    if permits.available_permits() == 0 {
        wake.backlog();
    }
    let rest = next.map_or(SAFETY_NET, |next| {
        let left = next.duration_since(cx.now());
        Duration::try_from(left).unwrap_or(Duration::ZERO)
    });
    wake.after(rest.clamp(Duration::from_millis(1), SAFETY_NET));
    Ok(())
}

/// Writes what a step decided, wakes whom it concerns, and says when the row is due again.
pub(crate) async fn finish<T>(
    cx: &Context,
    lease: Lease<T>,
    changes: Changes,
) -> Result<Option<Duration>, StepError>
where
    T: Copy + Send + 'static,
{
    let (now, look_again) = (cx.now(), changes.look_again);
    let has_probes = !changes.new_probes.is_empty();
    let applied = cx
        .store
        .write(move |tx| apply::apply(tx, lease, &changes, now))
        .await?;
    Ok(if settle(cx, &applied) {
        if has_probes {
            cx.probes.notify_one();
        }
        look_again
    } else {
        Some(Duration::ZERO)
    })
}

/// Writes changes in the middle of a step; `None` if they were refused and the lease is gone.
pub(crate) async fn write_keeping<T>(
    cx: &Context,
    lease: Lease<T>,
    changes: Changes,
) -> Result<Option<Lease<T>>, StepError>
where
    T: Copy + Send + 'static,
{
    let now = cx.now();
    let (applied, lease) = cx
        .store
        .write(move |tx| apply::apply_keeping(tx, lease, &changes, now))
        .await?;
    settle(cx, &applied);
    Ok(lease)
}

/// Sends the hints; whether the changes were written.
fn settle(cx: &Context, applied: &Applied) -> bool {
    cx.hints.send(&applied.hints);
    if let Some(refusal) = &applied.refused {
        tracing::debug!(?refusal, "a step's changes were refused");
        cx.cleanup.notify_one();
    }
    applied.is_written()
}

/// The leases in use.
#[derive(Debug, Default)]
pub(crate) struct Heart(Mutex<Vec<LeaseKey>>);

impl Heart {
    fn keys(&self) -> std::sync::MutexGuard<'_, Vec<LeaseKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, key: LeaseKey) {
        self.keys().push(key);
    }

    fn remove(&self, key: LeaseKey) {
        self.keys().retain(|known| *known != key);
    }

    fn all(&self) -> Vec<LeaseKey> {
        self.keys().clone()
    }
}

/// Extends the leases of steps that take long.
pub(crate) async fn heartbeat(cx: Arc<Context>) {
    while cx.tasks.rest(HEARTBEAT).await {
        let keys = cx.heart.all();
        if keys.is_empty() {
            continue;
        }
        let (now, count) = (cx.now(), keys.len());
        match cx
            .store
            .write(move |tx| dstack_store::lease::extend(tx, &keys, now, LEASE))
            .await
        {
            Ok(held) if held.len() < count => {
                tracing::debug!(lost = count - held.len(), "leases ended before their steps");
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "cannot extend leases"),
        }
    }
}

/// Seeds chance for one step.
pub(crate) fn chance() -> dstack_engine::ids::Ids {
    let (a, b) = (Uuid::new_v4().as_u64_pair(), Uuid::new_v4().as_u64_pair());
    dstack_engine::ids::Ids::new([a.0, a.1, b.0, b.1])
}

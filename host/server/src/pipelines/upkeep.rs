//! What is kept for a time only: old events, metrics, health reports and, if wanted, logs of jobs go.

use std::sync::Arc;
use std::time::Duration;

use dstack_store::{DbError, Store, events, instance_health, job_metrics};
use jiff::{SignedDuration, Timestamp};

use super::Context;
use crate::settings::Kept;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(7 * 60);
/// Events in one transaction, so that others get their turn.
const BATCH: u32 = 500;

/// Runs until the server stops.
pub(crate) async fn run(cx: Arc<Context>) {
    loop {
        cx.watches.drop_old();
        match drop_old_events(&cx.store, cx.settings.events_ttl, cx.now()).await {
            Ok(0) => {}
            Ok(count) => tracing::debug!(count, "old events deleted"),
            Err(error) => tracing::error!(%error, "old events cannot be deleted"),
        }
        if let Err(error) = drop_old_measurements(&cx.store, cx.settings.kept, cx.now()).await {
            tracing::error!(%error, "old metrics cannot be deleted");
        }
        if let Some(age) = cx.settings.kept.logs {
            match cx.logs.drop_before(before(cx.now(), age)).await {
                Ok(0) => {}
                Ok(count) => tracing::info!(count, "old logs of jobs deleted"),
                Err(error) => tracing::error!(%error, "old logs of jobs cannot be deleted"),
            }
        }
        if !cx.tasks.rest(LOOK).await {
            return;
        }
    }
}

/// Deletes events older than `ttl`, all of them if none are kept; answers how many.
async fn drop_old_events(
    store: &Store,
    ttl: Option<Duration>,
    now: Timestamp,
) -> Result<u64, DbError> {
    let age = SignedDuration::try_from(ttl.unwrap_or_default()).unwrap_or(SignedDuration::MAX);
    // A time before the first one that can be told: nothing is that old.
    let Ok(before) = now.checked_sub(age) else {
        return Ok(0);
    };
    let mut all = 0;
    loop {
        let count = store
            .write(move |tx| events::delete_before(tx, before, BATCH))
            .await?;
        all += count;
        if count < u64::from(BATCH) {
            return Ok(all);
        }
    }
}

/// The latest time that is `age` old.
fn before(now: Timestamp, age: Duration) -> Timestamp {
    let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
    now.checked_sub(age).unwrap_or(Timestamp::MIN)
}

/// Deletes metrics and health reports that are too old.
async fn drop_old_measurements(store: &Store, kept: Kept, now: Timestamp) -> Result<(), DbError> {
    loop {
        let (running, others) = (
            before(now, kept.metrics_running),
            before(now, kept.metrics_finished),
        );
        let count = store
            .write(move |tx| job_metrics::delete_before(tx, running, others, BATCH))
            .await?;
        if count == 0 {
            break;
        }
    }
    store
        .write(move |tx| {
            job_metrics::delete_exporters(tx, before(now, kept.metrics_running))?;
            instance_health::delete_before(tx, before(now, kept.health))
        })
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dstack_store::events::NewEvent;
    use dstack_store::{Store, StoreConfig, events};
    use jiff::Timestamp;

    use super::drop_old_events;

    #[tokio::test]
    async fn events_are_kept_for_their_time() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(StoreConfig::file(folder.path().join("sqlite.db"))).unwrap();
        let at = |second| Timestamp::from_second(second).unwrap();
        store
            .write(move |tx| {
                for second in 0..1200 {
                    let event = NewEvent {
                        message: format!("event {second}"),
                        actor: None,
                        targets: Vec::new(),
                    };
                    events::insert(tx, &event, at(second))?;
                }
                Ok(())
            })
            .await
            .unwrap();
        let day = Some(Duration::from_secs(100));
        let dropped = drop_old_events(&store, day, at(1199)).await.unwrap();
        assert_eq!(dropped, 1099, "those recorded before second 1099");
        let again = drop_old_events(&store, day, at(1199)).await.unwrap();
        assert_eq!(again, 0);
        let for_ever = Some(Duration::from_secs(u64::MAX));
        assert_eq!(
            drop_old_events(&store, for_ever, at(1199)).await.unwrap(),
            0
        );
        let rest = drop_old_events(&store, None, at(1200)).await.unwrap();
        assert_eq!(rest, 101, "without a time to live none are kept");
    }
}

//! Ends at providers what no row owns: machines of refused steps, and what a call without an answer may have made.

use std::sync::Arc;
use std::time::Duration;

use dstack_backend_types::{BackendError, ErrorKind};
use dstack_store::DbError;
use dstack_store::cleanups::{self, QueuedCleanup};
use jiff::SignedDuration;

use super::{Context, turn};
use crate::ports::CloudMachine;

/// How often the queue is looked at when nothing wakes it.
const LOOK: Duration = Duration::from_secs(30);
/// Work that one server at a time does.
pub(super) const TURN: &str = "cleanup";
/// Entries in one pass.
const BATCH: u32 = 32;

/// Runs until the server stops.
pub(crate) async fn run(cx: Arc<Context>) {
    loop {
        let (ended, rest) = match turn::take(&cx, TURN).await {
            Ok(true) => (passes(&cx).await, LOOK),
            Ok(false) => (Ok(0), turn::AGAIN),
            Err(error) => (Err(error), LOOK),
        };
        match ended {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "cleaned up what nobody owned"),
            Err(error) => tracing::error!(%error, "cannot work on the cleanup queue"),
        }
        tokio::select! {
            () = cx.tasks.stopping() => return,
            () = cx.cleanup.notified() => {}
            () = tokio::time::sleep(rest) => {}
        }
    }
}

/// In one's turn: every queue once.
async fn passes(cx: &Context) -> Result<usize, DbError> {
    let ended = match pass(cx).await {
        Ok(count) => super::side_resources::pass(cx)
            .await
            .map(|more| count + more),
        Err(error) => Err(error),
    };
    turn::give_back(cx, TURN).await;
    ended
}

/// Works on what is due; how many entries are done with.
async fn pass(cx: &Context) -> Result<usize, DbError> {
    let now = cx.now();
    let due = cx
        .store
        .read(move |tx| cleanups::due(tx, now, BATCH))
        .await?;
    let mut done = 0;
    for entry in due {
        if !turn::take(cx, TURN).await? {
            break;
        }
        let id = entry.id;
        match end(cx, &entry).await {
            Ok(()) => {
                cx.store.write(move |tx| cleanups::done(tx, id)).await?;
                done += 1;
            }
            Err(error) => {
                let wait = 5 << entry.attempts.min(7);
                let (backend, provider_ref) = (entry.row.backend.as_str(), &entry.row.provider_ref);
                tracing::warn!(
                    backend,
                    provider_ref,
                    error = error.message,
                    wait_s = wait,
                    "cleanup did not succeed yet"
                );
                let at = cx
                    .now()
                    .saturating_add(SignedDuration::from_secs(wait))
                    .unwrap_or(now);
                cx.store
                    .write(move |tx| cleanups::later(tx, id, at))
                    .await?;
            }
        }
    }
    Ok(done)
}

async fn end(cx: &Context, entry: &QueuedCleanup) -> Result<(), BackendError> {
    let row = &entry.row;
    let ended = match &row.machine {
        Some(machine) => {
            let machine = CloudMachine {
                project: row.project_id,
                backend: row.backend.clone(),
                region: row.region.clone(),
                instance_id: machine.instance_id.clone(),
                backend_data: machine.backend_data.clone(),
            };
            cx.clouds.terminate(&machine).await
        }
        None => {
            cx.clouds
                .end_by_ref(row.project_id, &row.backend, &row.region, &row.provider_ref)
                .await
        }
    };
    match ended {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

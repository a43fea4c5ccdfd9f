//! Every background task of the server: named, counted, ended together.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Spawns tasks and ends them. Clones share the same tasks.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// Runs a task until it ends; it must end soon after [`Tasks::stopping`] does.
    pub fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(async move {
            work.await;
            tracing::trace!(task = name, "task ended");
        });
    }

    /// Ends when the server is asked to stop.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// Whether the server was asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits for a while, or until the server is asked to stop: then false.
    pub async fn rest(&self, time: Duration) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(time) => true,
        }
    }

    /// Asks every task to end.
    pub fn stop(&self) {
        self.stop.cancel();
        self.tracker.close();
    }

    /// Waits for the end of every task, at most for `patience`: then false.
    pub async fn wait(&self, patience: Duration) -> bool {
        self.tracker.close();
        tokio::time::timeout(patience, self.tracker.wait())
            .await
            .is_ok()
    }
}

//! What the server does for its plugins in the background: watches their folders, reloads at SIGHUP, records what happens.

use std::sync::Arc;
use std::time::Duration;

use dstack_backend_catalog::Catalog;
use dstack_plugins::PluginEvent;
use dstack_store::{Store, backends, projects};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::app::{App, now};
use crate::services::events;
use crate::tasks::Tasks;

/// Events of plugins that may wait to be recorded.
const EVENTS: usize = 256;
/// How often it is looked which sources of the catalog are to be asked; each has its own pause.
const CATALOG_LOOK: Duration = Duration::from_secs(15);

/// Where the plugin host tells what happens, and where it comes out.
pub(crate) fn events_channel() -> (Sender<PluginEvent>, Receiver<PluginEvent>) {
    channel(EVENTS)
}

/// Starts all of it; it ends with the other tasks.
pub(crate) fn start(app: &App, events: Receiver<PluginEvent>, tasks: &Tasks) {
    let (watched, ending) = (app.plugins.clone(), tasks.clone());
    tasks.spawn("plugins.watch", async move {
        tokio::select! {
            () = ending.stopping() => {}
            ended = watched.watch() => if let Err(error) = ended {
                tracing::warn!(%error, "the plugin folders are not watched; use `dstack backend reload` after a change");
            }
        }
    });
    let (reloaded, ending) = (app.clone(), tasks.clone());
    tasks.spawn("plugins.reload", async move {
        tokio::select! {
            () = ending.stopping() => {}
            () = reload_at_hangup(reloaded) => {}
        }
    });
    let (catalog, resting) = (app.plugins.catalog(), tasks.clone());
    if catalog.has_published() {
        tasks.spawn("catalog.refresh", async move {
            loop {
                refresh(catalog.clone()).await;
                if !resting.rest(CATALOG_LOOK).await {
                    return;
                }
            }
        });
    }
    let (store, ending) = (app.store.clone(), tasks.clone());
    tasks.spawn("plugins.events", async move {
        tokio::select! {
            () = ending.stopping() => {}
            () = record_all(store, events) => {}
        }
    });
}

/// Asks the sources of the catalog whose time has come.
async fn refresh(catalog: Arc<Catalog>) {
    let refreshed = tokio::task::spawn_blocking(move || catalog.refresh(now(), true)).await;
    match refreshed {
        Ok(done) => {
            for (provider, error) in &done.failed {
                tracing::warn!(provider, error, "the catalog is as old as it was");
            }
            if !done.updated.is_empty() {
                tracing::info!(providers = done.updated.join(" "), "new prices");
            }
        }
        Err(error) => tracing::error!(%error, "the catalog was not refreshed"),
    }
}

async fn reload_at_hangup(app: App) {
    match signal(SignalKind::hangup()) {
        Ok(mut hangups) => {
            while hangups.recv().await.is_some() {
                tracing::info!("SIGHUP: looking through the plugin folders and config.yml");
                app.plugins.reload().await;
                if let Err(error) = app.sections.reload().await {
                    tracing::error!(%error, "the backends of config.yml were not read again");
                }
            }
        }
        Err(error) => tracing::warn!(%error, "SIGHUP cannot be listened for"),
    }
}

async fn record_all(store: Store, mut events: Receiver<PluginEvent>) {
    while let Some(event) = events.recv().await {
        if let Err(error) = record(&store, event).await {
            tracing::warn!(%error, "an event of a plugin was not recorded");
        }
    }
}

/// An event has no target of the kind "backend": it is about the projects that have the backend, and seen in them.
async fn record(store: &Store, event: PluginEvent) -> Result<(), dstack_store::DbError> {
    store
        .write(move |tx| {
            let mut targets = Vec::new();
            for row in backends::all(tx)? {
                if row.kind.as_str() == event.backend
                    && let Some(project) = projects::get(tx, row.project_id)?
                {
                    targets.push(events::project(&project));
                }
            }
            events::record(tx, now(), None, event.to_string(), targets)
        })
        .await
}

//! The HTTP API: finds the task, calls the part that does the work, says what came out.

use std::sync::Arc;
use std::time::Duration;

use dstack_agent_kit::http::{HttpError, Reply, Request, Router};
use dstack_agent_protocol::shim::{
    ComponentList, InstanceHealth, InstanceInfo, LONG_POLL_MAX_MS, ShutdownRequest, TaskList,
    TaskListItem, TaskStatus,
};
use dstack_agent_protocol::{COMPATIBLE_VERSION, Healthcheck, SHIM_SERVICE};
use http::StatusCode;

use crate::dcgm;
use crate::lifecycle;
use crate::registry::Slot;
use crate::shim::Shim;

type Handled = Result<Reply, HttpError>;

/// All calls of the API.
pub(crate) fn router(shim: Arc<Shim>) -> Router<Shim> {
    Router::new(shim)
        .observed_by(|shim| shim.last_needed.renew())
        .get("/api/healthcheck", async |_, _| {
            Ok(Reply::json(&healthcheck()))
        })
        .post("/api/shutdown", shutdown)
        .get("/api/instance/health", health)
        .get("/api/instance/info", async |shim: Arc<Shim>, _| {
            Ok(Reply::json(&info(&shim)))
        })
        .get("/api/components", async |shim: Arc<Shim>, _| {
            Ok(Reply::json(&ComponentList {
                components: shim.components.list(),
            }))
        })
        .post(
            "/api/components/install",
            async |shim: Arc<Shim>, request: Request| {
                shim.components.install(request.json().await?)?;
                Ok(Reply::empty())
            },
        )
        .get("/api/tasks", async |shim: Arc<Shim>, _| {
            Ok(Reply::json(&list(&shim)))
        })
        .post("/api/tasks", async |shim: Arc<Shim>, request: Request| {
            Ok(Reply::json(&lifecycle::submit(
                &shim,
                request.json().await?,
            )?))
        })
        .get("/api/tasks/{id}", task)
        .post("/api/tasks/{id}/terminate", terminate)
        .post("/api/tasks/{id}/remove", remove)
        .get("/metrics/tasks/{id}", metrics)
}

async fn health(shim: Arc<Shim>, _: Request) -> Handled {
    let dcgm = match shim.health.get() {
        Some(health) => health.check().await,
        None => None,
    };
    Ok(Reply::json(&InstanceHealth { dcgm }))
}

/// `GET /metrics/tasks/{id}`: what the exporter tells about the task's GPUs.
async fn metrics(shim: Arc<Shim>, request: Request) -> Handled {
    let not_found = |text| HttpError::new(StatusCode::NOT_FOUND, text);
    // Without the exporter nothing can be told, whatever the task.
    let exporter = shim.exporter.get();
    let exporter = exporter.ok_or_else(|| not_found("DCGM Exporter is not available"))?;
    let slot = shim.tasks.get(request.param("id"));
    let slot = slot.ok_or_else(|| not_found("Task not found"))?;
    let gpus = slot.read(|task| task.gpus.clone()).unwrap_or_default();
    let text = exporter
        .metrics()
        .await
        .map_err(|reason| HttpError::new(StatusCode::BAD_GATEWAY, reason))?;
    Ok(Reply::text(dcgm::of_gpus(&text, &gpus)))
}

fn healthcheck() -> Healthcheck {
    Healthcheck {
        service: SHIM_SERVICE.to_owned(),
        version: COMPATIBLE_VERSION.to_owned(),
    }
}

fn info(shim: &Shim) -> InstanceInfo {
    let first = shim.gpus.gpus.first();
    InstanceInfo {
        gpu_vendor: first
            .and(shim.gpus.vendor)
            .map(|vendor| vendor.as_str().to_owned()),
        gpu_driver_version: first
            .map(|gpu| gpu.driver.clone())
            .filter(|text| !text.is_empty()),
    }
}

fn list(shim: &Shim) -> TaskList {
    let item = |slot: &Slot| {
        slot.read(|task| TaskListItem {
            id: task.config.id.clone(),
            status: task.status,
        })
    };
    TaskList {
        tasks: shim.tasks.all().iter().map(|slot| item(slot)).collect(),
    }
}

fn find(shim: &Shim, request: &Request) -> Result<Arc<Slot>, HttpError> {
    shim.tasks
        .get(request.param("id"))
        .ok_or_else(HttpError::not_found)
}

/// `GET /api/tasks/{id}`; with `wait` it answers when the status is another one, or after `timeout_ms`.
async fn task(shim: Arc<Shim>, request: Request) -> Handled {
    let slot = find(&shim, &request)?;
    if let Some(word) = request.query("wait") {
        let status = TaskStatus::parse(&word)
            .ok_or_else(|| HttpError::bad_request(format!("unknown status \"{word}\"")))?;
        let timeout_ms = match request.query("timeout_ms") {
            None => LONG_POLL_MAX_MS,
            Some(text) => text.parse().map_err(|_| {
                HttpError::bad_request(format!("invalid timeout_ms \"{text}\": use milliseconds"))
            })?,
        };
        let limit = Duration::from_millis(timeout_ms.min(LONG_POLL_MAX_MS));
        tokio::select! {
            () = slot.left(status) => {}
            () = tokio::time::sleep(limit) => {}
            () = shim.stop.requested() => {}
        }
    }
    Ok(Reply::json(&slot.info()))
}

async fn terminate(shim: Arc<Shim>, request: Request) -> Handled {
    let slot = find(&shim, &request)?;
    let terminate = request.json().await?;
    // A client that hangs up must not leave the work half done.
    let work = tokio::spawn(async move { lifecycle::terminate(&shim, &slot, &terminate).await });
    let info = work
        .await
        .map_err(|err| HttpError::internal(err.to_string()))??;
    Ok(Reply::json(&info))
}

async fn remove(shim: Arc<Shim>, request: Request) -> Handled {
    let slot = find(&shim, &request)?;
    let work = tokio::spawn(async move { lifecycle::remove(&shim, &slot).await });
    work.await
        .map_err(|err| HttpError::internal(err.to_string()))??;
    Ok(Reply::empty())
}

async fn shutdown(shim: Arc<Shim>, request: Request) -> Handled {
    let ShutdownRequest { force } = request.json().await?;
    // The answer goes out first: a forced stop cuts connections, this one too.
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if force {
            shim.stop.force();
        } else {
            shim.stop.request();
        }
    });
    Ok(Reply::empty())
}

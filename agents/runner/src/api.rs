//! The HTTP API.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use dstack_agent_kit::http::{HttpError, Reply, Request, Router};
use dstack_agent_protocol::runner::{RunResponse, SubmitRequest};
use dstack_agent_protocol::{COMPATIBLE_VERSION, Healthcheck, RUNNER_SERVICE};
use http_body_util::BodyExt;

use crate::multipart::{self, Form, Found};
use crate::runner::{Conflict, Phase, Runner};
use crate::{files, job};

mod logs;
mod upload;

use upload::Upload;

/// Longest wait of a pull.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Up to here an answer is made as a whole; a larger one while it is sent, so that logs do not pile up in memory.
const SMALL_PULL: usize = 256 * 1024;

/// All routes.
pub(crate) fn router(runner: Arc<Runner>) -> Router<Runner> {
    Router::new(runner)
        .get("/api/healthcheck", healthcheck)
        .post("/api/submit", submit)
        .post("/api/upload_archive", upload_archive)
        .post("/api/upload_code", upload_code)
        .post("/api/run", run)
        .get("/api/pull", pull)
        .post("/api/stop", stop)
        .get("/api/metrics", metrics)
        .get("/logs_ws", logs::watch)
}

impl From<Conflict> for HttpError {
    fn from(_: Conflict) -> Self {
        Self::conflict("Conflict")
    }
}

async fn healthcheck(_: Arc<Runner>, _: Request) -> Result<Reply, HttpError> {
    let (service, version) = (RUNNER_SERVICE.to_owned(), COMPATIBLE_VERSION.to_owned());
    Ok(Reply::json(&Healthcheck { service, version }))
}

async fn submit(runner: Arc<Runner>, request: Request) -> Result<Reply, HttpError> {
    if runner.phase() > Phase::WaitRun {
        return Err(Conflict.into());
    }
    let job: SubmitRequest = request.json().await?;
    // Uploads belong to the submission before.
    for dir in [
        runner.setting.paths.archives(),
        runner.setting.paths.blobs(),
    ] {
        files::remove(&dir).map_err(internal)?;
    }
    tracing::info!(
        run.name = job.run.run_spec.run_name,
        job.id = job.job_submission.id,
        "job submitted"
    );
    runner.submit(job)?;
    Ok(Reply::empty())
}

async fn upload_archive(runner: Arc<Runner>, request: Request) -> Result<Reply, HttpError> {
    runner.waiting()?;
    let bad = |e: multipart::FormError| HttpError::bad_request(e.to_string());
    let content_type = request
        .headers()
        .get(http::header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    let mut form = Form::new(&multipart::boundary(content_type).map_err(bad)?, "archive");
    let mut upload = None;
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| HttpError::bad_request(format!("broken upload: {e}")))?;
        let Some(bytes) = frame.data_ref() else {
            continue;
        };
        for found in form.feed(bytes).map_err(bad)? {
            match (found, &mut upload) {
                (Found::File(name), upload) => {
                    let path = runner.archive_path(&name);
                    *upload = Some(Upload::begin(&path).await.map_err(internal)?);
                }
                (Found::Content(piece), Some(upload)) => {
                    upload.write(&piece).await.map_err(internal)?
                }
                (Found::Content(_), None) => {}
            }
        }
    }
    form.finish().map_err(bad)?;
    if let Some(upload) = upload {
        upload.finish().await.map_err(internal)?;
    }
    Ok(Reply::empty())
}

async fn upload_code(runner: Arc<Runner>, request: Request) -> Result<Reply, HttpError> {
    let job = runner.waiting()?;
    let path = runner.blob_path(&job.request.run.run_spec.repo_id);
    let mut upload = Upload::begin(&path).await.map_err(internal)?;
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| HttpError::bad_request(format!("broken upload: {e}")))?;
        if let Some(bytes) = frame.data_ref() {
            upload.write(bytes).await.map_err(internal)?;
        }
    }
    upload.finish().await.map_err(internal)?;
    Ok(Reply::empty())
}

async fn run(runner: Arc<Runner>, _: Request) -> Result<Reply, HttpError> {
    let submitted = runner.begin()?;
    runner.start_log();
    tracing::info!(version = COMPATIBLE_VERSION, "running the job");
    let resolved = match job::resolve(&runner, &submitted.request) {
        Ok(resolved) => resolved,
        Err(change) => {
            runner.finish(change);
            return Ok(Reply::empty());
        }
    };
    let reply = Reply::json(&RunResponse {
        working_dir: resolved.working_dir.display().to_string(),
        username: resolved.account.name.clone(),
    });
    let work = job::execute(Arc::clone(&runner), submitted, resolved);
    job::spawn(runner, work);
    Ok(reply)
}

async fn pull(runner: Arc<Runner>, request: Request) -> Result<Reply, HttpError> {
    let number = |name: &str| -> Result<Option<i64>, HttpError> {
        let Some(text) = request.query(name).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|_| HttpError::bad_request(format!("{name} is not an integer: {text}")))
    };
    let timestamp = number("timestamp")?.unwrap_or(0);
    let wait = number("wait_ms")?
        .and_then(|ms| u64::try_from(ms).ok())
        .map(Duration::from_millis);
    if let Some(wait) = wait {
        let news = async {
            tokio::select! {
                () = runner.history.newer_than(timestamp) => {}
                () = runner.reached(Phase::WaitLogsFinished) => {}
            }
        };
        // Without news the answer is as empty as it is.
        drop(tokio::time::timeout(wait.min(LONGEST_WAIT), news).await);
    }
    let pull = runner.select(timestamp);
    if pull.selection.log_bytes <= SMALL_PULL {
        let mut json = Vec::new();
        runner.answer(&pull).write(&mut json).map_err(internal)?;
        runner.pulled(&pull);
        return Ok(Reply::json_text(json));
    }
    Ok(Reply::json_made_by(move |out| {
        runner.answer(&pull).write(out)?;
        runner.pulled(&pull);
        Ok(())
    }))
}

async fn stop(runner: Arc<Runner>, _: Request) -> Result<Reply, HttpError> {
    if runner.phase() == Phase::ServeLogs {
        runner.stop.cancel();
    }
    Ok(Reply::empty())
}

async fn metrics(runner: Arc<Runner>, _: Request) -> Result<Reply, HttpError> {
    let Some(cgroup) = runner.setting.cgroup.clone() else {
        return Err(HttpError::new(
            http::StatusCode::NOT_FOUND,
            "Metrics collector is not available",
        ));
    };
    let measured = tokio::task::spawn_blocking(move || {
        cgroup.measure(runner.setting.gpu_vendor, &runner.children)
    });
    let measured = measured
        .await
        .map_err(io::Error::other)
        .and_then(|measured| measured);
    Ok(Reply::json(&measured.map_err(internal)?))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err wants"
)]
fn internal(error: io::Error) -> HttpError {
    HttpError::internal(error.to_string())
}

//! Calls to a job's runner.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dstack_agent_protocol::runner::{Metrics, PullResponse, RunResponse, SubmitRequest};
use dstack_agent_protocol::{Healthcheck, RUNNER_SERVICE};
use http::Method;

use crate::RemoteError;
use crate::http::Http;
use crate::shim::{expect_service, optional, segment};

/// A job's runner. Each call opens its own stream over the machine's one connection.
///
/// Every method fails with a [`RemoteError`]: [`RemoteError::Refused`] while the runner is not up
/// yet, [`RemoteError::Status`] with 409 for a call that is not allowed in the runner's state.
#[derive(Clone)]
pub struct RunnerClient(Http);

impl RunnerClient {
    pub(crate) fn new(http: Http) -> Self {
        Self(http)
    }

    /// Version of the runner; `None` while nobody listens there yet.
    ///
    /// # Errors
    /// See the type; [`RemoteError::UnexpectedService`] if something else answers there.
    pub async fn healthcheck(&self) -> Result<Option<Healthcheck>, RemoteError> {
        match self.0.get("/api/healthcheck").await {
            Ok(health) => expect_service(health, RUNNER_SERVICE).map(Some),
            Err(error) if error.is_refused() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands over the job.
    ///
    /// # Errors
    /// See the type.
    pub async fn submit(&self, job: &SubmitRequest) -> Result<(), RemoteError> {
        self.0.post("/api/submit", job).await.map(drop)
    }

    /// Uploads the archive with this id, a tar.
    ///
    /// # Errors
    /// See the type.
    pub async fn upload_archive(&self, id: &str, tar: Bytes) -> Result<(), RemoteError> {
        // Not in the content: it is followed by a line break and these 40 characters at once.
        let boundary = "dstack-archive-7f1de0c4b7a94f0cb1fd1a0a9";
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"archive\"; filename=\"{}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n",
            segment(id)
        );
        let tail = format!("\r\n--{boundary}--\r\n");
        let mut body = BytesMut::with_capacity(head.len() + tar.len() + tail.len());
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&tar);
        body.extend_from_slice(tail.as_bytes());
        let content_type = format!("multipart/form-data; boundary={boundary}");
        let mut call = self.0.plain(Method::POST, "/api/upload_archive");
        call.content_type = Some(&content_type);
        call.body = body.freeze();
        call.timeout = self.0.upload_timeout;
        self.0.call(call).await.map(drop)
    }

    /// Uploads the code: a tar for local and virtual repositories, a diff for remote ones.
    ///
    /// # Errors
    /// See the type.
    pub async fn upload_code(&self, blob: Bytes) -> Result<(), RemoteError> {
        let mut call = self.0.plain(Method::POST, "/api/upload_code");
        call.content_type = Some("application/octet-stream");
        call.body = blob;
        call.timeout = self.0.upload_timeout;
        self.0.call(call).await.map(drop)
    }

    /// Starts the job. `None` means that its user or directory could not be resolved; a pull
    /// tells more.
    ///
    /// # Errors
    /// See the type.
    pub async fn run(&self) -> Result<Option<RunResponse>, RemoteError> {
        self.0
            .call(self.0.plain(Method::POST, "/api/run"))
            .await?
            .maybe_json()
    }

    /// Everything later than `timestamp`, which is the previous answer's `last_updated` (0 at
    /// first). With `wait` our runners answer only once there is something, or after that time;
    /// the call's own limit grows by it.
    ///
    /// # Errors
    /// See the type.
    pub async fn pull(
        &self,
        timestamp: i64,
        wait: Option<Duration>,
    ) -> Result<PullResponse, RemoteError> {
        let mut path = format!("/api/pull?timestamp={timestamp}");
        if let Some(wait) = wait {
            path.push_str(&format!("&wait_ms={}", wait.as_millis()));
        }
        let mut call = self.0.plain(Method::GET, &path);
        call.timeout += wait.unwrap_or_default();
        self.0.call(call).await?.json()
    }

    /// Asks the job to end; the pulls tell when it has.
    ///
    /// # Errors
    /// See the type.
    pub async fn stop(&self) -> Result<(), RemoteError> {
        self.0
            .call(self.0.plain(Method::POST, "/api/stop"))
            .await
            .map(drop)
    }

    /// Load of the container; `None` where it cannot be measured.
    ///
    /// # Errors
    /// See the type.
    pub async fn metrics(&self) -> Result<Option<Metrics>, RemoteError> {
        optional(self.0.get("/api/metrics").await)
    }
}

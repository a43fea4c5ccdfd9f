//! Calls to a machine's shim.

use std::time::Duration;

use dstack_agent_protocol::shim::{
    ComponentList, InstallRequest, InstanceHealth, InstanceInfo, ShutdownRequest, TaskConfig,
    TaskInfo, TaskList, TaskStatus, TerminateRequest,
};
use dstack_agent_protocol::{Healthcheck, SHIM_SERVICE};
use http::Method;

use crate::RemoteError;
use crate::http::Http;

/// A machine's shim. Each call opens its own stream over the machine's one connection.
///
/// Every method fails with a [`RemoteError`]; an error status of the shim is
/// [`RemoteError::Status`] except where a method's text says otherwise.
#[derive(Clone)]
pub struct ShimClient(Http);

impl ShimClient {
    pub(crate) fn new(http: Http) -> Self {
        Self(http)
    }

    /// Version of the shim.
    ///
    /// # Errors
    /// [`RemoteError::UnexpectedService`] if something else answers there.
    pub async fn healthcheck(&self) -> Result<Healthcheck, RemoteError> {
        expect_service(self.0.get("/api/healthcheck").await?, SHIM_SERVICE)
    }

    /// Health of the machine's GPUs.
    ///
    /// # Errors
    /// See the type.
    pub async fn instance_health(&self) -> Result<InstanceHealth, RemoteError> {
        self.0.get("/api/instance/health").await
    }

    /// What the machine tells about its GPUs.
    ///
    /// # Errors
    /// See the type.
    pub async fn instance_info(&self) -> Result<InstanceInfo, RemoteError> {
        self.0.get("/api/instance/info").await
    }

    /// Versions of the agents' binaries on the machine.
    ///
    /// # Errors
    /// See the type.
    pub async fn components(&self) -> Result<ComponentList, RemoteError> {
        self.0.get("/api/components").await
    }

    /// Starts a download of an agent's binary in the background.
    ///
    /// # Errors
    /// See the type; status 409 while one runs already.
    pub async fn install_component(&self, request: &InstallRequest) -> Result<(), RemoteError> {
        self.0
            .post("/api/components/install", request)
            .await
            .map(drop)
    }

    /// Makes the shim exit; its supervisor starts it again. Jobs keep running.
    ///
    /// # Errors
    /// See the type.
    pub async fn shutdown(&self, force: bool) -> Result<(), RemoteError> {
        self.0
            .post("/api/shutdown", &ShutdownRequest { force })
            .await
            .map(drop)
    }

    /// All tasks the shim knows.
    ///
    /// # Errors
    /// See the type.
    pub async fn tasks(&self) -> Result<TaskList, RemoteError> {
        self.0.get("/api/tasks").await
    }

    /// State of a task; `None` if the shim does not know it.
    ///
    /// # Errors
    /// See the type.
    pub async fn task(&self, id: &str) -> Result<Option<TaskInfo>, RemoteError> {
        optional(self.0.get(&format!("/api/tasks/{}", segment(id))).await)
    }

    /// State of a task as soon as it differs from `known`, or after `wait`; shims without this
    /// extension answer at once.
    ///
    /// # Errors
    /// See the type.
    pub async fn task_when_changed(
        &self,
        id: &str,
        known: TaskStatus,
        wait: Duration,
    ) -> Result<Option<TaskInfo>, RemoteError> {
        let (id, wait_ms) = (segment(id), wait.as_millis());
        optional(
            self.0
                .get(&format!(
                    "/api/tasks/{id}?wait={known}&timeout_ms={wait_ms}"
                ))
                .await,
        )
    }

    /// Submits a task; the shim works on in the background.
    ///
    /// # Errors
    /// See the type; status 409 if the id is taken.
    pub async fn submit(&self, task: &TaskConfig) -> Result<(), RemoteError> {
        self.0.post("/api/tasks", task).await.map(drop)
    }

    /// Ends a task; ending an ended one is fine. `None` if the shim does not know it.
    ///
    /// # Errors
    /// See the type.
    pub async fn terminate(
        &self,
        id: &str,
        request: &TerminateRequest,
    ) -> Result<Option<TaskInfo>, RemoteError> {
        let path = format!("/api/tasks/{}/terminate", segment(id));
        match self.0.post(&path, request).await {
            Ok(answer) => answer.maybe_json(),
            Err(error) => optional(Err(error)),
        }
    }

    /// Removes an ended task and its files. A task the shim does not know is removed already.
    ///
    /// # Errors
    /// See the type; status 409 if the task has not ended.
    pub async fn remove(&self, id: &str) -> Result<(), RemoteError> {
        let path = format!("/api/tasks/{}/remove", segment(id));
        let answer = self.0.call(self.0.plain(Method::POST, &path)).await;
        optional(answer).map(drop)
    }

    /// GPU metrics of a task as Prometheus text; `None` where there are none.
    ///
    /// # Errors
    /// See the type; status 502 if the exporter failed.
    pub async fn task_metrics(&self, id: &str) -> Result<Option<String>, RemoteError> {
        let path = format!("/metrics/tasks/{}", segment(id));
        let answer = self.0.call(self.0.plain(Method::GET, &path)).await;
        Ok(optional(answer)?.map(crate::http::Answer::text))
    }
}

/// Turns 404 into `None`.
pub(crate) fn optional<T>(got: Result<T, RemoteError>) -> Result<Option<T>, RemoteError> {
    match got {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn expect_service(got: Healthcheck, name: &str) -> Result<Healthcheck, RemoteError> {
    if got.service == name {
        return Ok(got);
    }
    Err(RemoteError::UnexpectedService {
        service: got.service,
        version: got.version,
    })
}

/// One path segment: ids are UUIDs, anything else is escaped.
pub(crate) fn segment(id: &str) -> String {
    id.bytes()
        .fold(String::with_capacity(id.len()), |mut out, b| {
            if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.') {
                out.push(char::from(b));
            } else {
                out.push_str(&format!("%{b:02X}"));
            }
            out
        })
}

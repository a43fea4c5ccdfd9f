//! What is asked of the agents on a machine, and what their answers mean to the engine.

mod orders;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dstack_agent_protocol::RUNNER_PORT;
use dstack_agent_protocol::runner::{JobState, Metrics, PullResponse, SubmitRequest};
use dstack_agent_protocol::shim::{TaskConfig, TaskInfo, TaskStatus, TerminateRequest};
use dstack_api::instances::HealthStatus;
use dstack_api::jobs::JobRuntimeData;
use dstack_engine::job_running::{Answer, Ended, Pulled, TaskState};
use dstack_remote::{
    Address, Endpoint, FindAgent, HostError, HostSetup, PreparedHost, ProbeRequest, Remote,
    RemoteError,
};

pub(crate) use orders::{JobOrder, RunnerOrder, TaskOrder};

/// Talks to shims and runners.
#[derive(Clone)]
pub struct Machines {
    remote: Remote,
}

impl std::fmt::Debug for Machines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Machines")
    }
}

impl Machines {
    /// Over these connections.
    #[must_use]
    pub fn new(remote: Remote) -> Self {
        Self { remote }
    }

    /// Gives the shim a task. One that it has already counts as taken: the answer to an earlier try may be lost.
    pub(crate) async fn submit_task(&self, at: &Address, task: &TaskConfig) -> Answer {
        let shim = self.remote.shim(at);
        if let Err(error) = shim.healthcheck().await {
            return not_there(&error);
        }
        match shim.submit(task).await {
            Ok(()) => Answer::TaskTaken,
            Err(error) if error.status() == Some(409) => Answer::TaskTaken,
            Err(error) if error.status() == Some(400) => Answer::Impossible(error.to_string()),
            Err(error) => not_there(&error),
        }
    }

    /// A task; `None` if the shim does not know it.
    pub(crate) async fn task(
        &self,
        at: &Address,
        id: &str,
    ) -> Result<Option<TaskInfo>, RemoteError> {
        self.remote.shim(at).task(id).await
    }

    /// Ends as soon as a task is no longer `known`, or after `wait`.
    pub(crate) async fn task_changed(
        &self,
        at: &Address,
        id: &str,
        known: TaskStatus,
        wait: Duration,
    ) -> bool {
        match self
            .remote
            .shim(at)
            .task_when_changed(id, known, wait)
            .await
        {
            Ok(info) => info.is_none_or(|info| info.status != known),
            Err(_) => false,
        }
    }

    /// Gives the runner its job and starts it.
    pub(crate) async fn start_runner(&self, at: &Address, port: u16, order: RunnerOrder) -> Answer {
        let runner = self.remote.runner(at, port);
        match runner.healthcheck().await {
            Ok(Some(_)) => {}
            Ok(None) => return Answer::NotUp,
            Err(error) => return not_there(&error),
        }
        let given = async {
            runner.submit(&order.submit).await?;
            for (id, tar) in order.archives {
                runner.upload_archive(&id, tar).await?;
            }
            if let Some(code) = order.code {
                runner.upload_code(code).await?;
            }
            runner.run().await
        };
        match given.await {
            Ok(started) => {
                let said = |text: String| (!text.is_empty()).then_some(text);
                let (working_dir, username) = started
                    .map(|it| (said(it.working_dir), said(it.username)))
                    .unwrap_or_default();
                Answer::Started {
                    working_dir,
                    username,
                }
            }
            // A runner that already runs the job: the answer to an earlier try was lost.
            Err(error) if error.status() == Some(409) => Answer::Started {
                working_dir: None,
                username: None,
            },
            Err(error) => not_there(&error),
        }
    }

    /// What happened in the job since a position; with `wait` the answer comes when there is something.
    pub(crate) async fn pull(
        &self,
        at: &Address,
        port: u16,
        since: i64,
        wait: Option<Duration>,
    ) -> Result<PullResponse, RemoteError> {
        self.remote.runner(at, port).pull(since, wait).await
    }

    /// Whether a replica answers a probe with success.
    pub(crate) async fn probe(
        &self,
        at: &Address,
        port: u16,
        request: ProbeRequest,
    ) -> Result<bool, RemoteError> {
        let status = self
            .remote
            .probe(at, &Endpoint::Port(port), request)
            .await?;
        Ok((200..300).contains(&status))
    }

    /// What a job uses; `None` if its machine does not tell.
    pub(crate) async fn metrics(
        &self,
        at: &Address,
        port: u16,
    ) -> Result<Option<Metrics>, RemoteError> {
        self.remote.runner(at, port).metrics().await
    }

    /// What the machine's GPU exporter says of a task; `None` if there is none.
    pub(crate) async fn task_metrics(
        &self,
        at: &Address,
        id: &str,
    ) -> Result<Option<String>, RemoteError> {
        self.remote.shim(at).task_metrics(id).await
    }

    /// Asks the runner to end the job.
    pub(crate) async fn stop(&self, at: &Address, port: u16) -> Result<(), RemoteError> {
        self.remote.runner(at, port).stop().await
    }

    /// Has the shim end a task at once and forget it. A task that it does not know is a success.
    pub(crate) async fn remove(
        &self,
        at: &Address,
        id: &str,
        reason: String,
        message: String,
    ) -> Result<(), RemoteError> {
        let shim = self.remote.shim(at);
        let order = TerminateRequest {
            termination_reason: reason,
            termination_message: message,
            timeout: 0,
        };
        if shim.terminate(id, &order).await?.is_some() {
            shim.remove(id).await?;
        }
        Ok(())
    }

    /// Whether the shim answers; its health report if it is asked for and there is one.
    pub(crate) async fn health(
        &self,
        at: &Address,
        report: bool,
    ) -> Result<Option<HealthReport>, RemoteError> {
        let shim = self.remote.shim(at);
        shim.healthcheck().await?;
        if !report {
            return Ok(None);
        }
        let status = |number: i64| match number {
            0 => HealthStatus::Healthy,
            20 => HealthStatus::Failure,
            _ => HealthStatus::Warning,
        };
        let Some(dcgm) = shim.instance_health().await?.dcgm else {
            return Ok(Some(HealthReport {
                status: HealthStatus::Healthy,
                is_measured: false,
                findings: Vec::new(),
            }));
        };
        let findings = dcgm.incidents.into_iter();
        Ok(Some(HealthReport {
            status: status(dcgm.overall_health),
            is_measured: true,
            findings: findings
                .map(|one| (status(one.health), one.error_message))
                .collect(),
        }))
    }

    /// Brings our agents to an own host. The connection with the user's key is not kept.
    pub(crate) async fn prepare(
        &self,
        at: &Address,
        setup: &HostSetup,
    ) -> Result<PreparedHost, HostError> {
        let prepared = self.remote.prepare_host(at, setup).await;
        self.remote.forget(at).await;
        prepared
    }

    /// Replaces the agents of an own host that are older than this server.
    pub(crate) async fn upgrade(
        &self,
        at: &Address,
        find_agent: &FindAgent,
    ) -> Result<Option<(String, &'static str)>, HostError> {
        self.remote.upgrade_host(at, find_agent).await
    }

    /// Takes everything of ours from an own host, and ends the connection. Another instance that has the host by now
    /// keeps it, and is the answer.
    pub(crate) async fn clear(
        &self,
        at: &Address,
        instance: &str,
        public_key: &str,
    ) -> Result<Option<String>, HostError> {
        let cleared = self.remote.clear_host(at, instance, public_key).await;
        self.remote.forget(at).await;
        cleared
    }

    /// Starts the shim of an own host that has booted without it; false for other machines and when that failed.
    pub(crate) async fn wake(&self, at: &Address) -> bool {
        let is_own = matches!(at, Address::Ssh(ssh) if ssh.shim_socket.is_some());
        if !is_own {
            return false;
        }
        match self.remote.wake_host(at).await {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, "the shim of a host was not started");
                false
            }
        }
    }

    /// The version of a machine's GPU driver; `None` where there is none or it is not told.
    pub(crate) async fn gpu_driver(&self, at: &Address) -> Option<String> {
        let info = self.remote.shim(at).instance_info().await.ok()?;
        info.gpu_driver_version
    }

    /// Ids of the tasks that a shim knows.
    pub(crate) async fn gateway_version(&self, at: &Address) -> Result<String, RemoteError> {
        self.remote.gateway_version(at).await
    }

    pub(crate) async fn tasks(&self, at: &Address) -> Result<Vec<String>, RemoteError> {
        Ok(self
            .remote
            .shim(at)
            .tasks()
            .await?
            .tasks
            .into_iter()
            .map(|task| task.id)
            .collect())
    }
}

/// What a machine says about its health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HealthReport {
    pub(crate) status: HealthStatus,
    /// Whether the machine has something that measures it.
    pub(crate) is_measured: bool,
    /// Worst first.
    pub(crate) findings: Vec<(HealthStatus, String)>,
}

/// The runner's port as the server reaches it.
pub(crate) fn runner_port(runtime: Option<&Arc<JobRuntimeData>>) -> u16 {
    runtime
        .and_then(|data| data.ports.as_ref())
        .and_then(|ports| ports.get(&RUNNER_PORT).copied())
        .unwrap_or(RUNNER_PORT)
}

/// A port of the job's container as its machine has it.
pub(crate) fn port_of(runtime: Option<&JobRuntimeData>, port: u16) -> u16 {
    runtime
        .and_then(|data| data.ports.as_ref())
        .and_then(|ports| ports.get(&port).copied())
        .unwrap_or(port)
}

/// What a call that got no answer says about the agent.
pub(crate) fn not_there(error: &RemoteError) -> Answer {
    if error.is_refused() {
        Answer::NotUp
    } else {
        Answer::Unreachable(error.to_string())
    }
}

/// The engine's view of a task.
pub(crate) fn task_state(info: &TaskInfo) -> TaskState {
    let ended = (info.status == TaskStatus::Terminated).then(|| {
        (
            info.termination_reason.clone(),
            info.termination_message.clone(),
        )
    });
    let ports = info.ports.as_ref().map(|ports| {
        ports
            .iter()
            .map(|port| (port.container, port.host))
            .collect::<BTreeMap<_, _>>()
    });
    TaskState {
        running: info.status == TaskStatus::Running,
        ended,
        ports,
    }
}

/// The engine's view of what a runner reported; whether its logs are stored is said by who stores them.
pub(crate) fn pulled(answer: &PullResponse, reports_connections: bool) -> Pulled {
    let end = answer.job_states.iter().rev().find(|state| {
        matches!(
            state.state,
            JobState::Done | JobState::Failed | JobState::Terminated
        )
    });
    Pulled {
        stored: false,
        news: !answer.job_logs.is_empty() || !answer.job_states.is_empty(),
        last_updated: answer.last_updated,
        no_connections_secs: reports_connections.then_some(answer.no_connections_secs),
        ended: end.map(|state| Ended {
            done: state.state == JobState::Done,
            reason: state.termination_reason.clone(),
            message: state.termination_message.clone(),
            exit_status: state.exit_status.map(i64::from),
        }),
    }
}

/// The archive bytes of a job, by archive id.
pub(crate) type Archives = Vec<(String, Bytes)>;

/// What is sent to a runner before it starts.
impl RunnerOrder {
    /// With these blobs.
    pub(crate) fn new(submit: SubmitRequest, archives: Archives, code: Option<Bytes>) -> Self {
        Self {
            submit,
            archives,
            code,
        }
    }
}

//! Tasks in containers, over Docker's API.

mod container_config;
mod pull;
mod tool;

use std::collections::HashMap;
use std::path::Path;

use bollard::Docker;
use bollard::errors::Error as ApiError;
use bollard::models::{
    ContainerInspectResponse, ContainerStateStatusEnum, ContainerSummary,
    ContainerSummaryStateEnum, PortMap,
};
use bollard::query_parameters::{
    CreateContainerOptions, ListContainersOptions, LogsOptions, RemoveContainerOptions,
    StopContainerOptions, WaitContainerOptions,
};
use dstack_agent_protocol::shim::{NetworkMode, PortMapping};
use futures_util::StreamExt;

pub(crate) use container_config::{HOME_LABEL, IS_TASK_LABEL, Request, TASK_ID_LABEL, gpu_ids};
pub(crate) use pull::{can_have_image, pull};
pub(crate) use tool::Tool;

const LOG_LINES_KEPT: usize = 5;
const NOT_FOUND: u16 = 404;
const NOT_MODIFIED: u16 = 304;

/// The engine.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    docker: Docker,
    /// Where the engine keeps images and containers.
    pub(crate) root_dir: String,
}

/// How a container is, seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContainerState {
    /// Made and not started.
    Created,
    /// Running, paused or being restarted.
    Alive,
    /// Over.
    Exited,
}

/// A container of a task, as the list of containers tells it.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) id: String,
    pub(crate) name: String,
    /// `None` if the label is missing.
    pub(crate) task_id: Option<String>,
    pub(crate) state: ContainerState,
    /// Sources of its mounts on this machine.
    pub(crate) mount_sources: Vec<String>,
}

impl Engine {
    /// Connects to the engine that `DOCKER_HOST` or the default socket names, and agrees on a version.
    pub(crate) async fn connect() -> Result<Self, ApiError> {
        let docker = Docker::connect_with_defaults()?.negotiate_version().await?;
        let info = docker.info().await?;
        let root_dir = info
            .docker_root_dir
            .unwrap_or_else(|| "/var/lib/docker".to_owned());
        Ok(Self { docker, root_dir })
    }

    pub(crate) fn api(&self) -> &Docker {
        &self.docker
    }

    /// Makes the container of `request` and returns its id.
    pub(crate) async fn create(
        &self,
        name: &str,
        request: &Request<'_>,
    ) -> Result<String, ApiError> {
        let options = CreateContainerOptions {
            name: Some(name.to_owned()),
            ..CreateContainerOptions::default()
        };
        let created = self
            .docker
            .create_container(Some(options), request.body())
            .await?;
        for warning in created.warnings {
            tracing::warn!(
                container.name = name,
                warning,
                "the engine warned about a container"
            );
        }
        Ok(created.id)
    }

    pub(crate) async fn start(&self, id: &str) -> Result<(), ApiError> {
        self.docker.start_container(id, None).await
    }

    /// The mapped ports of a container; none with host networking.
    pub(crate) async fn ports(
        &self,
        id: &str,
        network: NetworkMode,
    ) -> Result<Vec<PortMapping>, ApiError> {
        if network == NetworkMode::Host {
            return Ok(Vec::new());
        }
        Ok(ports_of(&self.docker.inspect_container(id, None).await?))
    }

    /// Stops a container, by force after `timeout_s`. One that is gone or has ended is fine.
    pub(crate) async fn stop(&self, id: &str, timeout_s: u32) -> Result<(), ApiError> {
        let options = StopContainerOptions {
            t: Some(i32::try_from(timeout_s).unwrap_or(i32::MAX)),
            ..StopContainerOptions::default()
        };
        accept(
            self.docker.stop_container(id, Some(options)).await,
            &[NOT_FOUND, NOT_MODIFIED],
        )
    }

    /// Removes a container and its anonymous volumes, running or not. One that is gone is fine.
    pub(crate) async fn remove(&self, id: &str) -> Result<(), ApiError> {
        let options = RemoveContainerOptions {
            v: true,
            force: true,
            ..RemoveContainerOptions::default()
        };
        accept(
            self.docker.remove_container(id, Some(options)).await,
            &[NOT_FOUND],
        )
    }

    /// All containers of tasks of the shim with this home, whatever their state.
    pub(crate) async fn list(&self, home: &Path) -> Result<Vec<Listed>, ApiError> {
        let filter = format!("{IS_TASK_LABEL}=true");
        let options = ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([("label".to_owned(), vec![filter])])),
            ..ListContainersOptions::default()
        };
        let containers = self.docker.list_containers(Some(options)).await?;
        Ok(containers
            .into_iter()
            .filter(|c| is_ours(c, home))
            .filter_map(listed)
            .collect())
    }

    pub(crate) async fn inspect(&self, id: &str) -> Result<ContainerInspectResponse, ApiError> {
        self.docker.inspect_container(id, None).await
    }

    /// How a container is just now, and its exit code if it is over.
    pub(crate) async fn state(&self, id: &str) -> Result<(ContainerState, i64), ApiError> {
        let state = self.inspect(id).await?.state.unwrap_or_default();
        let exit_code = state.exit_code.unwrap_or(-1);
        let state = match state.status {
            Some(ContainerStateStatusEnum::CREATED) => ContainerState::Created,
            Some(
                ContainerStateStatusEnum::RUNNING
                | ContainerStateStatusEnum::PAUSED
                | ContainerStateStatusEnum::RESTARTING,
            ) => ContainerState::Alive,
            _ => ContainerState::Exited,
        };
        Ok((state, exit_code))
    }

    /// Waits until a container is over; returns early if the engine does not answer.
    pub(crate) async fn wait(&self, id: &str) {
        let mut stream = self.docker.wait_container(id, None::<WaitContainerOptions>);
        // An exit code other than 0 comes as an error too; the caller looks at the state itself.
        drop(stream.next().await);
    }

    /// The last lines a container wrote, joined; empty if the engine does not tell.
    pub(crate) async fn last_log_lines(&self, id: &str) -> String {
        let options = LogsOptions {
            stdout: true,
            stderr: true,
            tail: LOG_LINES_KEPT.to_string(),
            ..LogsOptions::default()
        };
        let mut stream = self.docker.logs(id, Some(options));
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next().await {
            match chunk {
                Ok(chunk) => bytes.extend_from_slice(&chunk.into_bytes()),
                Err(err) => {
                    tracing::warn!(container.id = id, error = %err, "a container's log is not readable");
                    break;
                }
            }
        }
        last_lines(&String::from_utf8_lossy(&bytes))
    }
}

/// The last lines of `text` that go into a termination message.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    lines
        .get(lines.len().saturating_sub(LOG_LINES_KEPT)..)
        .unwrap_or_default()
        .join("\n")
}

/// The last lines of a file; empty if it cannot be read.
pub(crate) fn last_lines_of_file(path: &Path) -> String {
    std::fs::read(path)
        .map(|bytes| last_lines(&String::from_utf8_lossy(&bytes)))
        .unwrap_or_default()
}

fn accept(result: Result<(), ApiError>, fine: &[u16]) -> Result<(), ApiError> {
    match result {
        Err(ApiError::DockerResponseServerError { status_code, .. })
            if fine.contains(&status_code) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// Whether the engine says that there is no such container.
pub(crate) fn is_not_found(err: &ApiError) -> bool {
    matches!(
        err,
        ApiError::DockerResponseServerError {
            status_code: NOT_FOUND,
            ..
        }
    )
}

/// What the engine said, without the client's words around it.
pub(crate) fn message(err: &ApiError) -> String {
    match err {
        ApiError::DockerResponseServerError { message, .. } => message.clone(),
        ApiError::DockerStreamError { error } => error.clone(),
        other => other.to_string(),
    }
}

fn is_ours(container: &ContainerSummary, home: &Path) -> bool {
    let owner = container
        .labels
        .as_ref()
        .and_then(|labels| labels.get(HOME_LABEL));
    owner.is_none_or(|owner| Path::new(owner) == home)
}

fn listed(container: ContainerSummary) -> Option<Listed> {
    let name = container.names?.into_iter().next()?;
    let state = match container.state? {
        ContainerSummaryStateEnum::CREATED => ContainerState::Created,
        ContainerSummaryStateEnum::EXITED
        | ContainerSummaryStateEnum::DEAD
        | ContainerSummaryStateEnum::REMOVING => ContainerState::Exited,
        _ => ContainerState::Alive,
    };
    let mounts = container.mounts.unwrap_or_default();
    Some(Listed {
        id: container.id?,
        name: name.trim_start_matches('/').to_owned(),
        task_id: container.labels?.remove(TASK_ID_LABEL),
        state,
        mount_sources: mounts
            .into_iter()
            .filter_map(|mount| mount.source)
            .collect(),
    })
}

/// TCP ports bound on IPv4, by container port.
pub(crate) fn ports_of(container: &ContainerInspectResponse) -> Vec<PortMapping> {
    let empty = PortMap::new();
    let ports = container
        .network_settings
        .as_ref()
        .and_then(|settings| settings.ports.as_ref())
        .unwrap_or(&empty);
    let mut mappings: Vec<PortMapping> = ports
        .iter()
        .filter_map(|(port, bindings)| {
            let container = port.strip_suffix("/tcp")?.parse().ok()?;
            let binding = bindings
                .iter()
                .flatten()
                .find(|binding| !binding.host_ip.as_deref().unwrap_or_default().contains(':'))?;
            Some(PortMapping {
                host: binding.host_port.as_deref()?.parse().ok()?,
                container,
            })
        })
        .collect();
    // The runner's port first, as 10999 before 10022, whatever order the map has.
    mappings.sort_by_key(|mapping| std::cmp::Reverse(mapping.container));
    mappings
}

/// Makes the image of the tests if it is not there.
#[cfg(test)]
pub(crate) fn test_image() {
    let root = std::path::PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let script = root.join("../../tests/support/images/small.sh");
    let made = std::process::Command::new(script).output().unwrap();
    let text = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(
        made.status.success(),
        "this test needs a Docker engine: {text}"
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_tcp_ports_on_ipv4_are_reported() {
        let container = serde_json::from_value(json!({"NetworkSettings": {"Ports": {
            "10022/tcp": [{"HostIp": "::1", "HostPort": "1"}, {"HostIp": "127.0.0.1", "HostPort": "32771"}],
            "10999/tcp": [{"HostIp": "127.0.0.1", "HostPort": "32770"}],
            "53/udp": [{"HostIp": "127.0.0.1", "HostPort": "53"}],
            "80/tcp": null
        }}}))
        .unwrap();
        let expected = [
            PortMapping {
                host: 32770,
                container: 10999,
            },
            PortMapping {
                host: 32771,
                container: 10022,
            },
        ];
        assert_eq!(ports_of(&container), expected);
    }

    #[test]
    fn five_lines_are_kept() {
        assert_eq!(last_lines("1\n2\n3\r\n4\n5\n6\n"), "2\n3\n4\n5\n6");
        assert_eq!(last_lines("one"), "one");
        assert_eq!(last_lines(""), "");
    }
}

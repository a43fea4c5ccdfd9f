//! Short-lived containers with a program that the machine does not have itself, such as a GPU vendor's tool.

use std::cell::OnceCell;
use std::path::Path;
use std::time::Duration;

use bollard::models::{ContainerCreateBody, DeviceMapping, HostConfig};
use bollard::query_parameters::{CreateContainerOptions, CreateImageOptions, LogsOptions};
use futures_util::StreamExt;

use super::{ContainerState, Engine, is_not_found, message};

/// What is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tool<'a> {
    /// Image with a tag; pulled if it is not there.
    pub(crate) image: &'a str,
    /// Arguments of the image's entry point.
    pub(crate) arguments: &'a [&'a str],
    /// Device files of the machine that the tool needs.
    pub(crate) devices: &'a [&'a str],
}

impl Engine {
    /// Runs a tool to its end and gives what it printed. Nothing stays, also if it takes longer than `limit`.
    ///
    /// # Errors
    /// Why there is no output: no image, no start, another exit code than 0, the limit.
    pub(crate) async fn run_tool(&self, tool: Tool<'_>, limit: Duration) -> Result<String, String> {
        let container = OnceCell::new();
        let work = async {
            self.make_tool(tool, &container).await?;
            match container.get() {
                Some(id) => self.tool_output(id).await,
                None => Err("no container".to_owned()),
            }
        };
        let result = tokio::time::timeout(limit, work).await;
        if let Some(id) = container.get()
            && let Err(err) = self.remove(id).await
        {
            tracing::warn!(image = tool.image, error = %err, "the container of a tool stays");
        }
        result.unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs())))
    }

    async fn make_tool(&self, tool: Tool<'_>, container: &OnceCell<String>) -> Result<(), String> {
        match self.docker.inspect_image(tool.image).await {
            Ok(_) => {}
            Err(err) if is_not_found(&err) => self.pull_tool(tool.image).await?,
            Err(err) => return Err(message(&err)),
        }
        let devices = tool.devices.iter().filter(|path| Path::new(path).exists());
        let body = ContainerCreateBody {
            image: Some(tool.image.to_owned()),
            cmd: Some(
                tool.arguments
                    .iter()
                    .map(|word| (*word).to_owned())
                    .collect(),
            ),
            host_config: Some(HostConfig {
                devices: Some(
                    devices
                        .map(|path| DeviceMapping {
                            path_on_host: Some((*path).to_owned()),
                            path_in_container: Some((*path).to_owned()),
                            cgroup_permissions: Some("rwm".to_owned()),
                        })
                        .collect(),
                ),
                network_mode: Some("none".to_owned()),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let created = self
            .docker
            .create_container(None::<CreateContainerOptions>, body)
            .await
            .map_err(|err| message(&err))?;
        // Set once: this function is called once for a cell.
        container.set(created.id).ok();
        Ok(())
    }

    async fn pull_tool(&self, image: &str) -> Result<(), String> {
        tracing::info!(image, "pulling an image to list the GPUs with");
        let options = CreateImageOptions {
            from_image: Some(image.to_owned()),
            ..CreateImageOptions::default()
        };
        let mut stream = self.docker.create_image(Some(options), None, None);
        while let Some(event) = stream.next().await {
            event.map_err(|err| message(&err))?;
        }
        Ok(())
    }

    async fn tool_output(&self, id: &str) -> Result<String, String> {
        self.start(id).await.map_err(|err| message(&err))?;
        let code = loop {
            self.wait(id).await;
            match self.state(id).await.map_err(|err| message(&err))? {
                (ContainerState::Alive, _) => {}
                (_, code) => break code,
            }
        };
        if code != 0 {
            let lines = self.last_log_lines(id).await;
            return Err(format!("exit code {code}: {lines}"));
        }
        let options = LogsOptions {
            stdout: true,
            ..LogsOptions::default()
        };
        let mut stream = self.docker.logs(id, Some(options));
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next().await {
            bytes.extend_from_slice(&chunk.map_err(|err| message(&err))?.into_bytes());
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The image of the tests, whose entry point is empty.
    fn tool(arguments: &'static [&'static str]) -> Tool<'static> {
        Tool {
            image: "dstack-test/small:1",
            arguments,
            devices: &["/dev/null", "/dev/no-such-device"],
        }
    }

    #[tokio::test]
    async fn a_tool_gives_its_output_and_leaves_nothing() {
        crate::docker::test_image();
        let engine = Engine::connect().await.expect("a Docker engine");
        let limit = Duration::from_secs(60);
        let mark = format!("tool-{}", std::process::id());
        let printed = engine
            .run_tool(tool(&["/bin/sh", "-c", "echo err >&2; echo out"]), limit)
            .await;
        assert_eq!(printed.as_deref(), Ok("out\n"));
        let failed = engine
            .run_tool(tool(&["/bin/sh", "-c", "echo why >&2; exit 3"]), limit)
            .await;
        assert_eq!(failed.unwrap_err(), "exit code 3: why");
        let missing = Tool {
            image: "127.0.0.1:1/no/image:1",
            ..tool(&[])
        };
        assert!(engine.run_tool(missing, limit).await.is_err());
        let script = format!("sleep 1000; : {mark}");
        let hanging = ["/bin/sh", "-c", &script];
        let hanging = Tool {
            image: "dstack-test/small:1",
            arguments: &hanging,
            devices: &[],
        };
        let late = engine.run_tool(hanging, Duration::from_secs(3)).await;
        assert_eq!(late.unwrap_err(), "no answer within 3 s");
        let left = std::process::Command::new("docker")
            .args(["ps", "-a", "--no-trunc", "--format", "{{.Command}}"])
            .output()
            .unwrap();
        assert!(!String::from_utf8_lossy(&left.stdout).contains(&mark));
    }
}

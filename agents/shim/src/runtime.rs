//! Which runtime a task gets: the one of the settings, or the one its image allows.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::bail;
use dstack_agent_protocol::shim::TaskConfig;

use crate::args::RuntimeKind;
use crate::docker::{self, Engine};

/// How long engine and registry together may take to answer for an image.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// The runtimes of this shim.
#[derive(Debug)]
pub(crate) struct Runtimes {
    kind: RuntimeKind,
    /// Empty in the process runtime and, if both are allowed, until an engine answers for the first time.
    engine: OnceLock<Engine>,
}

impl Runtimes {
    pub(crate) async fn connect(kind: RuntimeKind) -> anyhow::Result<Self> {
        let engine = OnceLock::new();
        match kind {
            RuntimeKind::Process => {}
            RuntimeKind::Docker => match Engine::connect().await {
                Ok(found) => drop(engine.set(found)),
                Err(err) => bail!(
                    "no Docker engine answers ({err}): start one, or use --runtime process to run without containers"
                ),
            },
            RuntimeKind::Auto => match find_engine().await {
                Ok(found) => drop(engine.set(found)),
                Err(reason) => tracing::info!(reason, "tasks run as processes for now"),
            },
        }
        Ok(Self { kind, engine })
    }

    pub(crate) fn kind(&self) -> RuntimeKind {
        self.kind
    }

    /// The engine, whose containers may be there whatever the next task gets.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.engine.get()
    }

    /// Whether the task runs without a container.
    pub(crate) async fn is_process(&self, config: &TaskConfig) -> bool {
        match self.kind {
            RuntimeKind::Docker => return false,
            RuntimeKind::Process => return true,
            RuntimeKind::Auto => {}
        }
        let reason = match tokio::time::timeout(ANSWER_LIMIT, self.can_have_image(config)).await {
            Ok(Ok(())) => return false,
            Ok(Err(reason)) => reason,
            Err(_) => format!("no answer within {} s", ANSWER_LIMIT.as_secs()),
        };
        tracing::info!(
            task.id = config.id,
            image = config.image_name,
            reason,
            "Docker cannot have the image: the task runs as a process"
        );
        true
    }

    /// The error is the reason why not.
    async fn can_have_image(&self, config: &TaskConfig) -> Result<(), String> {
        let engine = match self.engine.get() {
            Some(engine) => engine,
            None => {
                let found = find_engine().await?;
                self.engine.get_or_init(|| found)
            }
        };
        docker::can_have_image(engine, config).await
    }
}

/// The engine, if one answers soon; one that hangs must not hold up what runs without it.
async fn find_engine() -> Result<Engine, String> {
    match tokio::time::timeout(ANSWER_LIMIT, Engine::connect()).await {
        Ok(Ok(engine)) => Ok(engine),
        Ok(Err(err)) => Err(format!("no Docker engine answers: {err}")),
        Err(_) => Err("the Docker engine does not answer in time".to_owned()),
    }
}

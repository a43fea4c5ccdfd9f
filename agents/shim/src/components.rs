//! The agents' own binaries on this machine: their state, and their replacement by newer ones.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use dstack_agent_kit::http::HttpError;
use dstack_agent_kit::stop::Stop;
use dstack_agent_protocol::shim::{Component, ComponentStatus, InstallRequest};
use dstack_agent_protocol::{RUNNER_SERVICE, SHIM_SERVICE};
use tokio::process::Command;
use tokio_util::task::TaskTracker;

use crate::args::Args;
use crate::download;

/// How long a binary may take to tell its version.
const VERSION_LIMIT: Duration = Duration::from_secs(10);
const BUSY_PAUSE: Duration = Duration::from_millis(20);
const FALLBACK_SHIM_PATH: &str = "/usr/local/bin/dstack-shim";

/// The runner and the shim on this machine.
#[derive(Debug)]
pub(crate) struct Components {
    runner: Arc<Entry>,
    shim: Arc<Entry>,
    installs: TaskTracker,
    stop: Stop,
}

#[derive(Debug)]
struct Entry {
    name: &'static str,
    path: PathBuf,
    state: Mutex<(ComponentStatus, String)>,
}

impl Components {
    /// Looks at both binaries; downloads the runner if it is absent and the settings say where from.
    pub(crate) async fn start(args: &Args, stop: &Stop) -> anyhow::Result<Self> {
        let runner = Entry::new(RUNNER_SERVICE, args.runner_binary_path.clone());
        if !args.runner_download_url.is_empty() && !runner.path.exists() {
            runner
                .replace(&args.runner_download_url)
                .await
                .context("the runner cannot be downloaded")?;
        }
        runner.check().await.context("the runner does not work")?;
        let own_path = args
            .shim_binary_path
            .clone()
            .or_else(|| std::env::current_exe().ok());
        let shim = Entry::new(
            SHIM_SERVICE,
            own_path.unwrap_or_else(|| FALLBACK_SHIM_PATH.into()),
        );
        shim.check()
            .await
            .context("the shim's own file does not work")?;
        Ok(Self {
            runner: Arc::new(runner),
            shim: Arc::new(shim),
            installs: TaskTracker::new(),
            stop: stop.clone(),
        })
    }

    pub(crate) fn list(&self) -> Vec<Component> {
        [&self.runner, &self.shim]
            .map(|entry| entry.component())
            .to_vec()
    }

    /// Starts a download in the background.
    pub(crate) fn install(&self, request: InstallRequest) -> Result<(), HttpError> {
        let entry = match request.name.as_str() {
            "" => return Err(HttpError::bad_request("empty name")),
            RUNNER_SERVICE => &self.runner,
            SHIM_SERVICE => &self.shim,
            _ => return Err(HttpError::bad_request("unknown component")),
        };
        if request.url.is_empty() {
            return Err(HttpError::bad_request("empty url"));
        }
        if !entry.begin_install() {
            return Err(HttpError::conflict("already installing"));
        }
        let (entry, stop) = (Arc::clone(entry), self.stop.clone());
        self.installs.spawn(async move {
            let replaced = tokio::select! {
                replaced = entry.replace(&request.url) => replaced,
                () = stop.requested() => Err(anyhow::anyhow!("the shim is stopped")),
            };
            if let Err(err) = replaced {
                let error = format!("{err:#}");
                tracing::error!(component = entry.name, error, "a component stays as it is");
            }
            if let Err(err) = entry.check().await {
                tracing::error!(component = entry.name, error = %err, "a component does not work");
            }
        });
        Ok(())
    }

    /// Waits until downloads under way have noticed the stop.
    pub(crate) async fn wait(&self, stop: &Stop) {
        self.installs.close();
        tokio::select! {
            () = self.installs.wait() => {}
            () = stop.forced() => {}
            // A download that hangs must not keep the shim from being restarted.
            () = tokio::time::sleep(dstack_agent_kit::http::GRACE) => {}
        }
    }
}

impl Entry {
    fn new(name: &'static str, path: PathBuf) -> Self {
        let state = Mutex::new((ComponentStatus::NotInstalled, String::new()));
        Self { name, path, state }
    }

    fn component(&self) -> Component {
        let (status, version) = self
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        Component {
            name: self.name.to_owned(),
            version,
            status,
        }
    }

    fn set(&self, status: ComponentStatus, version: String) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = (status, version);
    }

    fn begin_install(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0 == ComponentStatus::Installing {
            return false;
        }
        *state = (ComponentStatus::Installing, String::new());
        true
    }

    /// Downloads the file and puts it in place once it has told a version: a broken shim could never be replaced.
    async fn replace(&self, url: &str) -> anyhow::Result<()> {
        let fetched = download::fetch(url, &self.path).await?;
        version(self.name, fetched.path())
            .await
            .with_context(|| format!("what {url} gave does not work"))?;
        fetched.put_in_place()?;
        Ok(())
    }

    /// Asks the file for its version. An absent file is no error.
    async fn check(&self) -> anyhow::Result<()> {
        if !self.path.exists() {
            self.set(ComponentStatus::NotInstalled, String::new());
            return Ok(());
        }
        match version(self.name, &self.path).await {
            Ok(version) => {
                self.set(ComponentStatus::Installed, version);
                Ok(())
            }
            Err(err) => {
                self.set(ComponentStatus::Error, String::new());
                Err(err)
            }
        }
    }
}

async fn version(name: &str, path: &Path) -> anyhow::Result<String> {
    let output = tokio::time::timeout(VERSION_LIMIT, run(path))
        .await
        .with_context(|| format!("{} --version hangs", path.display()))?
        .with_context(|| format!("{} cannot be run", path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_version(name, &text)
        .with_context(|| format!("{} --version printed {text:?}", path.display()))
}

async fn run(path: &Path) -> io::Result<Output> {
    loop {
        let output = Command::new(path)
            .arg("--version")
            .kill_on_drop(true)
            .output()
            .await;
        match output {
            // A child that another thread has just forked still has the file open for writing, until it becomes its
            // program.
            Err(err) if err.kind() == io::ErrorKind::ExecutableFileBusy => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// The third word of `<name> version <version>`.
fn parse_version(name: &str, text: &str) -> Option<String> {
    match text.split_whitespace().collect::<Vec<_>>().as_slice() {
        [program, "version", version] if *program == name => Some((*version).to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_three_words() {
        let parse = |text| parse_version(RUNNER_SERVICE, text);
        assert_eq!(
            parse("dstack-runner version 0.22.5\n").as_deref(),
            Some("0.22.5")
        );
        for text in [
            "",
            "dstack-runner 0.22.5",
            "dstack-shim version 1",
            "dstack-runner version 1 2",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(
            parse_version(SHIM_SERVICE, crate::VERSION_LINE).as_deref(),
            Some(dstack_agent_protocol::COMPATIBLE_VERSION)
        );
    }
}

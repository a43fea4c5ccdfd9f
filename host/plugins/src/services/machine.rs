//! Host service `machine`: facts of this machine, and shims that outlive the server. For the backend `local` only.

mod facts;
mod image;
mod keeper;
mod shim;

use super::json;
use dstack_backend_types::{
    BackendError, ErrorKind,
    services::{FoundShim, ImageRuntime, MachineFacts, MachineRequest, ShimState},
};
use facts::Gpus;
use image::Images;
use shim::Agents;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// The words for this machine's processor in the folders of agents.
const ARCHITECTURES: &[&str] = if cfg!(target_arch = "aarch64") {
    &["arm64", "aarch64"]
} else {
    &["amd64", "x86_64"]
};

/// Where things of this machine are.
#[derive(Debug, Clone)]
pub struct MachineConfig {
    /// Homes of shims that are given by a relative name lie here; the empty name is this folder itself.
    pub shim_home: PathBuf,
    /// Folders of the agents' files, in order: each holds `<arch>/dstack-shim`, or `dstack-shim` itself.
    pub agents: Vec<PathBuf>,
    /// The Docker engine's socket.
    pub docker_socket: PathBuf,
}

impl MachineConfig {
    /// The usual places for a program in `exe_folder`.
    pub fn beside(exe_folder: &Path, shim_home: PathBuf) -> Self {
        Self {
            // Fails only for an empty path, which is then refused at the first use.
            shim_home: std::path::absolute(&shim_home).unwrap_or(shim_home),
            agents: vec![
                exe_folder.join("../lib/dstack/agents"),
                exe_folder.join("agents"),
                exe_folder.to_owned(),
            ],
            docker_socket: PathBuf::from("/var/run/docker.sock"),
        }
    }

    /// The file of an agent (`dstack-shim`, `dstack-runner`), absolute.
    pub fn agent(&self, name: &str) -> Option<PathBuf> {
        let names = |folder: &PathBuf| {
            let by_arch = ARCHITECTURES
                .iter()
                .map(|arch| folder.join(arch).join(name));
            by_arch.chain([folder.join(name)]).collect::<Vec<_>>()
        };
        let file = self
            .agents
            .iter()
            .flat_map(names)
            .find(|path| path.is_file())?;
        file.canonicalize().ok()
    }

    fn home(&self, home: &str) -> Result<PathBuf, BackendError> {
        let path = self.shim_home.join(home);
        let goes_up = path
            .components()
            .any(|part| part == std::path::Component::ParentDir);
        if !path.is_absolute() || goes_up {
            return Err(BackendError::invalid(format!(
                "the shim home {} is not absolute",
                path.display()
            )));
        }
        Ok(path)
    }
}

/// This machine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Machine {
    config: Arc<MachineConfig>,
    gpus: Arc<Gpus>,
    images: Arc<Images>,
}

impl Machine {
    /// For these places.
    pub fn new(config: MachineConfig) -> Self {
        Self {
            config: Arc::new(config),
            gpus: Arc::default(),
            images: Arc::default(),
        }
    }

    /// What this machine has; the disk is that of `home`.
    ///
    /// # Errors
    /// If the system's own tables cannot be read.
    pub async fn facts(&self, home: &str) -> Result<MachineFacts, BackendError> {
        facts::facts(&self.config, &self.gpus, &self.config.home(home)?).await
    }

    /// Starts the shim of a home, unless it runs: a keeper restarts it whenever it ends, and both outlive this process.
    ///
    /// # Errors
    /// If there is no shim to start, or the home cannot be made.
    pub async fn start_shim(
        &self,
        home: &str,
        flags: &[String],
    ) -> Result<ShimState, BackendError> {
        shim::start(&self.config.home(home)?, &self.agents()?, flags).await
    }

    fn agents(&self) -> Result<Agents, BackendError> {
        let agent = |name: &str| {
            self.config.agent(name).ok_or_else(|| {
                let folders: Vec<String> = self
                    .config
                    .agents
                    .iter()
                    .map(|f| f.display().to_string())
                    .collect();
                BackendError::new(
                    ErrorKind::Provisioning,
                    format!(
                        "no {name} in {}; run `cargo xtask plugins`",
                        folders.join(", ")
                    ),
                )
            })
        };
        Ok(Agents {
            shim: agent("dstack-shim")?,
            runner: agent("dstack-runner")?,
        })
    }

    /// How the shim of a home is.
    ///
    /// # Errors
    /// If the home makes no sense.
    pub async fn find_shim(&self, home: &str) -> Result<ShimState, BackendError> {
        Ok(shim::state(&self.config.home(home)?).await)
    }

    /// Ends the tasks of a shim, its keeper and itself. Success if there is none. A home that was given by a relative name is
    /// ours alone and is removed.
    ///
    /// # Errors
    /// `not_yet_terminated` if a process does not go away at once, `provisioning` if tasks are left and there is no shim to
    /// end them.
    pub async fn stop_shim(&self, home: &str) -> Result<ShimState, BackendError> {
        let path = self.config.home(home)?;
        let state = shim::stop(&path, || self.agents()).await?;
        if !home.is_empty() && Path::new(home).is_relative() {
            shim::remove_home(&path)?;
        }
        Ok(state)
    }

    /// The shims whose homes lie in the shim folder, and what is left of such.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list_shims(&self) -> Result<Vec<FoundShim>, BackendError> {
        shim::list(&self.config.shim_home)
    }

    /// What a job with this image would run in. Remembered for a minute.
    pub async fn image_runtime(&self, image: &str) -> ImageRuntime {
        let socket = &self.config.docker_socket;
        self.images.runtime(socket, image).await
    }

    pub(crate) async fn answer(&self, request: MachineRequest) -> Result<Vec<u8>, BackendError> {
        match request {
            MachineRequest::Facts { home } => json(&self.facts(&home).await?),
            MachineRequest::StartShim { home, flags } => {
                json(&self.start_shim(&home, &flags).await?)
            }
            MachineRequest::FindShim { home } => json(&self.find_shim(&home).await?),
            MachineRequest::StopShim { home } => json(&self.stop_shim(&home).await?),
            MachineRequest::ListShims => json(&self.list_shims()?),
            MachineRequest::ImageRuntime { image } => json(&self.image_runtime(&image).await),
        }
    }
}

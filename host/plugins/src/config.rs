//! What the caller decides: folders, isolation, limits, and the services that need other rooms.

use crate::{
    events::PluginEvent,
    services::{ExternalServices, HttpConfig, Variables, machine::MachineConfig},
    worker::{WorkerLimits, WorkerProgram},
};
use dstack_backend_catalog::CatalogConfig;
use dstack_backend_types::AgentUrls;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

/// Where a plugin's code runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// In the host's own process: fastest, but a crash of the plugin is a crash of the host.
    InProcess,
    /// In a child process: a crash, an exit or a hang of the plugin is an error of its calls.
    Process,
}

/// Everything [`Plugins::load`](crate::Plugins::load) needs to know.
#[derive(Debug, Clone)]
pub struct PluginsConfig {
    /// Searched in this order; the first folder that has a name wins. Folders that do not exist are skipped.
    pub folders: Vec<PathBuf>,
    /// What the operator set, by backend name. Without an entry a file whose hash stands in its folder's `plugins.lock` runs
    /// in process, any other in a child.
    pub isolation: BTreeMap<String, Isolation>,
    /// Bounds of calls.
    pub limits: Limits,
    /// The host's own version, told to plugins.
    pub host_version: String,
    /// This machine, for the backend `local`; `None` answers `unsupported`.
    pub machine: Option<MachineConfig>,
    /// Services that need other rooms.
    pub external: ExternalServices,
    /// Where prices come from, after the files in the folders.
    pub catalog: CatalogConfig,
    /// How requests of backends go out.
    pub http: HttpConfig,
    /// The server's environment, of which a backend gets what its manifest names; `None`: nothing.
    pub variables: Option<Arc<dyn Variables>>,
    /// Where machines download the agents from; `None`: nowhere.
    pub agents: Option<AgentUrls>,
    /// The program of child processes; by default this very one.
    pub worker: WorkerProgram,
    /// Told what happens to plugins; what it has no room for is dropped.
    pub events: Option<tokio::sync::mpsc::Sender<PluginEvent>>,
}

impl PluginsConfig {
    /// Defaults for these folders.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self {
            folders,
            isolation: BTreeMap::new(),
            limits: Limits::default(),
            host_version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: None,
            external: ExternalServices::default(),
            catalog: CatalogConfig {
                has_snapshot: true,
                ..CatalogConfig::default()
            },
            http: HttpConfig::default(),
            variables: None,
            agents: None,
            worker: WorkerProgram::default(),
            events: None,
        }
    }
}

/// Bounds of the calls of one backend.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Call threads, 1 to 256, made on demand. At most a quarter of them run `get_offers`, so that offers that hang never
    /// hold up a termination.
    pub threads: usize,
    /// Calls that may wait for a thread; more are refused at once.
    pub queue: usize,
    /// So many lost threads switch the backend off until the host restarts.
    pub lost_threads: usize,
    /// How long a call may go on after it was told to end, before its thread counts as lost.
    pub grace: Duration,
    /// How long a thread without work is kept.
    pub idle_thread: Duration,
    /// How long calls may take.
    pub deadlines: Deadlines,
    /// Bounds of a plugin's child process.
    pub worker: WorkerLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            threads: 16,
            queue: 64,
            lost_threads: 3,
            grace: Duration::from_millis(300),
            idle_thread: Duration::from_secs(30),
            deadlines: Deadlines::default(),
            worker: WorkerLimits::default(),
        }
    }
}

/// How long a call may take, waiting for a thread included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlines {
    /// `get_offers`. 30 s.
    pub offers: Duration,
    /// The configurator's methods and `health`. 30 s.
    pub validate: Duration,
    /// `update_provisioning_data` and other looks at one thing. 30 s.
    pub update: Duration,
    /// `terminate_instance` and other ends. 60 s.
    pub terminate: Duration,
    /// `create_instance`, `run_job`, `run_jobs`, volumes and placement groups. 120 s.
    pub create: Duration,
    /// Gateways and listing. 300 s.
    pub gateways: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            offers: Duration::from_secs(30),
            validate: Duration::from_secs(30),
            update: Duration::from_secs(30),
            terminate: Duration::from_secs(60),
            create: Duration::from_secs(120),
            gateways: Duration::from_secs(300),
        }
    }
}

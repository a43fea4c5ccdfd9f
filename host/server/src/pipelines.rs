//! The loops that make rows come true: thin shells around the engine's decisions.
//!
//! A step is load → plan → call → conclude → apply. No transaction is open during a call; what must be found again after
//! a crash is written before it. Deciding is the engine's, SQL the store's.

pub(crate) mod cleanup;
mod cloud_calls;
mod driver;
mod facts;
mod fleets;
mod gateway_calls;
mod gateway_replicas;
mod gateways;
mod instances;
mod job_logs;
mod jobs_running;
mod jobs_submitted;
mod jobs_terminating;
mod measure;
mod orphans;
mod own_hosts;
mod probes;
mod runner_orders;
mod runs;
mod side_resources;
mod stats;
mod turn;
mod upkeep;
mod volume_calls;
mod volumes;
mod wake;
mod watch;

use std::sync::Arc;

use dstack_api::config::RunConfiguration;
use dstack_api::runs::RunSpec;
use dstack_engine::view::{JobNetwork, Limits};
use dstack_store::Store;
use dstack_store::views::Known;
use jiff::Timestamp;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::agent_files::AgentFiles;
use crate::logs::Logs;
use crate::machines::Machines;
use crate::metrics::work::Happened;
use crate::ports::Clouds;
use crate::pulls::Pulls;
use crate::readers::Readers;
use crate::services::keyring::Keyring;
use crate::settings::Settings;
use crate::tasks::Tasks;

pub(crate) use stats::{BOUNDS_S, Counted, Stats};
pub use wake::Hints;

/// What a step may touch.
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) clouds: Arc<dyn Clouds>,
    pub(crate) machines: Machines,
    pub(crate) logs: Logs,
    pub(crate) keyring: Keyring,
    pub(crate) agents: AgentFiles,
    pub(crate) logins: own_hosts::Logins,
    pub(crate) upgraded: own_hosts::Upgraded,
    pub(crate) settings: Arc<Settings>,
    pub(crate) limits: Arc<Limits>,
    /// What views are filled with beside rows. The backends of a project are added by the steps, which may wait.
    pub(crate) known: Arc<Known>,
    pub(crate) hints: Hints,
    pub(crate) tasks: Tasks,
    /// Something was put into the cleanup queue.
    pub(crate) cleanup: Arc<Notify>,
    /// Replicas of services have begun to run.
    pub(crate) probes: Arc<Notify>,
    pub(crate) heart: driver::Heart,
    pub(crate) watches: watch::Watches,
    pub(crate) facts: facts::Facts,
    pub(crate) log_times: job_logs::LastTimes,
    pub(crate) pulls: Arc<Pulls>,
    pub(crate) readers: Arc<Readers>,
    pub(crate) stats: Stats,
    /// This server among those of the database, until it ends.
    pub(crate) replica: Uuid,
    pub(crate) happened: Arc<Happened>,
}

/// What the server hands to the pipelines at start.
pub(crate) struct Parts {
    pub(crate) store: Store,
    pub(crate) clouds: Arc<dyn Clouds>,
    pub(crate) machines: Machines,
    pub(crate) logs: Logs,
    pub(crate) keyring: Keyring,
    pub(crate) agents: AgentFiles,
    pub(crate) settings: Arc<Settings>,
    pub(crate) hints: Hints,
    pub(crate) tasks: Tasks,
    pub(crate) pulls: Arc<Pulls>,
    pub(crate) readers: Arc<Readers>,
    pub(crate) stats: Stats,
    pub(crate) happened: Arc<Happened>,
}

impl Context {
    fn new(parts: Parts) -> Self {
        let settings = Arc::clone(&parts.settings);
        let limits = Arc::new(Limits {
            offers_tried: settings.max_offers_tried,
            remove_containers: !settings.keep_shim_tasks,
            job_network: match settings.job_network_mode {
                1 => JobNetwork::HostForMultinode,
                3 => JobNetwork::Bridge,
                _ => JobNetwork::HostForWhole,
            },
            ..Limits::default()
        });
        let known = Known {
            limits: Arc::clone(&limits),
            defaults: Arc::new(crate::services::plans::job_defaults(&settings)),
            ..Known::default()
        };
        Self {
            store: parts.store,
            clouds: parts.clouds,
            machines: parts.machines,
            logs: parts.logs,
            keyring: parts.keyring,
            agents: parts.agents,
            logins: own_hosts::Logins::default(),
            upgraded: own_hosts::Upgraded::default(),
            settings,
            limits,
            known: Arc::new(known),
            hints: parts.hints,
            tasks: parts.tasks,
            cleanup: Arc::default(),
            probes: Arc::default(),
            heart: driver::Heart::default(),
            watches: watch::Watches::default(),
            facts: facts::Facts::default(),
            log_times: job_logs::LastTimes::default(),
            pulls: parts.pulls,
            readers: parts.readers,
            stats: parts.stats,
            replica: Uuid::new_v4(),
            happened: parts.happened,
        }
    }

    /// The time of decisions and leases: the database's where several servers share one, cut to what rows keep.
    pub(crate) fn now(&self) -> Timestamp {
        self.store.now()
    }
}

/// The word for the kind of a run.
pub(crate) const fn run_type(spec: &RunSpec) -> &'static str {
    match spec.configuration {
        RunConfiguration::Task(_) => "task",
        RunConfiguration::Service(_) => "service",
        RunConfiguration::DevEnvironment(_) => "dev-environment",
    }
}

/// Starts every loop.
pub(crate) fn start(parts: Parts) {
    let cx = Arc::new(Context::new(parts));
    let tasks = cx.tasks.clone();
    tasks.spawn("pipeline runs", driver::run::<runs::Runs>(Arc::clone(&cx)));
    tasks.spawn(
        "pipeline jobs_submitted",
        driver::run::<jobs_submitted::JobsSubmitted>(Arc::clone(&cx)),
    );
    tasks.spawn(
        "pipeline jobs_running",
        driver::run::<jobs_running::JobsRunning>(Arc::clone(&cx)),
    );
    tasks.spawn(
        "pipeline jobs_terminating",
        driver::run::<jobs_terminating::JobsTerminating>(Arc::clone(&cx)),
    );
    tasks.spawn(
        "pipeline instances",
        driver::run::<instances::Instances>(Arc::clone(&cx)),
    );
    tasks.spawn(
        "pipeline fleets",
        driver::run::<fleets::Fleets>(Arc::clone(&cx)),
    );
    tasks.spawn(
        "pipeline volumes",
        driver::run::<volumes::Volumes>(Arc::clone(&cx)),
    );
    tasks.spawn(
        "pipeline gateways",
        driver::run::<gateways::Gateways>(Arc::clone(&cx)),
    );
    tasks.spawn(
        "pipeline gateway_replicas",
        driver::run::<gateway_replicas::GatewayReplicas>(Arc::clone(&cx)),
    );
    tasks.spawn("cleanup", cleanup::run(Arc::clone(&cx)));
    tasks.spawn("probes", probes::run(Arc::clone(&cx)));
    tasks.spawn("orphans", orphans::run(Arc::clone(&cx)));
    tasks.spawn("measure", measure::run(Arc::clone(&cx)));
    tasks.spawn("upkeep", upkeep::run(Arc::clone(&cx)));
    tasks.spawn("heartbeat", driver::heartbeat(cx));
}

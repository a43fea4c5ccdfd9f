//! Everything the routes and pipelines share.

use std::ops::Deref;
use std::sync::Arc;

use dstack_engine::changes::Hint;
use dstack_engine::ids::Ids;
use dstack_plugins::Plugins;
use dstack_store::Store;
use jiff::Timestamp;
use uuid::Uuid;

use crate::agent_files::AgentFiles;
use crate::compat::{self, version::Version};
use crate::logs::{DatabaseLogs, FileLogs, Logs};
use crate::metrics::Metrics;
use crate::metrics::work::Happened;
use crate::pipelines::Stats;
use crate::ports::Clouds;
use crate::pulls::Pulls;
use crate::readers::Readers;
use crate::services::backends::Backends;
use crate::services::fleets::Fleets;
use crate::services::gateways::Gateways;
use crate::services::keyring::Keyring;
use crate::services::plans::Planner;
use crate::services::projects::Projects;
use crate::services::repos::Repos;
use crate::services::runs::Runs;
use crate::services::secrets::Secrets;
use crate::services::templates::Templates;
use crate::services::users::Users;
use crate::services::volumes::Volumes;
use crate::settings::Settings;
use crate::start::Sections;

/// The time, in the precision of the database.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    // Cutting fractions keeps the time in range.
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

/// Chance for one request.
pub(crate) fn chance() -> Ids {
    let (a, b) = (Uuid::new_v4().as_u64_pair(), Uuid::new_v4().as_u64_pair());
    Ids::new([a.0, a.1, b.0, b.1])
}

/// What people may do who are no admins (`default_permissions` of `config.yml`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions {
    /// Make projects.
    pub non_admins_create_projects: bool,
    /// Make and change SSH fleets.
    pub non_admins_manage_ssh_fleets: bool,
    /// Project managers may read and change secrets.
    pub managers_manage_secrets: bool,
}

impl Default for Permissions {
    fn default() -> Self {
        Self {
            non_admins_create_projects: true,
            non_admins_manage_ssh_fleets: true,
            managers_manage_secrets: false,
        }
    }
}

/// Wakes pipelines after a commit; in tests it may do nothing.
pub type HintSink = Arc<dyn Fn(&[Hint]) + Send + Sync>;

/// What an [`App`] is made of.
pub struct Parts {
    /// Settings.
    pub settings: Settings,
    /// Database.
    pub store: Store,
    /// Encryption.
    pub keyring: Keyring,
    /// Rights of people who are no admins.
    pub permissions: Permissions,
    /// Backend plugins, for the list and for configurations.
    pub plugins: Plugins,
    /// The projects' backends as the store and `config.yml` have them.
    pub backends: Arc<Backends>,
    /// The backends of `config.yml`.
    pub(crate) sections: Arc<Sections>,
    /// The backends of all projects, open for calls.
    pub clouds: Arc<dyn Clouds>,
    /// The agents' files.
    pub(crate) agents: AgentFiles,
    /// What the pipelines count.
    pub(crate) stats: Stats,
    /// Wakes pipelines.
    pub hints: HintSink,
}

/// The server's state. Clones share it.
#[derive(Clone)]
pub struct App(Arc<State>);

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("App")
    }
}

/// The inside of an [`App`].
pub struct State {
    /// Settings.
    pub settings: Settings,
    /// Database.
    pub store: Store,
    /// Encryption.
    pub keyring: Keyring,
    /// Logs of jobs.
    pub logs: Logs,
    /// The backends of all projects.
    pub clouds: Arc<dyn Clouds>,
    pub(crate) plugins: Plugins,
    pub(crate) agents: AgentFiles,
    pub(crate) metrics: Metrics,
    pub(crate) stats: Stats,
    /// What pipelines count for Prometheus.
    pub(crate) happened: Arc<Happened>,
    pub(crate) backends: Arc<Backends>,
    pub(crate) sections: Arc<Sections>,
    pub(crate) permissions: Permissions,
    pub(crate) version: Version,
    pub(crate) users: Arc<Users>,
    pub(crate) projects: Projects,
    pub(crate) secrets: Secrets,
    pub(crate) repos: Repos,
    pub(crate) runs: Runs,
    pub(crate) fleets: Fleets,
    pub(crate) gateways: Gateways,
    pub(crate) volumes: Volumes,
    pub(crate) planner: Arc<Planner>,
    pub(crate) pulls: Arc<Pulls>,
    pub(crate) readers: Arc<Readers>,
    pub(crate) templates: Templates,
}

impl Deref for App {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

/// Files of this machine are no use to the other servers of a shared database.
fn logs(store: &Store, settings: &Settings) -> Logs {
    if store.is_shared() && settings.logs_dir.is_none() {
        Logs::Database(DatabaseLogs::new(store.clone()))
    } else {
        Logs::Files(FileLogs::new(settings.logs_root()))
    }
}

impl App {
    /// Puts the services together.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts {
            settings,
            store,
            keyring,
            permissions,
            plugins,
            backends,
            sections,
            clouds,
            agents,
            stats,
            hints,
        } = parts;
        let users = Arc::new(Users::new(store.clone(), keyring.clone(), permissions));
        let planner = Arc::new(Planner::new(
            store.clone(),
            clouds.clone(),
            users.clone(),
            keyring.clone(),
            settings.clone(),
        ));
        let pulls = Arc::new(Pulls::default());
        Self(Arc::new(State {
            logs: logs(&store, &settings),
            version: compat::server_version(&settings.version),
            projects: Projects::new(
                store.clone(),
                keyring.clone(),
                permissions,
                settings.user_project_quota,
                users.clone(),
            ),
            secrets: Secrets::new(store.clone(), keyring.clone()),
            repos: Repos::new(store.clone(), keyring.clone(), settings.code_upload_limit),
            runs: Runs::new(
                store.clone(),
                planner.clone(),
                hints.clone(),
                settings.sshproxy.clone(),
                pulls.clone(),
            ),
            pulls,
            readers: Arc::default(),
            gateways: Gateways::new(
                store.clone(),
                clouds.clone(),
                hints.clone(),
                settings.gateway_max_replicas,
            ),
            volumes: Volumes::new(store.clone(), hints.clone()),
            fleets: Fleets::new(
                store.clone(),
                keyring.clone(),
                planner.clone(),
                permissions,
                hints,
            ),
            templates: Templates::new(
                settings.server_dir.join("data").join("templates"),
                settings.templates_repo.clone(),
            ),
            planner,
            users,
            agents,
            settings,
            store,
            keyring,
            clouds,
            metrics: Metrics::new(&plugins, stats.clone()),
            stats,
            happened: Arc::default(),
            plugins,
            backends,
            sections,
            permissions,
        }))
    }
}

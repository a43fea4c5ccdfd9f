//! From settings to a running server: configuration, database, first user and project, routes, loops.

mod config;
mod host_services;
mod replicas;
mod sections;

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dstack_backend_types::Secret;
use dstack_plugins::{Plugins, PluginsConfig};
use dstack_remote::Remote;
use dstack_store::{Address, Database, DbError, Store, StoreConfig};
use tokio::net::TcpListener;

use crate::agent_files::AgentFiles;
use crate::app::{App, HintSink, Parts};
use crate::clouds::PluginClouds;
use crate::connections;
use crate::error::ApiError;
use crate::machines::Machines;
use crate::pipelines::{self, Hints};
use crate::plugin_care;
use crate::ports::Clouds;
use crate::routes;
use crate::services::backends::Backends;
use crate::services::host_keys::StoredHostKeys;
use crate::services::keyring::KeyringError;
use crate::settings::Settings;
use crate::tasks::Tasks;
pub(crate) use sections::Sections;

/// Name of the project that the first start makes.
pub const FIRST_PROJECT: &str = "main";

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// `config.yml` makes no sense; the text has positions.
    #[error("{0}")]
    Config(String),
    /// A file cannot be read or written.
    #[error("cannot use {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The database.
    #[error("cannot open the database")]
    Database(#[from] DbError),
    /// An encryption key.
    #[error("cannot use the encryption keys of config.yml")]
    Keys(#[from] KeyringError),
    /// The first user or project.
    #[error("cannot prepare the database: {0}")]
    Prepare(String),
    /// The address.
    #[error("cannot listen on {address}{}", listen_hint(source))]
    Listen {
        /// Which.
        address: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

fn listen_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => "; is another server running there?",
        std::io::ErrorKind::AddrNotAvailable => {
            "; the address is not this machine's, 0.0.0.0 means all of its addresses"
        }
        std::io::ErrorKind::PermissionDenied => "; ports below 1024 are for root",
        _ => "",
    }
}

impl From<ApiError> for StartError {
    fn from(error: ApiError) -> Self {
        Self::Prepare(error.to_string())
    }
}

/// A server that listens, and answers once [`Server::run`] is called.
pub struct Server {
    app: App,
    listener: TcpListener,
    address: SocketAddr,
    url: String,
    admin_token: Secret<String>,
    tasks: Tasks,
    plugins: Plugins,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

fn agent_files(plugins: &PluginsConfig) -> AgentFiles {
    let machine = plugins.machine.as_ref();
    AgentFiles::new(machine.map(|it| it.agents.clone()).unwrap_or_default())
}

/// Adds the folders of `config.yml`, right after the folder of the variable, if there is one.
fn add_folders(plugins: &mut PluginsConfig, settings: &Settings, folders: &[PathBuf]) {
    let second = usize::from(settings.plugin_dir.is_some()).min(plugins.folders.len());
    plugins
        .folders
        .splice(second..second, folders.iter().cloned());
}

impl Server {
    /// Opens the database, makes what the first start makes, takes the address, and starts the loops.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub async fn start(
        mut settings: Settings,
        mut plugins: PluginsConfig,
    ) -> Result<Self, StartError> {
        let address = format!("{}:{}", settings.host, settings.port);
        let bound = TcpListener::bind(&address).await;
        let listener = bound.map_err(|source| StartError::Listen {
            address: address.clone(),
            source,
        })?;
        let local = listener
            .local_addr()
            .map_err(|source| StartError::Listen { address, source })?;
        let url = settings
            .url
            .clone()
            .unwrap_or_else(|| format!("http://{}:{}", settings.host, local.port()));
        settings.url.get_or_insert_with(|| url.clone());
        settings.port = local.port();

        let config = config::load_or_create(&settings)?;
        let store = Store::open(store_config(&settings)?)?;
        if store.is_shared() {
            // Its machines are out of the other servers' reach.
            settings.local_backend.get_or_insert(false);
        }
        plugins.isolation.extend(config.isolation.clone());
        add_folders(&mut plugins, &settings, &config.folders);
        let agents = agent_files(&plugins);
        let host_keys = StoredHostKeys::load(store.clone()).await?;
        host_services::add(&mut plugins, &settings, &store, host_keys.clone());
        let (told, plugin_events) = plugin_care::events_channel();
        plugins.events = Some(told);
        let plugins = Plugins::load(plugins);
        let changes = plugins.changes();
        let keyring = config.keyring.clone();
        let backends = Arc::new(Backends::new(
            store.clone(),
            keyring.clone(),
            plugins.clone(),
            settings.local_backend,
            !settings.default_creds_disabled,
        ));
        let sections = Arc::new(Sections::new(
            settings.clone(),
            backends.clone(),
            plugins.clone(),
        ));
        let clouds: Arc<dyn Clouds> =
            Arc::new(PluginClouds::new(plugins.clone(), backends.clone()));
        let hints = Hints::of(store.clone());
        replicas::listen(&store, &hints, &backends, &host_keys);
        let sink: HintSink = {
            let hints = hints.clone();
            Arc::new(move |sent| hints.send(sent))
        };
        let stats = pipelines::Stats::default();
        let app = App::new(Parts {
            settings,
            store,
            keyring,
            permissions: config.permissions,
            plugins: plugins.clone(),
            backends,
            sections: sections.clone(),
            clouds,
            agents: agents.clone(),
            stats: stats.clone(),
            hints: sink,
        });
        let admin_token = prepare(&app, config).await?;
        let tasks = Tasks::default();
        sections.follow(changes, &tasks);
        plugin_care::start(&app, plugin_events, &tasks);
        if !app.settings.background_disabled {
            let remote = Remote::new(dstack_remote::Config {
                connect_timeout: app.settings.ssh_connect_timeout,
                host_keys,
                agent: app.settings.ssh_agent.clone(),
                ..dstack_remote::Config::default()
            });
            pipelines::start(pipelines::Parts {
                store: app.store.clone(),
                clouds: app.clouds.clone(),
                machines: Machines::new(remote),
                logs: app.logs.clone(),
                keyring: app.keyring.clone(),
                agents,
                settings: Arc::new(app.settings.clone()),
                hints,
                tasks: tasks.clone(),
                pulls: app.pulls.clone(),
                readers: app.readers.clone(),
                stats,
                happened: app.happened.clone(),
            });
        }
        Ok(Self {
            app,
            listener,
            address: local,
            url,
            admin_token,
            tasks,
            plugins,
        })
    }

    /// The address that others use.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The admin's token.
    #[must_use]
    pub const fn admin_token(&self) -> &Secret<String> {
        &self.admin_token
    }

    /// The version it acts as.
    #[must_use]
    pub fn version(&self) -> String {
        self.app.version.to_string()
    }

    /// Answers requests until `stop` ends, then lets requests and steps end within the drain time. Tasks on machines
    /// live on.
    ///
    /// # Errors
    /// The listening socket failed.
    pub async fn run(self, stop: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        let Self {
            app,
            listener,
            tasks,
            plugins,
            ..
        } = self;
        let drain = app.settings.drain;
        let router = routes::router(app);
        let loops = tasks.clone();
        let stop = async move {
            stop.await;
            tracing::info!("stopping");
            loops.stop();
        };
        connections::serve(listener, router, stop, drain).await;
        tasks.stop();
        if !tasks.wait(drain.min(Duration::from_secs(10))).await {
            tracing::warn!("some steps did not end in time; they are done again at the next start");
        }
        plugins.shut_down().await;
        Ok(())
    }
}

fn store_config(settings: &Settings) -> Result<StoreConfig, DbError> {
    let mut config = match &settings.database_url {
        Some(url) => StoreConfig::from_url(url.expose())?,
        None => StoreConfig::file(settings.sqlite_path()),
    };
    let how = &settings.database_use;
    if let Database::Postgres(_) = config.database {
        // One connection writes, one is for news.
        config.readers = how.connections - 2;
        let direct = how.direct_url.as_ref();
        config.direct = direct.map(|url| Address::parse(url.expose())).transpose()?;
    }
    Ok(StoreConfig {
        keeps_events: settings.events_ttl.is_some(),
        command_timeout: how.command_timeout,
        ..config
    })
}

/// The admin, the first project and what `config.yml` names; all of it is there already after the first start. Answers the
/// admin's token.
async fn prepare(app: &App, config: config::Loaded) -> Result<Secret<String>, StartError> {
    let (admin, token) = app
        .users
        .ensure_admin(app.settings.admin_token.clone())
        .await?;
    app.projects.ensure(FIRST_PROJECT, admin.id).await?;
    let mut rows = HashMap::new();
    for project in &config.projects {
        let row = app.projects.ensure(&project.name, admin.id).await?;
        rows.insert(project.name.clone(), row);
    }
    app.sections.begin(config, rows).await?;
    Ok(token)
}

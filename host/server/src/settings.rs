//! The server's settings: every environment variable is read here, once.
//!
//! "Set" means any value, even an empty one. Sizes are bytes, times are seconds.

mod backends;
mod catalog;
mod database;
mod kept;
mod outside;

pub use backends::{AgentDownloads, BackendCalls};
pub use database::DatabaseUse;
pub use kept::Kept;
pub use outside::{
    AwsAccess, AwsEndpoints, BlobPlace, Elastic, FluentBit, FluentProtocol, GoogleAccess, LogPlace,
    Outside,
};

use std::path::PathBuf;
use std::time::Duration;

use dstack_backend_catalog::CatalogConfig;
use dstack_backend_types::Secret;

/// Where variables come from; a map in tests.
pub trait Vars {
    /// The value of a variable, if it is set to valid text.
    fn get(&self, name: &str) -> Option<String>;
}

/// The process's own environment.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessVars;

impl Vars for ProcessVars {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the environment"
    )]
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

impl Vars for std::collections::BTreeMap<String, String> {
    fn get(&self, name: &str) -> Option<String> {
        Self::get(self, name).cloned()
    }
}

/// A variable whose value makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?} is not {wanted}")]
pub struct SettingsError {
    /// The variable.
    pub name: &'static str,
    /// What it says.
    pub value: String,
    /// What it should say.
    pub wanted: &'static str,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people, with colours on a terminal (`rich`).
    Rich,
    /// For people, plain (`standard`).
    Standard,
    /// One JSON object a line (`json`).
    Json,
}

/// Login for images without a registry in their name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultRegistry {
    /// `DSTACK_SERVER_DEFAULT_DOCKER_REGISTRY`.
    pub host: String,
    /// `DSTACK_SERVER_DEFAULT_DOCKER_REGISTRY_USERNAME`.
    pub username: Option<String>,
    /// `DSTACK_SERVER_DEFAULT_DOCKER_REGISTRY_PASSWORD`.
    pub password: Option<Secret<String>>,
}

/// The images that jobs get when they name none, and what is inside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseImages {
    /// `DSTACK_DOCKER_BASE_IMAGE` (`dstackai/base`).
    pub image: String,
    /// `DSTACK_DOCKER_BASE_IMAGE_VERSION` (`0.16`).
    pub version: String,
    /// `DSTACK_DOCKER_BASE_IMAGE_UBUNTU_VERSION` (`24.04`).
    pub ubuntu_version: String,
    /// `DSTACK_DIND_IMAGE` (`dstackai/dind`).
    pub dind: String,
}

/// SSH proxy in front of jobs; both halves of its setting are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshProxy {
    /// `DSTACK_SERVER_SSHPROXY_ADDRESS`: host part.
    pub host: String,
    /// Port part; none is 22.
    pub port: Option<u16>,
    /// `DSTACK_SSHPROXY_API_TOKEN`.
    pub token: Secret<String>,
    /// `DSTACK_SERVER_SSHPROXY_ENFORCED`: the proxy is the only way to a job.
    pub enforced: bool,
}

/// Every setting of the server.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `HOME`: what `~` stands for in `config.yml`.
    pub home: PathBuf,
    /// `DSTACK_SERVER_DIR` (`~/.dstack/server`): `config.yml` and `data/`.
    pub server_dir: PathBuf,
    /// `DSTACK_DATABASE_URL`; none is the SQLite file `<dir>/data/sqlite.db`.
    pub database_url: Option<Secret<String>>,
    /// How PostgreSQL is used.
    pub database_use: DatabaseUse,
    /// `DSTACK_SERVER_HOST` (127.0.0.1): address to listen on.
    pub host: String,
    /// `DSTACK_SERVER_PORT` (3000): port to listen on; 0 takes a free one.
    pub port: u16,
    /// `DSTACK_SERVER_URL`: address that others use; none is where the server listens.
    pub url: Option<String>,
    /// `DSTACK_SERVER_ADMIN_TOKEN`: token of `admin` when it is created; none makes a random one.
    pub admin_token: Option<Secret<String>>,
    /// `DSTACK_SERVER_ROOT_LOG_LEVEL` (error): logs of libraries.
    pub root_log_level: String,
    /// `DSTACK_SERVER_LOG_FORMAT` (rich).
    pub log_format: LogFormat,
    /// `DSTACK_SERVER_CONFIG_DISABLED`: `config.yml` is neither read nor written.
    pub config_disabled: bool,
    /// `DSTACK_SERVER_BACKGROUND_PROCESSING_DISABLED`: this replica only answers requests.
    pub background_disabled: bool,
    /// `DSTACK_SERVER_EXECUTOR_MAX_WORKERS` (16): threads for blocking work beside the workers, made on demand; backends
    /// have their own.
    pub max_blocking_threads: usize,
    /// `DSTACK_UPDATE_DEFAULT_PROJECT` yes, `DSTACK_DO_NOT_UPDATE_DEFAULT_PROJECT` no: answer to the question.
    pub update_default_project: Option<bool>,
    /// `DSTACK_VERSION` (0.22.5): version the server acts as.
    pub version: String,

    /// `DSTACK_SERVER_MAX_OFFERS_TRIED` (25).
    pub max_offers_tried: usize,
    /// `DSTACK_SERVER_MAX_PROBES_PER_JOB` (10).
    pub max_probes_per_job: usize,
    /// `DSTACK_SERVER_MAX_PROBE_TIMEOUT` (300), seconds.
    pub max_probe_timeout: u32,
    /// `DSTACK_SERVER_CODE_UPLOAD_LIMIT` (2 MiB): a diff or an archive; none when set to 0.
    pub code_upload_limit: Option<u64>,
    /// `DSTACK_SERVER_LOG_QUOTA_PER_JOB_HOUR` (50 MiB): bytes per job and hour; none when set to 0.
    pub log_quota_per_job_hour: Option<u64>,
    /// `DSTACK_USER_PROJECT_DEFAULT_QUOTA` (10): projects a user may own.
    pub user_project_quota: u32,
    /// `DSTACK_SERVER_EVENTS_TTL_SECONDS` (30 days); none stores no events.
    pub events_ttl: Option<Duration>,
    /// How long what is measured is kept.
    pub kept: Kept,
    /// `DSTACK_SERVER_EXPORTS`: `0` switches exports off, as in the reference; any other value on; unset: on.
    pub exports: bool,
    /// `DSTACK_SERVER_SSH_CONNECT_TIMEOUT` (3 s): to instances.
    pub ssh_connect_timeout: Duration,

    /// `DSTACK_DEFAULT_CREDS_DISABLED`: backends may not use the server's own cloud credentials.
    pub default_creds_disabled: bool,
    /// `DSTACK_FORBID_SERVICES_WITHOUT_GATEWAY`.
    pub forbid_services_without_gateway: bool,
    /// `DSTACK_SERVER_ORPHAN_CLEANUP_INTERVAL`: seconds between two looks at the providers' accounts for what no row of this
    /// server owns. Default 600; 0 looks never, for accounts that several servers share.
    pub orphan_interval: Option<Duration>,
    /// `DSTACK_SERVER_ORPHAN_MIN_AGE`: seconds for which such a thing is left alone. Default 900.
    pub orphan_age: Duration,
    /// `DSTACK_SERVER_GATEWAY_MAX_REPLICAS`: most machines of one gateway. Default 9.
    pub gateway_max_replicas: u32,
    /// `SSH_AUTH_SOCK`: the SSH agent for own hosts of which only a public key is given.
    pub ssh_agent: Option<PathBuf>,
    /// `DSTACK_SERVER_IDE_MIRROR_URL`: where dev environments get editors' servers from. None: the makers' sites.
    pub ide_mirror: Option<String>,
    /// `DSTACK_FORBID_DSTACK_IN_RUNS`.
    pub forbid_dstack_in_runs: bool,
    /// `DSTACK_SERVER_JOB_NETWORK_MODE` (2): 1 host only for multi-node, 2 host when the job has the whole instance,
    /// 3 always bridge.
    pub job_network_mode: u8,
    /// `DSTACK_SERVER_KEEP_SHIM_TASKS`: finished tasks stay in the shim.
    pub keep_shim_tasks: bool,
    /// Login for images without a registry in their name.
    pub default_registry: Option<DefaultRegistry>,
    /// `DSTACK_SERVER_TEMPLATES_REPO`.
    pub templates_repo: Option<String>,
    /// The proxy in front of jobs.
    pub sshproxy: Option<SshProxy>,
    /// Images of jobs that name none.
    pub images: BaseImages,

    /// `DSTACK_LOCAL_BACKEND_ENABLED`: `0` is off, any other value on; unset: on when no other backend is configured.
    pub local_backend: Option<bool>,
    /// `DSTACK_ENABLE_PROMETHEUS_METRICS`: `GET /metrics` answers.
    pub prometheus_metrics: bool,
    /// `DSTACK_PROMETHEUS_AUTH_TOKEN`: the token that it wants; none lets everybody in.
    pub prometheus_token: Option<Secret<String>>,
    /// `DSTACK_PLUGIN_DIR`: first folder in which backends are looked for.
    pub plugin_dir: Option<PathBuf>,
    /// `DSTACK_SERVER_DRAIN` (60 s): how long requests and steps may take to end at a stop.
    pub drain: Duration,
    /// `DSTACK_SERVER_LOGS_SHARED_DIR`: folder of the log files when several replicas share one; none is below `dir`, or with
    /// PostgreSQL the database.
    pub logs_dir: Option<PathBuf>,
    /// Where machines download the agents from, when it is not this server.
    pub agent_downloads: AgentDownloads,
    /// Bounds of the calls of backends.
    pub backend_calls: BackendCalls,
    /// `DSTACK_CATALOG_SOURCES`, `GPUHUNT_CATALOG_DIR`, `GPUHUNT_CATALOG_URL`, `DSTACK_CATALOG_VERSION`: where prices are from.
    pub catalog: CatalogConfig,
    /// Stores of logs and uploads outside of this server.
    pub outside: Outside,
}

impl Settings {
    /// Reads all variables.
    ///
    /// # Errors
    /// The first variable whose value makes no sense.
    pub fn from_env(vars: &impl Vars) -> Result<Self, SettingsError> {
        let read = Reader(vars);
        let home = read
            .text("HOME")
            .map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let server_dir = read
            .text("DSTACK_SERVER_DIR")
            .map_or_else(|| home.join(".dstack/server"), PathBuf::from);
        let outside = outside::outside(&read, &home)?;
        Ok(Self {
            home: home.clone(),
            database_url: read.secret("DSTACK_DATABASE_URL"),
            database_use: database::database_use(&read)?,
            host: read.text_or("DSTACK_SERVER_HOST", "127.0.0.1"),
            port: read.number("DSTACK_SERVER_PORT", 3000, "a port")?,
            url: read
                .text("DSTACK_SERVER_URL")
                .map(|url| url.trim_end_matches('/').to_owned()),
            admin_token: read.secret("DSTACK_SERVER_ADMIN_TOKEN"),
            root_log_level: read
                .text_or("DSTACK_SERVER_ROOT_LOG_LEVEL", "error")
                .to_lowercase(),
            log_format: read.log_format()?,
            config_disabled: read.flag("DSTACK_SERVER_CONFIG_DISABLED"),
            background_disabled: read.flag("DSTACK_SERVER_BACKGROUND_PROCESSING_DISABLED"),
            max_blocking_threads: read.number(
                "DSTACK_SERVER_EXECUTOR_MAX_WORKERS",
                16,
                "a number of threads",
            )?,
            update_default_project: if read.flag("DSTACK_UPDATE_DEFAULT_PROJECT") {
                Some(true)
            } else {
                read.flag("DSTACK_DO_NOT_UPDATE_DEFAULT_PROJECT")
                    .then_some(false)
            },
            version: read.text_or(
                "DSTACK_VERSION",
                dstack_api::server_info::COMPATIBLE_VERSION,
            ),
            max_offers_tried: read.number(
                "DSTACK_SERVER_MAX_OFFERS_TRIED",
                25,
                "a number of offers",
            )?,
            max_probes_per_job: read.number(
                "DSTACK_SERVER_MAX_PROBES_PER_JOB",
                10,
                "a number of probes",
            )?,
            gateway_max_replicas: read.number(
                "DSTACK_SERVER_GATEWAY_MAX_REPLICAS",
                9,
                "machines",
            )?,
            max_probe_timeout: read.number("DSTACK_SERVER_MAX_PROBE_TIMEOUT", 300, "seconds")?,
            code_upload_limit: read.limit("DSTACK_SERVER_CODE_UPLOAD_LIMIT", 2 * 1024 * 1024)?,
            log_quota_per_job_hour: read
                .limit("DSTACK_SERVER_LOG_QUOTA_PER_JOB_HOUR", 50 * 1024 * 1024)?,
            user_project_quota: read.number(
                "DSTACK_USER_PROJECT_DEFAULT_QUOTA",
                10,
                "a number of projects",
            )?,
            events_ttl: read.ttl("DSTACK_SERVER_EVENTS_TTL_SECONDS", 30 * 24 * 3600)?,
            kept: kept::kept(&read)?,
            exports: vars
                .get("DSTACK_SERVER_EXPORTS")
                .is_none_or(|value| value != "0"),
            ssh_connect_timeout: read.seconds("DSTACK_SERVER_SSH_CONNECT_TIMEOUT", 3)?,
            default_creds_disabled: read.flag("DSTACK_DEFAULT_CREDS_DISABLED"),
            orphan_interval: read.ttl("DSTACK_SERVER_ORPHAN_CLEANUP_INTERVAL", 600)?,
            orphan_age: read.seconds("DSTACK_SERVER_ORPHAN_MIN_AGE", 900)?,
            forbid_services_without_gateway: read.flag("DSTACK_FORBID_SERVICES_WITHOUT_GATEWAY"),
            ssh_agent: read.text("SSH_AUTH_SOCK").map(PathBuf::from),
            ide_mirror: read.url("DSTACK_SERVER_IDE_MIRROR_URL")?,
            forbid_dstack_in_runs: read.flag("DSTACK_FORBID_DSTACK_IN_RUNS"),
            job_network_mode: read.network_mode()?,
            keep_shim_tasks: read.flag("DSTACK_SERVER_KEEP_SHIM_TASKS"),
            default_registry: read.default_registry(),
            templates_repo: read.text("DSTACK_SERVER_TEMPLATES_REPO"),
            sshproxy: read.sshproxy()?,
            images: read.images(),
            local_backend: vars
                .get("DSTACK_LOCAL_BACKEND_ENABLED")
                .map(|value| value != "0"),
            prometheus_metrics: read.flag("DSTACK_ENABLE_PROMETHEUS_METRICS"),
            prometheus_token: read.secret("DSTACK_PROMETHEUS_AUTH_TOKEN"),
            plugin_dir: read.text("DSTACK_PLUGIN_DIR").map(PathBuf::from),
            drain: read.seconds("DSTACK_SERVER_DRAIN", 60)?,
            logs_dir: read
                .text("DSTACK_SERVER_LOGS_SHARED_DIR")
                .map(PathBuf::from),
            agent_downloads: backends::agent_downloads(&read),
            backend_calls: backends::backend_calls(&read)?,
            catalog: catalog::catalog(&read, &server_dir)?,
            outside,
            server_dir,
        })
    }

    /// The SQLite file, when no other database is set.
    #[must_use]
    pub fn sqlite_path(&self) -> PathBuf {
        self.server_dir.join("data").join("sqlite.db")
    }

    /// The server's configuration file.
    #[must_use]
    pub fn config_path(&self) -> PathBuf {
        self.server_dir.join("config.yml")
    }

    /// The folder below which log files are: `projects/<project>/logs/…`.
    #[must_use]
    pub fn logs_root(&self) -> PathBuf {
        self.logs_dir
            .clone()
            .unwrap_or_else(|| self.server_dir.clone())
    }
}

struct Reader<'a, V>(&'a V);

impl<V: Vars> Reader<'_, V> {
    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).filter(|value| !value.is_empty())
    }

    /// An HTTP address that can stand in double quotes of a shell.
    fn url(&self, name: &'static str) -> Result<Option<String>, SettingsError> {
        let Some(value) = self.text(name) else {
            return Ok(None);
        };
        let is_http = value.starts_with("http://") || value.starts_with("https://");
        if is_http
            && value
                .bytes()
                .all(|b| b.is_ascii_graphic() && !b"\"`$\\".contains(&b))
        {
            return Ok(Some(value));
        }
        Err(SettingsError {
            name,
            value,
            wanted: "an address that starts with http:// or https://",
        })
    }

    fn network_mode(&self) -> Result<u8, SettingsError> {
        let (name, wanted) = ("DSTACK_SERVER_JOB_NETWORK_MODE", "1, 2 or 3");
        let mode = self.number(name, 2u8, wanted)?;
        if (1..=3).contains(&mode) {
            return Ok(mode);
        }
        Err(SettingsError {
            name,
            value: mode.to_string(),
            wanted,
        })
    }

    fn text_or(&self, name: &str, default: &str) -> String {
        self.text(name).unwrap_or_else(|| default.to_owned())
    }

    fn secret(&self, name: &str) -> Option<Secret<String>> {
        self.text(name)
            .filter(|text| !text.trim().is_empty())
            .map(Secret::new)
    }

    fn flag(&self, name: &str) -> bool {
        self.0.get(name).is_some()
    }

    fn number<T: std::str::FromStr>(
        &self,
        name: &'static str,
        default: T,
        wanted: &'static str,
    ) -> Result<T, SettingsError> {
        let Some(value) = self.text(name) else {
            return Ok(default);
        };
        value.trim().parse().map_err(|_| SettingsError {
            name,
            value,
            wanted,
        })
    }

    fn limit(&self, name: &'static str, default: u64) -> Result<Option<u64>, SettingsError> {
        Ok(Some(self.number(name, default, "a number of bytes")?).filter(|limit| *limit > 0))
    }

    fn seconds(&self, name: &'static str, default: u64) -> Result<Duration, SettingsError> {
        self.number(name, default, "a number of seconds")
            .map(Duration::from_secs)
    }

    fn ttl(&self, name: &'static str, default: i64) -> Result<Option<Duration>, SettingsError> {
        let seconds = self.number(name, default, "a number of seconds")?;
        Ok(u64::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs))
    }

    fn images(&self) -> BaseImages {
        BaseImages {
            image: self.text_or("DSTACK_DOCKER_BASE_IMAGE", "dstackai/base"),
            version: self.text_or("DSTACK_DOCKER_BASE_IMAGE_VERSION", "0.16"),
            ubuntu_version: self.text_or("DSTACK_DOCKER_BASE_IMAGE_UBUNTU_VERSION", "24.04"),
            dind: self.text_or("DSTACK_DIND_IMAGE", "dstackai/dind"),
        }
    }

    fn default_registry(&self) -> Option<DefaultRegistry> {
        Some(DefaultRegistry {
            host: self.text("DSTACK_SERVER_DEFAULT_DOCKER_REGISTRY")?,
            username: self.text("DSTACK_SERVER_DEFAULT_DOCKER_REGISTRY_USERNAME"),
            password: self.secret("DSTACK_SERVER_DEFAULT_DOCKER_REGISTRY_PASSWORD"),
        })
    }

    fn log_format(&self) -> Result<LogFormat, SettingsError> {
        let name = "DSTACK_SERVER_LOG_FORMAT";
        match self.text_or(name, "rich").to_lowercase().as_str() {
            "rich" => Ok(LogFormat::Rich),
            "standard" => Ok(LogFormat::Standard),
            "json" => Ok(LogFormat::Json),
            other => Err(SettingsError {
                name,
                value: other.to_owned(),
                wanted: "rich, standard or json",
            }),
        }
    }

    fn sshproxy(&self) -> Result<Option<SshProxy>, SettingsError> {
        let name = "DSTACK_SERVER_SSHPROXY_ADDRESS";
        let (Some(address), Some(token)) =
            (self.text(name), self.secret("DSTACK_SSHPROXY_API_TOKEN"))
        else {
            return Ok(None);
        };
        let (host, port) = match address.rsplit_once(':') {
            None => (address, None),
            Some((host, port)) => match port.parse() {
                Ok(port) => (host.to_owned(), Some(port)),
                Err(_) => {
                    return Err(SettingsError {
                        name,
                        value: address,
                        wanted: "host or host:port",
                    });
                }
            },
        };
        Ok(Some(SshProxy {
            host,
            port,
            token,
            enforced: self.flag("DSTACK_SERVER_SSHPROXY_ENFORCED"),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::time::Duration;

    use super::Settings;

    fn settings(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let vars: BTreeMap<String, String> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Settings::from_env(&vars).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_documents() {
        let it = settings(&[("HOME", "/home/me")]).unwrap();
        assert_eq!(
            it.sqlite_path(),
            Path::new("/home/me/.dstack/server/data/sqlite.db")
        );
        assert_eq!((it.host.as_str(), it.port), ("127.0.0.1", 3000));
        assert_eq!(it.code_upload_limit, Some(2_097_152));
        assert_eq!(it.events_ttl, Some(Duration::from_secs(2_592_000)));
        assert_eq!(it.version, "0.22.5");
        assert_eq!(it.local_backend, None);
        assert!(!it.config_disabled && it.sshproxy.is_none());
    }

    #[test]
    fn every_variable_is_in_the_documents_table() {
        let table = include_str!("../../docs/settings.md");
        let names = [
            include_str!("settings.rs"),
            include_str!("settings/outside.rs"),
            include_str!("settings/kept.rs"),
        ];
        let names = names
            .iter()
            .flat_map(|text| text.split('"'))
            .filter(|word| {
                word.strip_prefix("DSTACK_")
                    .is_some_and(|rest| !rest.is_empty())
            })
            .filter(|word| word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'));
        let missing: Vec<_> = names
            .filter(|name| !table.contains(&format!("`{name}`")))
            .collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn set_means_any_value_and_zero_means_none() {
        let it = settings(&[
            ("DSTACK_SERVER_CONFIG_DISABLED", ""),
            ("DSTACK_SERVER_CODE_UPLOAD_LIMIT", "0"),
            ("DSTACK_SERVER_EVENTS_TTL_SECONDS", "-1"),
            ("DSTACK_LOCAL_BACKEND_ENABLED", ""),
            ("DSTACK_SERVER_SSHPROXY_ADDRESS", "proxy.example:2222"),
            ("DSTACK_SSHPROXY_API_TOKEN", "hidden-token"),
        ])
        .unwrap();
        assert!(it.config_disabled);
        assert_eq!(
            (it.code_upload_limit, it.events_ttl, it.local_backend),
            (None, None, Some(true))
        );
        assert_eq!(
            it.sshproxy.as_ref().map(|proxy| proxy.port),
            Some(Some(2222))
        );
        assert!(!format!("{it:?}").contains("hidden-token"));
        assert_eq!(
            settings(&[("DSTACK_LOCAL_BACKEND_ENABLED", "0")])
                .unwrap()
                .local_backend,
            Some(false)
        );
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!(
            settings(&[("DSTACK_SERVER_PORT", "http")]).unwrap_err(),
            "DSTACK_SERVER_PORT=\"http\" is not a port"
        );
        assert!(
            settings(&[("DSTACK_SERVER_JOB_NETWORK_MODE", "4")])
                .unwrap_err()
                .contains("1, 2 or 3")
        );
    }
}

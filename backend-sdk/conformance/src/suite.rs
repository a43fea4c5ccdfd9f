//! What an author sets up before a run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use dstack_backend_types::services::{SshReply, SshRequest};
use dstack_backend_types::{BackendError, Secret};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::host::SshScript;
use crate::provider::Provider;
use crate::report::Report;
use crate::{child, run};

/// Where the plugin runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// In this process: a crash of the plugin ends it.
    InProcess,
    /// In a child of this process: a crash ends one check.
    Process,
}

/// The provider that a plugin's requests are sent to.
#[derive(Debug)]
pub struct ProviderAt {
    pub(crate) url: String,
    /// Keeps it running.
    pub(crate) own: Option<Provider>,
}

impl From<Provider> for ProviderAt {
    fn from(provider: Provider) -> Self {
        Self {
            url: provider.url().to_owned(),
            own: Some(provider),
        }
    }
}
impl From<&Provider> for ProviderAt {
    fn from(provider: &Provider) -> Self {
        provider.url().into()
    }
}
impl From<&str> for ProviderAt {
    fn from(url: &str) -> Self {
        Self {
            url: url.trim_end_matches('/').to_owned(),
            own: None,
        }
    }
}
impl From<String> for ProviderAt {
    fn from(url: String) -> Self {
        url.as_str().into()
    }
}

/// Why nothing could be checked.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// The file is no plugin.
    #[error("{path} is not a plugin that can be loaded: {reason}")]
    NotAPlugin {
        /// The file.
        path: PathBuf,
        /// Which rule it breaks.
        reason: String,
    },
    /// A file of the set-up could not be read or written.
    #[error("{what} {path}: {source}")]
    File {
        /// Which.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// `only` or `without` name no check.
    #[error("there is no check {id:?}; the checks are: {known}")]
    UnknownCheck {
        /// As it was given.
        id: String,
        /// All there are.
        known: String,
    },
    /// The configuration is no JSON object.
    #[error("the configuration must be a JSON object")]
    BadConfig,
    /// The program that should be the provider did not start.
    #[error("the fake provider {program}: {source}")]
    Provider {
        /// Which.
        program: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The process for the checks could not be started.
    #[error("the process for the checks: {reason}")]
    Child {
        /// Why.
        reason: String,
    },
}

/// A run of the suite, to be set up. See the crate's documentation for what it does.
///
/// ```no_run
/// # use dstack_backend_conformance::{FakeProvider, Suite};
/// # use serde_json::json;
/// # let provider = FakeProvider::new(|| ()).start();
/// Suite::new("target/debug/libdstack_backend_acme.so")
///     .config(json!({"type": "acme", "creds": {"token": "secret"}}))
///     .provider(provider)
///     .run();
/// ```
#[must_use = "nothing is checked until it runs"]
pub struct Suite {
    pub(crate) path: PathBuf,
    pub(crate) config: Option<Value>,
    pub(crate) provider: Option<ProviderAt>,
    pub(crate) program: Option<PathBuf>,
    pub(crate) only: Vec<String>,
    pub(crate) without: BTreeMap<String, String>,
    pub(crate) catalog: Option<PathBuf>,
    pub(crate) environment: BTreeMap<String, Secret<String>>,
    pub(crate) ssh: Option<Box<SshScript>>,
    pub(crate) isolation: Option<Isolation>,
    pub(crate) record: Option<PathBuf>,
    pub(crate) replay: Option<PathBuf>,
    pub(crate) is_live: bool,
    pub(crate) child_args: Option<Vec<std::ffi::OsString>>,
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration holds credentials.
        f.debug_struct("Suite")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Suite {
    /// A suite for a built plugin.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            config: None,
            provider: None,
            program: None,
            only: Vec::new(),
            without: BTreeMap::new(),
            catalog: None,
            environment: BTreeMap::new(),
            ssh: None,
            isolation: None,
            record: None,
            replay: None,
            is_live: false,
            child_args: None,
        }
    }

    /// The configuration, as it would stand in `config.yml`. `{provider}` in a text stands for the provider's address.
    /// Without a configuration one is made up from the plugin's schema.
    pub fn config(mut self, config: Value) -> Self {
        self.config = Some(config);
        self
    }
    /// Where the plugin's requests go, whatever host they name; the host stands in the header [`ASKED_HOST`](crate::ASKED_HOST).
    pub fn provider(mut self, provider: impl Into<ProviderAt>) -> Self {
        self.provider = Some(provider.into());
        self
    }
    /// A program that is the provider (see [`Provider::serve`]): started when the checks begin, in whatever process makes them.
    /// Its configuration is used if none was given.
    pub fn provider_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }
    /// Runs only these checks. A group's name (`volumes`) stands for all of its checks.
    pub fn only<I: Into<String>>(mut self, ids: impl IntoIterator<Item = I>) -> Self {
        self.only.extend(ids.into_iter().map(Into::into));
        self
    }
    /// Leaves a check out; the report says why.
    pub fn without(mut self, id: &str, reason: &str) -> Self {
        self.without.insert(id.to_owned(), reason.to_owned());
        self
    }
    /// Answers the service `catalog` from `<provider>.csv` in this folder.
    pub fn catalog(mut self, folder: impl Into<PathBuf>) -> Self {
        self.catalog = Some(folder.into());
        self
    }
    /// A variable of the environment that the plugin may ask for.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment
            .insert(name.to_owned(), Secret::new(value.to_owned()));
        self
    }
    /// Answers the service `ssh`: request and standard input in; reply, standard output and standard error out.
    pub fn ssh(
        mut self,
        script: impl Fn(&SshRequest, &[u8]) -> Result<(SshReply, Vec<u8>, Vec<u8>), BackendError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.ssh = Some(Box::new(script));
        self
    }
    /// Where the plugin runs; in a process of its own unless that is impossible.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = Some(isolation);
        self
    }
    /// Appends every exchange with the provider to this file, one JSON line each, secrets taken out.
    pub fn record(mut self, path: impl Into<PathBuf>) -> Self {
        self.record = Some(path.into());
        self
    }
    /// Answers requests from such a file instead of a provider.
    pub fn replay(mut self, path: impl Into<PathBuf>) -> Self {
        self.replay = Some(path.into());
        self
    }
    /// Lets requests go where the plugin sends them: **to the real cloud, with real machines and real money**. Checks that
    /// inject faults are made all the same, since the faults are on this side.
    pub fn live(mut self) -> Self {
        self.is_live = true;
        self
    }
    /// How a child of this process gets here again: the program's own arguments. Tests need not say it.
    pub fn child_args(mut self, args: impl IntoIterator<Item = std::ffi::OsString>) -> Self {
        self.child_args = Some(args.into_iter().collect());
        self
    }

    /// Runs the checks and returns what came out.
    ///
    /// # Errors
    /// If nothing could be checked at all.
    pub fn report(self) -> Result<Report, SuiteError> {
        run::check_names(&self)?;
        if child::is_child() {
            return child::serve(self);
        }
        match (self.isolation, child::way_back(&self)) {
            (None | Some(Isolation::Process), Some(args)) => child::run(&self, &args),
            (Some(Isolation::Process), None) => Err(SuiteError::Child {
                reason: "outside of a test the suite needs `child_args` for a process of its own"
                    .to_owned(),
            }),
            (Some(Isolation::InProcess), _) | (None, None) => run::in_process(self),
        }
    }

    /// Runs the checks in a test.
    ///
    /// # Panics
    /// With the table, if a check failed or nothing could be checked.
    pub fn run(self) -> Report {
        match self.report() {
            Ok(report) if report.is_passed() => report,
            Ok(report) => panic!("\n\n{report}"),
            Err(error) => panic!("{error}"),
        }
    }
}

//! What a check works with: the opened backend, the provider, and the steps that many checks share.

mod steps;

pub(crate) use steps::is_without_login;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};

use dstack_backend_loader::Plugin;
use dstack_backend_types::services::LedgerRequest;
use dstack_backend_types::{BackendError, JobProvisioningData, Manifest};
use serde_json::{Map, Value};

use crate::calls::Caller;
use crate::checks::Stop;
use crate::host::{Event, Host, Session, Settings, lock};
use crate::http::Client;
use crate::provider::{Resource, Scenario};
use crate::report::Failure;

/// What stays the same for all checks of a run.
pub(crate) struct Plan {
    pub(crate) manifest: Manifest,
    /// With credentials, and with `type`.
    pub(crate) config: Map<String, Value>,
    pub(crate) is_config_given: bool,
    /// Values that must be seen nowhere.
    pub(crate) secrets: Vec<String>,
    pub(crate) provider: Option<String>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) notes: Vec<String>,
    /// Where a secret was seen so far.
    pub(crate) leaks: Mutex<Vec<String>>,
    pub(crate) _kept: Box<dyn Any>,
}

/// Methods whose replies hold credentials by their purpose.
const WITH_CREDENTIALS: &[&str] = &["configurator.create", "configurator.with_creds"];

impl Plan {
    /// Searches everything that the plugin said.
    pub(crate) fn look_for_leaks(&self, check: &str, session: &Session) {
        for event in session.since(0) {
            let (place, text) = match event {
                Event::Log { text, .. } => ("a log line".to_owned(), text),
                Event::Error { method, text } => (format!("the error of {method}"), text),
                Event::Reply { method, text } if !WITH_CREDENTIALS.contains(&method) => {
                    (format!("the reply of {method}"), text)
                }
                Event::Ledger(request) => (
                    "an entry of the ledger".to_owned(),
                    serde_json::to_string(&request).unwrap_or_default(),
                ),
                Event::Reply { .. } | Event::Http(_) | Event::Begin { .. } => continue,
            };
            if self.secrets.iter().any(|secret| is_in(secret, &text)) {
                let shown: String = crate::http::redacted(&text, &self.secrets)
                    .chars()
                    .take(160)
                    .collect();
                let line = format!("{place} during {check}: {shown}");
                let mut leaks = lock(&self.leaks);
                if !leaks.contains(&line) {
                    leaks.push(line);
                }
            }
        }
    }
}

/// The secret itself, as it stands in JSON, or in base64.
fn is_in(secret: &str, text: &str) -> bool {
    use base64::Engine as _;
    let escaped = serde_json::to_string(secret).unwrap_or_default();
    let escaped = escaped.trim_matches('"');
    let coded = base64::engine::general_purpose::STANDARD.encode(secret);
    text.contains(secret) || text.contains(escaped) || text.contains(coded.trim_end_matches('='))
}

/// One check's surroundings.
pub(crate) struct Cx<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) plugin: Plugin,
    pub(crate) host: Arc<Host>,
    pub(crate) session: Arc<Session>,
    /// What was made and must be gone at the end, with who made it.
    made: RefCell<Vec<(Caller, JobProvisioningData)>>,
    /// Whether the plugin refused a job that brings a login to its image's registry.
    pub(crate) has_no_login: Cell<bool>,
}

impl<'a> Cx<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        plugin: Plugin,
        host: Arc<Host>,
        session: Arc<Session>,
    ) -> Self {
        Self {
            plan,
            plugin,
            host,
            session,
            made: RefCell::default(),
            has_no_login: Cell::default(),
        }
    }

    /// The check is over: what it made goes.
    pub(crate) fn end(&self) {
        self.play(None);
        for (caller, data) in self.made.take() {
            // It is cleaned up as well as possible; checks of their own look at termination.
            drop(self.terminate(&caller, &data));
        }
    }

    /// The backend with its configuration.
    pub(crate) fn open(&self) -> Result<Caller, Stop> {
        self.open_with(&self.plan.config).map_err(|error| {
            if self.plan.is_config_given {
                fail(
                    "the backend to open with its configuration",
                    show_error(&error),
                    "`Backend::new` does no input or output and takes any configuration that `configurator.validate` accepts",
                )
            } else {
                Stop::Skip(format!(
                    "needs a configuration; the one made up from the schema is refused: {}",
                    error.message
                ))
            }
        })
    }

    /// The backend with another configuration.
    pub(crate) fn open_with(&self, config: &Map<String, Value>) -> Result<Caller, BackendError> {
        let bytes =
            serde_json::to_vec(config).map_err(|e| BackendError::internal(e.to_string()))?;
        Caller::open(&self.plugin, &self.host, &bytes)
    }

    /// The backend without a configuration, for the configurator's methods.
    pub(crate) fn unconfigured(&self) -> Result<Caller, Stop> {
        Caller::open(&self.plugin, &self.host, b"").map_err(|error| {
            fail(
                "a handle for the configurator's methods when opened with no bytes",
                show_error(&error),
                "export the backend by `export_backend!`",
            )
        })
    }

    /// What stands at the provider, if it tells.
    pub(crate) fn inventory(&self) -> Option<Vec<Resource>> {
        Client::shared().inventory(self.plan.provider.as_ref()?)
    }

    /// Switches a scenario on or off; `false` if the provider has none of that name.
    pub(crate) fn play(&self, scenario: Option<Scenario>) -> bool {
        match &self.plan.provider {
            Some(provider) => Client::shared().play(provider, scenario),
            None => false,
        }
    }

    /// Skips what needs a scenario that the provider does not script.
    pub(crate) fn need(&self, scenario: Scenario) -> Result<(), Stop> {
        if self.play(Some(scenario)) {
            return Ok(());
        }
        Err(Stop::Skip(format!(
            "the provider has no scenario `{}`: script it with `FakeProvider::scenario`",
            scenario.as_str()
        )))
    }

    /// How many requests went to the provider since a mark.
    pub(crate) fn requests_since(&self, mark: usize) -> usize {
        self.session.requests_since(mark).len()
    }

    pub(crate) fn has(&self, capability: &str) -> bool {
        self.plan.manifest.has(capability)
    }
}

/// A failed check.
pub(crate) fn fail(
    expected: impl Into<String>,
    seen: impl Into<String>,
    remedy: impl Into<String>,
) -> Stop {
    Stop::Fail(Box::new(Failure {
        expected: expected.into(),
        seen: seen.into(),
        remedy: remedy.into(),
        exchange: Vec::new(),
    }))
}

/// Ends the check unless something holds.
pub(crate) fn ensure(
    holds: bool,
    expected: &str,
    seen: impl FnOnce() -> String,
    remedy: &str,
) -> Result<(), Stop> {
    if holds {
        return Ok(());
    }
    Err(fail(expected, seen(), remedy))
}

/// Kind and message.
pub(crate) fn show_error(error: &BackendError) -> String {
    let text: String = error.message.chars().take(300).collect();
    format!("error `{}`: {text}", error.kind.as_str())
}

/// `Ok`, or kind and message.
pub(crate) fn show<T>(result: &Result<T, BackendError>) -> String {
    match result {
        Ok(_) => "success".to_owned(),
        Err(error) => show_error(error),
    }
}

/// An entry of the ledger in short.
pub(crate) fn ledger_line(request: &LedgerRequest) -> String {
    match request {
        LedgerRequest::Declare { resource } => {
            format!("declare {} {}", resource.kind, resource.name)
        }
        LedgerRequest::Settle { kind, name, .. } => format!("settle {kind} {name}"),
    }
}

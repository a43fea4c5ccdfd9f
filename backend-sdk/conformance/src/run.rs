//! Loads the plugin and makes the checks, one after the other, in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use dstack_backend_loader::{Plugin, inspect};
use dstack_backend_types::{Manifest, Secret};
use serde_json::{Map, Value};

use crate::checks::{self, Check, Stop};
use crate::cx::{Cx, Plan};
use crate::host::{Event, Host, SSH, Session, Settings, lock};
use crate::http::{Client, Recording, Way, write_recording};
use crate::provider::Program;
use crate::report::{CheckResult, Failure, Outcome, Report};
use crate::schema;
use crate::suite::{Isolation, Suite, SuiteError};

/// Lines of the exchange that a failure shows.
const SHOWN_LINES: usize = 8;

/// Why a check was left out that has nobody to ask.
const NO_PROVIDER: &str = "asks the provider, and there is none";

/// Says aloud that a report without a failure is not the whole of it.
pub(crate) fn note_what_was_left_out(report: &mut Report) {
    let left_out = report.results.iter().filter(
        |result| matches!(&result.outcome, Outcome::Skipped { reason } if reason == NO_PROVIDER),
    );
    let count = left_out.count();
    if count > 0 {
        report.notes.push(format!(
            "{count} checks ask the provider and WERE NOT MADE, since nobody answers for it. Build the backend's fake provider beside \
             the plugin (`cargo build --lib --examples` makes examples/{}-provider, which is then found), name another one by \
             --provider PROGRAM or --provider URL, or run the backend's own tests (`cargo test`)",
            report.plugin
        ));
    }
}

/// A plugin that is in this process for good.
#[derive(Clone)]
struct Loaded {
    plugin: Plugin,
    host: Arc<Host>,
    /// One suite at a time: the host has one session.
    turn: Arc<Mutex<()>>,
}

/// By device and inode: the same file cannot be started twice in one process.
fn loaded() -> &'static Mutex<HashMap<(u64, u64), Loaded>> {
    static LOADED: OnceLock<Mutex<HashMap<(u64, u64), Loaded>>> = OnceLock::new();
    LOADED.get_or_init(Mutex::default)
}

/// Whether `only` and `without` name checks that exist.
pub(crate) fn check_names(suite: &Suite) -> Result<(), SuiteError> {
    let fits = |wanted: &str| checks::all().any(|check| is_named(check, wanted));
    let named = suite.only.iter().chain(suite.without.keys());
    match named.into_iter().find(|id| !fits(id)) {
        None => Ok(()),
        Some(id) => Err(SuiteError::UnknownCheck {
            id: id.clone(),
            known: checks::all()
                .map(|check| check.id)
                .collect::<Vec<_>>()
                .join(" "),
        }),
    }
}

fn is_named(check: &Check, wanted: &str) -> bool {
    check.id == wanted
        || check
            .id
            .split_once('.')
            .is_some_and(|(group, _)| group == wanted)
}

/// The checks of this run.
pub(crate) fn chosen(suite: &Suite) -> Vec<&'static Check> {
    checks::all()
        .filter(|check| suite.only.is_empty() || suite.only.iter().any(|id| is_named(check, id)))
        .collect()
}

/// What a runner tells while it works.
pub(crate) enum Progress<'a> {
    Begin(&'a str),
    End(&'a CheckResult),
}

pub(crate) fn in_process(suite: Suite) -> Result<Report, SuiteError> {
    let mut report = run(suite, Isolation::InProcess, 0, &mut |_| {})?;
    note_what_was_left_out(&mut report);
    Ok(report)
}

/// Makes all checks from the `from`-th on.
pub(crate) fn run(
    suite: Suite,
    isolation: Isolation,
    from: usize,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Report, SuiteError> {
    let chosen = chosen(&suite);
    let inspected =
        inspect(&suite.path).map_err(|error| not_a_plugin(&suite, &error.to_string()))?;
    let manifest = inspected.manifest.clone();
    let identity = inspected.identity;
    let recording = suite.record.clone();
    let without = suite.without.clone();
    let prepared = Prepared::of(suite, &manifest)?;
    let settings = Arc::clone(&prepared.settings);
    let mut table = lock(loaded());
    let entry = match table.get(&identity) {
        Some(entry) => entry.clone(),
        None => {
            let host = Host::new(Arc::new(Session::new(Arc::clone(&settings))));
            let path = inspected.path.clone();
            let plugin = inspected
                .open(host.border())
                .map_err(|error| SuiteError::NotAPlugin {
                    path,
                    reason: error.to_string(),
                })?;
            let entry = Loaded {
                plugin,
                host,
                turn: Arc::default(),
            };
            table.insert(identity, entry.clone());
            entry
        }
    };
    drop(table);
    let _turn = lock(&entry.turn);
    let plan = plan(&entry, manifest, prepared);
    let mut report = Report {
        plugin: plan.manifest.name.clone(),
        version: plan.manifest.version.clone(),
        isolation: match isolation {
            Isolation::InProcess => "in_process",
            Isolation::Process => "process",
        }
        .to_owned(),
        results: Vec::new(),
        notes: plan.notes.clone(),
    };
    for check in chosen.iter().skip(from) {
        progress(Progress::Begin(check.id));
        let outcome = match without.iter().find(|(id, _)| is_named(check, id)) {
            Some((_, reason)) => Outcome::Skipped {
                reason: reason.clone(),
            },
            None => Outcome::Passed,
        };
        let begun = Instant::now();
        let outcome = match outcome {
            Outcome::Passed => one(check, &entry, &plan, recording.as_ref()),
            skipped => skipped,
        };
        let result = CheckResult {
            id: check.id.to_owned(),
            title: check.title.to_owned(),
            why: check.why.to_owned(),
            outcome,
            took_ms: millis(begun.elapsed()),
        };
        progress(Progress::End(&result));
        report.results.push(result);
    }
    Ok(report)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn not_a_plugin(suite: &Suite, reason: &str) -> SuiteError {
    SuiteError::NotAPlugin {
        path: suite.path.clone(),
        reason: reason.to_owned(),
    }
}

/// What is settled before the plugin is asked anything.
struct Prepared {
    settings: Arc<Settings>,
    config: Option<Map<String, Value>>,
    provider: Option<String>,
    /// Keeps the author's provider running.
    own: Own,
    notes: Vec<String>,
}

/// What ends with the run.
type Own = (
    Option<crate::provider::Provider>,
    Option<crate::provider::Program>,
);

impl Prepared {
    fn of(suite: Suite, manifest: &Manifest) -> Result<Self, SuiteError> {
        let (mut url, own) = match suite.provider {
            Some(at) => (Some(at.url), at.own),
            None => (None, None),
        };
        let mut notes = Vec::new();
        let mut config = suite.config;
        let mut program = None;
        if let (Some(path), None, None) = (suite.program, &url, &suite.replay) {
            let started = Program::start(&path).map_err(|source| SuiteError::Provider {
                program: path.clone(),
                source,
            })?;
            notes.push(format!("the provider was {}", path.display()));
            url = Some(started.url.clone());
            config = config.or_else(|| started.config.clone());
            program = Some(started);
        }
        let config = match config {
            None => None,
            Some(mut config) => {
                schema::fill(&mut config, url.as_deref().unwrap_or("http://127.0.0.1:9"));
                let Value::Object(mut config) = config else {
                    return Err(SuiteError::BadConfig);
                };
                config
                    .entry("type")
                    .or_insert_with(|| manifest.name.clone().into());
                Some(config)
            }
        };
        let way = match (&suite.replay, &url, suite.is_live) {
            (Some(path), ..) => {
                let recording = Recording::read(path).map_err(|source| SuiteError::File {
                    what: "the recording",
                    path: path.clone(),
                    source,
                })?;
                Way::Replay(Mutex::new(recording))
            }
            (None, Some(url), _) => Way::Provider(url.clone()),
            (None, None, true) => Way::Live,
            (None, None, false) => Way::None,
        };
        let settings = Settings {
            way,
            catalog: suite.catalog,
            environment: suite.environment,
            ssh: suite.ssh,
            has_listing: manifest.has(dstack_backend_types::capability::RESOURCE_LISTING),
        };
        Ok(Self {
            settings: Arc::new(settings),
            config,
            provider: url,
            own: (own, program),
            notes,
        })
    }
}

/// Asks the plugin for its schema, and with it finds configuration and secrets.
fn plan(entry: &Loaded, manifest: Manifest, prepared: Prepared) -> Plan {
    let session = Arc::new(Session::new(Arc::clone(&prepared.settings)));
    entry.host.begin(session);
    let schema = crate::calls::describe(&entry.plugin, &entry.host);
    let mut notes = prepared.notes;
    let config = prepared.config.clone().unwrap_or_else(|| {
        let at = prepared.provider.as_deref().unwrap_or("http://127.0.0.1:9");
        notes.push(
            "no configuration was given: one was made up from the plugin's schema; use --config or `.config(…)`"
                .to_owned(),
        );
        let mut config = schema.as_ref().map_or_else(Map::new, |schema| schema::sample(schema, at));
        config.entry("type").or_insert_with(|| manifest.name.clone().into());
        config
    });
    let environment = prepared
        .settings
        .environment
        .values()
        .map(Secret::expose)
        .cloned();
    let mut secrets = schema
        .as_ref()
        .map(|schema| schema::secret_values(schema, &config))
        .unwrap_or_default();
    secrets.extend(environment);
    secrets.push(crate::samples::PRIVATE_KEY_MARK.to_owned());
    secrets.push(crate::samples::REGISTRY_PASSWORD.to_owned());
    secrets.retain(|secret| secret.len() >= 4);
    secrets.sort();
    secrets.dedup();
    Plan {
        manifest,
        config,
        is_config_given: prepared.config.is_some(),
        secrets,
        provider: prepared.provider.clone(),
        settings: Arc::clone(&prepared.settings),
        notes,
        leaks: Mutex::default(),
        _kept: Box::new(prepared.own),
    }
}

/// Makes one check in surroundings of its own.
fn one(
    check: &Check,
    entry: &Loaded,
    plan: &Plan,
    recording: Option<&std::path::PathBuf>,
) -> Outcome {
    if let Some(capability) = check.needs
        && !plan.manifest.has(capability)
    {
        return Outcome::Skipped {
            reason: format!("no capability `{capability}`"),
        };
    }
    if let Some(provider) = &plan.provider {
        Client::shared().play(provider, None);
        Client::shared().reset(provider);
    }
    if let Way::Replay(recording) = &plan.settings.way {
        lock(recording).rewind();
    }
    let session = Arc::new(Session::new(Arc::clone(&plan.settings)));
    entry.host.begin(Arc::clone(&session));
    let cx = Cx::new(
        plan,
        entry.plugin.clone(),
        Arc::clone(&entry.host),
        Arc::clone(&session),
    );
    let verdict = (check.run)(&cx);
    let shown = tail(&session, &plan.secrets);
    session.faults.clear();
    cx.end();
    plan.look_for_leaks(check.id, &session);
    if let Some(path) = recording
        && let Err(error) = write_recording(path, &session.requests_since(0), &plan.secrets)
    {
        return Outcome::Failed(Failure {
            expected: format!("the exchanges written to {}", path.display()),
            seen: error.to_string(),
            remedy: "name a file that can be written".to_owned(),
            exchange: Vec::new(),
        });
    }
    match verdict {
        Ok(()) => Outcome::Passed,
        Err(Stop::Skip(reason)) => Outcome::Skipped { reason },
        // What a backend does without its provider says nothing about it, but what it tells of secrets does.
        Err(Stop::Fail(_))
            if !check.id.starts_with("secrets.") && missed_provider(plan, &session) =>
        {
            Outcome::Skipped {
                reason: NO_PROVIDER.to_owned(),
            }
        }
        Err(Stop::Fail(mut failure)) => {
            for text in [&mut failure.expected, &mut failure.seen] {
                *text = crate::http::redacted(text, &plan.secrets);
            }
            failure.exchange.extend(shown);
            Outcome::Failed(*failure)
        }
    }
}

/// Whether a request was refused since there is nobody to send it to.
fn missed_provider(plan: &Plan, session: &Session) -> bool {
    matches!(plan.settings.way, Way::None)
        && session.since(0).iter().any(
            |event| matches!(event, Event::Http(exchange) if !exchange.is_fault && exchange.method != SSH && exchange.reply.is_err()),
        )
}

/// The last of what went by, without secrets.
fn tail(session: &Session, secrets: &[String]) -> Vec<String> {
    let lines: Vec<String> = session
        .since(0)
        .into_iter()
        .filter_map(|event| match event {
            Event::Http(exchange) => Some(exchange.line()),
            Event::Log { level, text } if level <= 2 => Some(format!("log: {text}")),
            Event::Ledger(request) => Some(format!("ledger: {}", crate::cx::ledger_line(&request))),
            Event::Begin { method } => Some(format!("call {method}")),
            Event::Error { method, text } => Some(format!("{method} failed: {text}")),
            Event::Log { .. } | Event::Reply { .. } => None,
        })
        .map(|line| crate::http::redacted(&line, secrets))
        .collect();
    lines.into_iter().rev().take(SHOWN_LINES).rev().collect()
}

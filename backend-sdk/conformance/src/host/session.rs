//! What one check sees: clock, faults, ledger, cache, and the tape of all that went by.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dstack_backend_types::services::{LedgerRequest, SideResource, SshReply, SshRequest};
use dstack_backend_types::{BackendError, Secret};

use super::cache::Cache;
use super::lock;
use crate::http::{Exchange, Faults, Streams, Way};

/// Answers commands over SSH: the request and its standard input in; head, standard output and standard error out.
pub(crate) type SshScript =
    dyn Fn(&SshRequest, &[u8]) -> Result<(SshReply, Vec<u8>, Vec<u8>), BackendError> + Send + Sync;

/// What stays the same for all checks.
pub(crate) struct Settings {
    /// Where HTTP goes.
    pub(crate) way: Way,
    /// Folder with `<provider>.csv` files.
    pub(crate) catalog: Option<PathBuf>,
    pub(crate) environment: BTreeMap<String, Secret<String>>,
    pub(crate) ssh: Option<Box<SshScript>>,
    /// Whether the plugin has the capability without which a host takes no ledger entries.
    pub(crate) has_listing: bool,
}

/// Something that a plugin did or said.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A line of its log.
    Log { level: u32, text: String },
    /// A request, with what came back.
    Http(Exchange),
    /// A request to the ledger.
    Ledger(LedgerRequest),
    /// A call began.
    Begin { method: &'static str },
    /// What a call returned, or a part that it handed over.
    Reply { method: &'static str, text: String },
    /// The error of a call.
    Error { method: &'static str, text: String },
}

/// The surroundings of one check.
pub(crate) struct Session {
    pub(crate) settings: std::sync::Arc<Settings>,
    pub(crate) faults: Faults,
    pub(crate) cache: Cache,
    pub(crate) streams: Streams,
    /// Whether waits are real, until the call is cancelled.
    pub(crate) waits_for_real: std::sync::atomic::AtomicBool,
    /// Whether the provider's inventory is looked at after each request that may change something.
    pub(crate) watches: std::sync::atomic::AtomicBool,
    ahead_us: AtomicI64,
    tape: Mutex<Vec<Event>>,
    ledger: Mutex<Vec<SideResource>>,
}

impl Session {
    pub(crate) fn new(settings: std::sync::Arc<Settings>) -> Self {
        Self {
            settings,
            faults: Faults::default(),
            cache: Cache::default(),
            streams: Streams::default(),
            waits_for_real: false.into(),
            watches: false.into(),
            ahead_us: AtomicI64::new(0),
            tape: Mutex::default(),
            ledger: Mutex::default(),
        }
    }

    /// Puts the clock forward.
    pub(crate) fn advance(&self, by: Duration) {
        let us = i64::try_from(by.as_micros()).unwrap_or(i64::MAX / 4);
        self.ahead_us
            .fetch_add(us.min(i64::MAX / 4), Ordering::SeqCst);
    }

    /// Microseconds since 1970 on the virtual clock.
    pub(crate) fn now_us(&self) -> i64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let real = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        real.saturating_add(self.ahead_us.load(Ordering::SeqCst))
    }

    pub(crate) fn note(&self, event: Event) {
        lock(&self.tape).push(event);
    }

    /// How many events there are: the place from which [`since`](Self::since) counts.
    pub(crate) fn mark(&self) -> usize {
        lock(&self.tape).len()
    }

    pub(crate) fn since(&self, mark: usize) -> Vec<Event> {
        lock(&self.tape).iter().skip(mark).cloned().collect()
    }

    /// Requests since a mark.
    pub(crate) fn requests_since(&self, mark: usize) -> Vec<Exchange> {
        self.since(mark)
            .into_iter()
            .filter_map(|event| match event {
                Event::Http(exchange) => Some(exchange),
                _ => None,
            })
            .collect()
    }

    pub(super) fn write_down(&self, request: &LedgerRequest) {
        let mut ledger = lock(&self.ledger);
        let is_same = |known: &SideResource, provider_ref: &str, kind: &str, name: &str| {
            known.provider_ref == provider_ref && known.kind == kind && known.name == name
        };
        match request {
            LedgerRequest::Declare { resource } => {
                let known = ledger.iter_mut().find(|known| {
                    is_same(
                        known,
                        &resource.provider_ref,
                        &resource.kind,
                        &resource.name,
                    )
                });
                match known {
                    Some(known) => *known = resource.clone(),
                    None => ledger.push(resource.clone()),
                }
            }
            LedgerRequest::Settle {
                provider_ref,
                kind,
                name,
            } => ledger.retain(|known| !is_same(known, provider_ref, kind, name)),
        }
    }

    /// What is declared and not settled.
    pub(crate) fn declared(&self) -> Vec<SideResource> {
        lock(&self.ledger).clone()
    }

    /// The host has deleted what was declared for this reference.
    pub(crate) fn forget_declared(&self, provider_ref: &str) {
        lock(&self.ledger).retain(|known| known.provider_ref != provider_ref);
    }
}

//! The numbered services, as a host answers them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dstack_backend_types::catalog::read_csv;
use dstack_backend_types::services::{self as wire, CatalogQuery, CatalogReply};
use dstack_backend_types::{BackendError, ErrorKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Call, Event, Host};

const MAX_RANDOM_BYTES: u32 = 65_536;
/// A call that waits for a cancel which never comes ends after this.
const LONGEST_REAL_WAIT: Duration = Duration::from_secs(20);

fn bad(error: impl std::fmt::Display) -> BackendError {
    BackendError::invalid(format!(
        "a request to the host that is not understood: {error}"
    ))
}

fn read<T: DeserializeOwned>(request: &[u8]) -> Result<T, BackendError> {
    serde_json::from_slice(request).map_err(bad)
}

fn json<T: Serialize>(reply: &T) -> Result<Vec<u8>, BackendError> {
    serde_json::to_vec(reply).map_err(|error| BackendError::internal(error.to_string()))
}

impl Host {
    pub(super) fn answer(
        &self,
        call_id: u64,
        service: u32,
        request: &[u8],
    ) -> Result<Vec<u8>, BackendError> {
        match service {
            wire::DESCRIBE => return describe(),
            wire::NOW => {
                return json(&wire::Now {
                    unix_micros: self.session().now_us(),
                });
            }
            wire::RANDOM => return random(request),
            _ => {}
        }
        let call = self.call(call_id).ok_or_else(|| {
            BackendError::invalid(format!(
                "host service {service} needs the id of a running call, {call_id} is none; a thread of the backend's own enters its call first"
            ))
        })?;
        match service {
            wire::CANCELLED => json(&wire::Cancelled {
                is_cancelled: call.is_cancelled(),
            }),
            wire::CACHE_PUT => {
                let (head, value): (wire::CachePut, _) = wire::unframe(request).map_err(bad)?;
                call.session.cache.put(call.session.now_us(), &head, value);
                json(&())
            }
            // Answers a cancelled call too: what it leaves behind must be written down.
            wire::LEDGER => {
                let request: wire::LedgerRequest = read(request)?;
                if !call.session.settings.has_listing {
                    return Err(BackendError::unsupported(
                        "the ledger is for backends with the capability `resource_listing`: without it nobody could delete what it names",
                    ));
                }
                check_entry(&request)?;
                call.session.write_down(&request);
                call.session.note(Event::Ledger(request));
                json(&())
            }
            _ => {
                call.check()?;
                waiting(&call, service, request)
            }
        }
    }
}

fn waiting(call: &Call, service: u32, request: &[u8]) -> Result<Vec<u8>, BackendError> {
    match service {
        wire::HTTP => crate::http::answer(call, request),
        wire::SLEEP => {
            let request: wire::Sleep = read(request)?;
            if call.session.waits_for_real.load(Ordering::SeqCst) {
                let limit = Duration::from_millis(request.ms).min(LONGEST_REAL_WAIT);
                call.wait_for_cancel(limit)?;
            } else {
                call.wait_virtually(request.ms)?;
            }
            json(&())
        }
        wire::EMIT => {
            let Some(parts) = &call.parts else {
                return Err(BackendError::unsupported("this method does not stream"));
            };
            super::lock(parts).push(request.to_vec());
            json(&())
        }
        wire::CACHE_GET => {
            let found = call.session.cache.get(call, &read(request)?)?;
            let head = wire::CacheAnswer {
                is_found: found.is_some(),
            };
            wire::frame(&head, &found.unwrap_or_default()).map_err(bad)
        }
        wire::CATALOG => catalog(call, &read(request)?),
        wire::SSH => super::ssh::answer(call, request),
        wire::ENVIRONMENT => {
            let asked: wire::EnvironmentRequest = read(request)?;
            let known = &call.session.settings.environment;
            let values = asked
                .names
                .into_iter()
                .filter_map(|name| known.get(&name).map(|value| (name.clone(), value.clone())))
                .collect();
            json(&wire::EnvironmentReply { values })
        }
        _ => Err(BackendError::unsupported(format!(
            "this host has no service {service}"
        ))),
    }
}

fn describe() -> Result<Vec<u8>, BackendError> {
    let services: std::collections::BTreeMap<String, u32> = [
        wire::DESCRIBE,
        wire::HTTP,
        wire::CATALOG,
        wire::CACHE_GET,
        wire::CACHE_PUT,
        wire::NOW,
        wire::RANDOM,
        wire::SLEEP,
        wire::EMIT,
        wire::CANCELLED,
        wire::LEDGER,
        wire::SSH,
        wire::ENVIRONMENT,
    ]
    .into_iter()
    .map(|number| (number.to_string(), 1))
    .collect();
    // The finest log level, so that secrets in traces are seen too.
    json(&json!({
        "host_version": env!("CARGO_PKG_VERSION"),
        "log_level": 5,
        "services": services,
        "agents": {
            "shim": "http://127.0.0.1:9/agents/{version}/{arch}/dstack-shim",
            "runner": "http://127.0.0.1:9/agents/{version}/{arch}/dstack-runner",
            "version": env!("CARGO_PKG_VERSION"),
        },
    }))
}

fn random(request: &[u8]) -> Result<Vec<u8>, BackendError> {
    let request: wire::RandomBytes = read(request)?;
    if request.count > MAX_RANDOM_BYTES {
        return Err(BackendError::invalid(format!(
            "{} random bytes, at most {MAX_RANDOM_BYTES}",
            request.count
        )));
    }
    let count = usize::try_from(request.count).unwrap_or_default();
    let mut bytes = Vec::with_capacity(count + 16);
    while bytes.len() < count {
        // 14 of the 16 bytes of an identifier are random all through.
        let word = *uuid::Uuid::new_v4().as_bytes();
        bytes.extend(
            word.iter()
                .enumerate()
                .filter(|(at, _)| *at != 6 && *at != 8)
                .map(|(_, byte)| *byte),
        );
    }
    bytes.truncate(count);
    Ok(bytes)
}

/// The rules of the ledger.
fn check_entry(request: &wire::LedgerRequest) -> Result<(), BackendError> {
    let (provider_ref, kind, name) = match request {
        wire::LedgerRequest::Declare { resource } => {
            (&resource.provider_ref, &resource.kind, &resource.name)
        }
        wire::LedgerRequest::Settle {
            provider_ref,
            kind,
            name,
        } => (provider_ref, kind, name),
    };
    for (what, value) in [
        ("provider_ref", provider_ref),
        ("kind", kind),
        ("name", name),
    ] {
        if value.is_empty() {
            return Err(BackendError::invalid(format!(
                "an entry of the ledger without {what}"
            )));
        }
    }
    Ok(())
}

fn catalog(call: &Call, query: &CatalogQuery) -> Result<Vec<u8>, BackendError> {
    let missing = |why: String| BackendError::new(ErrorKind::NoCatalog, why);
    let folder = call.session.settings.catalog.as_ref().ok_or_else(|| {
        missing(
            "the suite was given no catalog folder: use `.catalog(folder)` or --catalog".to_owned(),
        )
    })?;
    let is_plain = query
        .provider
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if !is_plain || query.provider.is_empty() {
        return Err(missing(format!(
            "{:?} is no provider's name",
            query.provider
        )));
    }
    let path = folder.join(format!("{}.csv", query.provider));
    let text = std::fs::read_to_string(&path)
        .map_err(|error| missing(format!("{}: {error}", path.display())))?;
    let (items, _) = read_csv(&text);
    let is_asked = |location: &str| {
        query
            .locations
            .as_ref()
            .is_none_or(|all| all.iter().any(|known| known.eq_ignore_ascii_case(location)))
    };
    let items = items
        .into_iter()
        .filter(|item| {
            is_asked(&item.location)
                && query
                    .flags
                    .as_ref()
                    .is_none_or(|flags| item.has_only_flags(flags))
                && query
                    .requirements
                    .as_ref()
                    .is_none_or(|needs| item.fits(needs, query.is_disk_configurable))
        })
        .collect();
    json(&CatalogReply {
        version: None,
        items,
    })
}

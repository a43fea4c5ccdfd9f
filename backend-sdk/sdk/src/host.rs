//! The host's services, from the author's side.
//!
//! Everything a backend does to the outside goes through these, so that a deadline or a shutdown ends it: from then on the
//! services that wait ([`sleep`], [`emit`], [`cache`], [`http`], [`ssh`]) answer an error of kind `cancelled`; pass it on with `?`.
//! Outside of a host they answer `unsupported`, [`now`] is the system's clock and [`cache`] always computes; unit tests have a
//! host of their own in [`testing`](crate::testing).

pub mod cache;
pub mod catalog;
pub mod http;
pub mod ledger;
pub(crate) mod log;
pub mod machine;
pub mod ssh;

use crate::call::Call;
use dstack_backend_abi::{HostServices, RResult, RSlice, RVec};
use dstack_backend_types::{BackendError, Secret, services as wire};
use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    sync::OnceLock,
    time::{Duration, SystemTime},
};

/// One per shared library: each has its own copy of this crate.
static HOST: OnceLock<HostServices> = OnceLock::new();

/// Takes the host's services, once.
pub(crate) fn install(services: HostServices) -> Result<(), BackendError> {
    HOST.set(services)
        .map_err(|_| BackendError::invalid("already initialised"))
}

pub(crate) fn services() -> Option<&'static HostServices> {
    HOST.get()
}

/// Asks a service by its number with raw bytes. The typed functions beside this one are for every day.
///
/// # Errors
/// `unsupported` if the host has no such service, `cancelled` if the call was told to end, else the service's own.
pub fn request(service: u32, request: &[u8]) -> Result<RVec<u8>, BackendError> {
    let Some(host) = HOST.get() else {
        // Nobody has loaded this: an author's test, maybe with a host of its own.
        return crate::testing::answer(service, request)
            .unwrap_or_else(|| {
                Err(BackendError::unsupported(
                    "no host: this is not a loaded backend",
                ))
            })
            .map(RVec::from);
    };
    let call = Call::current().id();
    match (host.request)(host.context, call, service, RSlice::from_slice(request)) {
        RResult::ROk(reply) => Ok(reply),
        RResult::RErr(error) => Err(serde_json::from_slice(error.as_slice()).unwrap_or_else(
            |_| BackendError::internal(format!("host service {service} failed without a reason")),
        )),
    }
}

pub(crate) fn ask<Q: Serialize, A: DeserializeOwned>(
    service: u32,
    query: &Q,
) -> Result<A, BackendError> {
    let reply = request(service, &to_json(query)?)?;
    from_json(reply.as_slice())
}

pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>, BackendError> {
    serde_json::to_vec(value).map_err(|e| BackendError::internal(e.to_string()))
}

pub(crate) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BackendError> {
    serde_json::from_slice(bytes)
        .map_err(|e| BackendError::internal(format!("the host's answer is not understood: {e}")))
}

/// Which services the host has.
///
/// # Errors
/// `unsupported` outside of a host.
pub fn describe() -> Result<wire::Described, BackendError> {
    ask(wire::DESCRIBE, &())
}

/// Where machines download the agents from; `None` if there is no such place: the host then brings them over SSH, and the boot
/// script leaves them out.
///
/// # Errors
/// `unsupported` outside of a host.
pub fn agent_urls() -> Result<Option<dstack_backend_types::AgentUrls>, BackendError> {
    Ok(describe()?.agents)
}

/// Variables of the server's environment, those of them that are set. Only such as stand under `environment` in
/// `export_backend!` are handed over, and none if the administrator has forbidden it.
///
/// Mostly through [`credentials::find`](crate::credentials::find).
///
/// # Errors
/// `auth` if it is forbidden, or for a variable that the manifest does not name; `unsupported` outside of a host.
pub fn environment(names: &[&str]) -> Result<BTreeMap<String, Secret<String>>, BackendError> {
    let query = wire::EnvironmentRequest {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    ask::<_, wire::EnvironmentReply>(wire::ENVIRONMENT, &query).map(|reply| reply.values)
}

/// The host's clock. Tests and the replay of recordings set it.
pub fn now() -> Timestamp {
    let asked = ask::<_, wire::Now>(wire::NOW, &()).ok();
    asked
        .and_then(|now| Timestamp::from_microsecond(now.unix_micros).ok())
        .or_else(|| Timestamp::try_from(SystemTime::now()).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Random bytes, at most 65,536, fit for keys.
///
/// # Errors
/// `unsupported` outside of a host, `invalid` for more.
pub fn random(count: u32) -> Result<Vec<u8>, BackendError> {
    let query = to_json(&wire::RandomBytes { count })?;
    Ok(request(wire::RANDOM, &query)?.as_slice().to_vec())
}

/// Waits.
///
/// # Errors
/// `cancelled` as soon as the call is told to end.
pub fn sleep(duration: Duration) -> Result<(), BackendError> {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    ask(wire::SLEEP, &wire::Sleep { ms })
}

/// Hands over a part of the reply while the call runs; of `get_offers` a `GetOffersReply` with at most 500 offers. Waits if
/// the host is behind. What the method returns at the end is the last part.
///
/// # Errors
/// `cancelled` if nobody waits any more, `unsupported` if the method does not stream.
pub fn emit<T: Serialize>(part: &T) -> Result<(), BackendError> {
    request(wire::EMIT, &to_json(part)?).map(|_| ())
}

/// Whether the call should end. Loops that ask no waiting service look here now and then.
pub fn is_cancelled() -> bool {
    ask::<_, wire::Cancelled>(wire::CANCELLED, &()).is_ok_and(|answer| answer.is_cancelled)
}

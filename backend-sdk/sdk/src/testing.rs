//! A host for unit tests: a provider made of a closure, a clock that jumps, a cache, a ledger.
//!
//! Nothing listens and nothing waits: requests over [`http`](crate::http) and [`rest`](crate::rest) go to the test's provider,
//! [`sleep`](crate::host::sleep) moves the clock. A loaded backend never comes here, its host answers.
//!
//! ```
//! use dstack_backend_sdk::rest::Rest;
//! use dstack_backend_sdk::testing::{Host, Reply, Request};
//! use serde_json::{Value, json};
//!
//! let host = Host::new(|request: &Request| match (request.method.as_str(), request.path.as_str()) {
//!     ("GET", "/servers") => Reply::json(200, &json!([])),
//!     _ => Reply::json(404, &json!({"message": "no such thing"})),
//! });
//! let api = Rest::new("https://api.acme.example");
//! let servers: Vec<Value> = api.get("/servers").fetch().unwrap();
//! assert!(servers.is_empty());
//! assert_eq!(host.requests()[0].path, "/servers");
//! ```

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dstack_backend_types::{BackendError, ErrorKind, services as wire};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::call::{Call, Entered};

/// The first moment of a test's clock, microseconds since 1970: 2026-01-01.
const BEGIN_MICROS: i64 = 1_767_225_600_000_000;
/// Numbers of tests' calls; high, so that none is taken for a real one.
static NEXT_CALL: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1 << 60);
static HOSTS: Mutex<BTreeMap<u64, Arc<State>>> = Mutex::new(BTreeMap::new());

/// A request as the test's provider gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST` and so on.
    pub method: String,
    /// Scheme, host and port: `https://api.acme.example`.
    pub origin: String,
    /// Begins with `/`; as it was sent, still encoded.
    pub path: String,
    /// Without `?`; as it was sent, still encoded.
    pub query: String,
    /// In order; names as they were sent.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// The first header of this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The first value of this key in the query, still encoded.
    pub fn query(&self, key: &str) -> Option<&str> {
        let mut pairs = self
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(known, _)| *known == key)
            .map(|(_, value)| value)
    }

    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Words of the path: `["servers", "7"]`.
    pub fn words(&self) -> Vec<&str> {
        let words = self.path.split('/').filter(|word| !word.is_empty());
        words.collect()
    }
}

/// What the test's provider answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status; 0 cuts the connection.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// A JSON body.
    pub fn json(status: u16, value: &Value) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: value.to_string().into_bytes(),
        }
    }

    /// No body.
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// The connection ends without an answer.
    pub fn cut() -> Self {
        Self::status(0)
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

type Provider = dyn FnMut(&Request) -> Reply + Send;

/// Answers a command over SSH: the request and its standard input in; head, standard output and standard error out.
type Ssh = dyn FnMut(&wire::SshRequest, &[u8]) -> Result<(wire::SshReply, Vec<u8>, Vec<u8>), BackendError>
    + Send;

struct State {
    provider: Mutex<Box<Provider>>,
    ssh: Mutex<Option<Box<Ssh>>>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    elapsed: Duration,
    is_cancelled: bool,
    requests: Vec<Request>,
    cache: BTreeMap<String, Vec<u8>>,
    ledger: Vec<Value>,
    chunks: Vec<Value>,
    answers: BTreeMap<u32, Value>,
}

/// A host for this thread, and for threads that take [`Call::current`] along, until it is dropped.
pub struct Host {
    state: Arc<State>,
    call: u64,
    _entered: Entered,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "testing::Host({})", self.call)
    }
}

impl Host {
    /// A host whose network is `provider`.
    pub fn new(provider: impl FnMut(&Request) -> Reply + Send + 'static) -> Self {
        let state = Arc::new(State {
            provider: Mutex::new(Box::new(provider)),
            ssh: Mutex::default(),
            inner: Mutex::default(),
        });
        let call = NEXT_CALL.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        lock(&HOSTS).insert(call, Arc::clone(&state));
        Self {
            state,
            call,
            _entered: Call::new(call).enter(),
        }
    }

    /// Answers commands over SSH: the request and its standard input in; head, standard output and standard error out.
    pub fn ssh(
        &self,
        answer: impl FnMut(
            &wire::SshRequest,
            &[u8],
        ) -> Result<(wire::SshReply, Vec<u8>, Vec<u8>), BackendError>
        + Send
        + 'static,
    ) {
        *lock(&self.state.ssh) = Some(Box::new(answer));
    }

    /// What was asked of the provider so far, in order.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.state.inner).requests.clone()
    }

    /// How long was waited so far, by the test's clock.
    pub fn waited(&self) -> Duration {
        lock(&self.state.inner).elapsed
    }

    /// What was written into the ledger so far, as it crossed the border.
    pub fn ledger(&self) -> Vec<Value> {
        lock(&self.state.inner).ledger.clone()
    }

    /// What was handed over by [`emit`](crate::host::emit) so far.
    pub fn emitted(&self) -> Vec<Value> {
        lock(&self.state.inner).chunks.clone()
    }

    /// Tells the call to end: services that wait answer `cancelled` from now on.
    pub fn cancel(&self) {
        lock(&self.state.inner).is_cancelled = true;
    }

    /// What a service answers that this host does not know, by the service's number.
    pub fn answer(&self, service: u32, answer: &impl Serialize) {
        let value = serde_json::to_value(answer).unwrap_or_default();
        lock(&self.state.inner).answers.insert(service, value);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        lock(&HOSTS).remove(&self.call);
    }
}

/// A test that failed while it held a lock has said so.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers a service of the test that this thread works for; `None` if it works for none.
pub(crate) fn answer(service: u32, request: &[u8]) -> Option<Result<Vec<u8>, BackendError>> {
    let state = lock(&HOSTS).get(&Call::current().id()).cloned()?;
    Some(state.answer(service, request))
}

impl State {
    fn answer(&self, service: u32, request: &[u8]) -> Result<Vec<u8>, BackendError> {
        let waits = matches!(
            service,
            wire::HTTP | wire::SLEEP | wire::EMIT | wire::CACHE_GET | wire::SSH | wire::CATALOG
        );
        if waits && lock(&self.inner).is_cancelled {
            return Err(BackendError::new(
                ErrorKind::Cancelled,
                "the call was told to end",
            ));
        }
        if let Some(answer) = lock(&self.inner).answers.get(&service) {
            return json(answer);
        }
        match service {
            wire::HTTP => self.http(request),
            wire::SSH => self.command(request),
            wire::NOW => {
                let elapsed = lock(&self.inner).elapsed.as_micros();
                let elapsed = i64::try_from(elapsed).unwrap_or(i64::MAX);
                json(&wire::Now {
                    unix_micros: BEGIN_MICROS.saturating_add(elapsed),
                })
            }
            wire::SLEEP => {
                let sleep: wire::Sleep = read(request)?;
                lock(&self.inner).elapsed += Duration::from_millis(sleep.ms);
                json(&())
            }
            wire::RANDOM => {
                let random: wire::RandomBytes = read(request)?;
                Ok(vec![0; usize::try_from(random.count).unwrap_or_default()])
            }
            wire::CANCELLED => json(&wire::Cancelled {
                is_cancelled: lock(&self.inner).is_cancelled,
            }),
            wire::CACHE_GET => {
                let get: wire::CacheGet = read(request)?;
                let value = lock(&self.inner).cache.get(&get.key).cloned();
                let head = wire::CacheAnswer {
                    is_found: value.is_some(),
                };
                wire::frame(&head, &value.unwrap_or_default()).map_err(bad)
            }
            wire::CACHE_PUT => {
                let (put, value): (wire::CachePut, _) = wire::unframe(request).map_err(bad)?;
                lock(&self.inner).cache.insert(put.key, value.to_vec());
                json(&())
            }
            wire::EMIT => {
                lock(&self.inner).chunks.push(read(request)?);
                json(&())
            }
            wire::LEDGER => {
                lock(&self.inner).ledger.push(read(request)?);
                json(&())
            }
            other => Err(BackendError::unsupported(format!(
                "this test's host has no service {other}"
            ))),
        }
    }

    fn command(&self, request: &[u8]) -> Result<Vec<u8>, BackendError> {
        let (head, input): (wire::SshRequest, _) = wire::unframe(request).map_err(bad)?;
        let mut ssh = lock(&self.ssh);
        let Some(answer) = ssh.as_mut() else {
            return Err(BackendError::unsupported(
                "this test's host has no SSH: use `Host::ssh`",
            ));
        };
        let (mut reply, stdout, stderr) = answer(&head, input)?;
        reply.stdout_bytes = u64::try_from(stdout.len()).unwrap_or_default();
        wire::frame(&reply, &[stdout, stderr].concat()).map_err(bad)
    }

    fn http(&self, request: &[u8]) -> Result<Vec<u8>, BackendError> {
        let (head, body): (wire::HttpRequest, _) = wire::unframe(request).map_err(bad)?;
        let (scheme, rest) = head.url.split_once("://").unwrap_or(("", &head.url));
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = before.split_once('/').unwrap_or((before, ""));
        let request = Request {
            method: head.method,
            origin: format!("{scheme}://{host}"),
            path: format!("/{path}"),
            query: query.to_owned(),
            headers: head.headers,
            body: body.to_vec(),
        };
        lock(&self.inner).requests.push(request.clone());
        let reply = (lock(&self.provider))(&request);
        if reply.status == 0 {
            return Err(BackendError::new(
                ErrorKind::Transport,
                "the connection was cut",
            ));
        }
        let head = wire::HttpReply {
            status: reply.status,
            headers: reply.headers,
            ..wire::HttpReply::default()
        };
        wire::frame(&head, &reply.body).map_err(bad)
    }
}

fn bad(error: serde_json::Error) -> BackendError {
    BackendError::invalid(format!("a request that is not understood: {error}"))
}

fn read<T: DeserializeOwned>(request: &[u8]) -> Result<T, BackendError> {
    serde_json::from_slice(request).map_err(bad)
}

fn json<T: Serialize>(value: &T) -> Result<Vec<u8>, BackendError> {
    serde_json::to_vec(value).map_err(bad)
}

//! A cloud for tests: a small HTTP server with a state and routes, scripted by its author.
//!
//! ```
//! use dstack_backend_conformance::provider::{FakeProvider, Reply, Resource, Scenario};
//! use serde_json::json;
//!
//! #[derive(Default)]
//! struct Cloud {
//!     servers: Vec<String>,
//! }
//!
//! let provider = FakeProvider::new(Cloud::default)
//!     // Before every route: who may ask.
//!     .guard(|_, request| (request.bearer() != Some("secret")).then(|| Reply::empty(401)))
//!     .route("POST /servers", |cloud, request| {
//!         let name = request.json()["name"].as_str().unwrap_or_default().to_owned();
//!         cloud.servers.push(name.clone());
//!         Reply::json(201, &json!({"id": name}))
//!     })
//!     .route("GET /servers/{id}", |cloud, request| match cloud.servers.iter().find(|id| *id == request.param("id")) {
//!         Some(id) => Reply::json(200, &json!({"id": id})),
//!         None => Reply::empty(404),
//!     })
//!     // What stands at the provider now: the suite looks for things that were left behind.
//!     .inventory(|cloud| cloud.servers.iter().map(|id| Resource::new("server", id)).collect())
//!     // How this provider says that it has no machine left.
//!     .scenario(Scenario::NoCapacity, |_, request| {
//!         (request.is("POST /servers")).then(|| Reply::json(409, &json!({"code": "sold_out"})))
//!     })
//!     .start();
//!
//! assert!(provider.url().starts_with("http://127.0.0.1:"));
//! assert_eq!(provider.with(|cloud: &mut Cloud| cloud.servers.len()), 0);
//! ```
//!
//! The state is made anew when a check begins. Handlers run one at a time. The server ends when [`Provider`] is dropped.

mod control;
mod message;
mod program;
mod route;
mod server;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use control::{Resource, Scenario};
pub use message::{Reply, Request};
pub(crate) use program::Program;
pub use program::beside;

use route::Pattern;

/// Everything that crosses this prefix is between the suite and the fake provider.
pub(crate) const CONTROL: &str = "/_conformance";

type State = Box<dyn Any + Send>;
type Handler = Box<dyn Fn(&mut State, &Request) -> Reply + Send + Sync>;
type Maybe = Box<dyn Fn(&mut State, &Request) -> Option<Reply> + Send + Sync>;
type Inventory = Box<dyn Fn(&mut State) -> Vec<Resource> + Send + Sync>;

/// What the author scripted, with the state's type erased.
struct Script {
    make: Box<dyn Fn() -> State + Send + Sync>,
    guards: Vec<Maybe>,
    routes: Vec<(Pattern, Handler)>,
    scenarios: BTreeMap<Scenario, Maybe>,
    inventory: Option<Inventory>,
}

/// What changes while it runs.
struct Live {
    state: State,
    scenario: Option<Scenario>,
    requests: Vec<Request>,
}

struct Shared {
    script: Script,
    live: Mutex<Live>,
    is_ending: AtomicBool,
}

/// Describes a fake provider whose state is an `S`.
pub struct FakeProvider<S> {
    script: Script,
    of: PhantomData<fn(S)>,
}

impl<S> fmt::Debug for FakeProvider<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes: Vec<String> = self
            .script
            .routes
            .iter()
            .map(|(pattern, _)| pattern.to_string())
            .collect();
        f.debug_struct("FakeProvider")
            .field("routes", &routes)
            .finish_non_exhaustive()
    }
}

/// The state behind its erased type.
fn typed<S: Send + 'static>(state: &mut State) -> &mut S {
    state
        .downcast_mut()
        .expect("the state was made by this provider's own function")
}

impl<S: Send + 'static> FakeProvider<S> {
    /// A provider without routes; `make` makes its state, now and whenever a check begins.
    pub fn new(make: impl Fn() -> S + Send + Sync + 'static) -> Self {
        Self {
            script: Script {
                make: Box::new(move || Box::new(make())),
                guards: Vec::new(),
                routes: Vec::new(),
                scenarios: BTreeMap::new(),
                inventory: None,
            },
            of: PhantomData,
        }
    }

    /// Asked before the routes, in order: the first reply is sent instead of the route's. Checks of credentials stand here.
    #[must_use]
    pub fn guard(
        mut self,
        guard: impl Fn(&mut S, &Request) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let guard: Maybe = Box::new(move |state, request| guard(typed(state), request));
        self.script.guards.push(guard);
        self
    }

    /// Answers requests like `"GET /servers/{id}"`: a method, or `*` for any, and a path. `{name}` stands for one segment,
    /// `{name..}` at the end for all that is left. The first route that fits answers; none is 404.
    #[must_use]
    pub fn route(
        mut self,
        pattern: &str,
        handler: impl Fn(&mut S, &Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let handler: Handler = Box::new(move |state, request| handler(typed(state), request));
        self.script.routes.push((Pattern::new(pattern), handler));
        self
    }

    /// All that stands at the provider and costs or blocks something: machines, disks, keys, addresses. The suite compares
    /// it before and after.
    #[must_use]
    pub fn inventory(
        mut self,
        inventory: impl Fn(&mut S) -> Vec<Resource> + Send + Sync + 'static,
    ) -> Self {
        self.script.inventory = Some(Box::new(move |state| inventory(typed(state))));
        self
    }

    /// How this provider behaves in a [`Scenario`]: asked after the guards, before the routes, while the scenario is on.
    /// It may change the state and still leave the answer to the route (`None`).
    #[must_use]
    pub fn scenario(
        mut self,
        scenario: Scenario,
        answer: impl Fn(&mut S, &Request) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let answer: Maybe = Box::new(move |state, request| answer(typed(state), request));
        self.script.scenarios.insert(scenario, answer);
        self
    }

    /// Serves on a free port of this machine.
    ///
    /// # Panics
    /// If no port can be opened.
    #[must_use]
    pub fn start(self) -> Provider {
        let listener =
            TcpListener::bind(("127.0.0.1", 0)).expect("a free port of this machine can be opened");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let state = (self.script.make)();
        let shared = Arc::new(Shared {
            script: self.script,
            live: Mutex::new(Live {
                state,
                scenario: None,
                requests: Vec::new(),
            }),
            is_ending: AtomicBool::new(false),
        });
        server::serve(listener, Arc::clone(&shared));
        Provider {
            url: format!("http://{address}"),
            shared,
        }
    }
}

/// A running fake provider. It ends when this is dropped.
pub struct Provider {
    url: String,
    shared: Arc<Shared>,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Provider({})", self.url)
    }
}

impl Provider {
    /// Where it answers: `http://127.0.0.1:<port>`, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Looks at the state, or changes it.
    ///
    /// # Panics
    /// If the provider was not made with an `S`.
    pub fn with<S: Send + 'static, T>(&self, look: impl FnOnce(&mut S) -> T) -> T {
        let mut live = self
            .shared
            .live
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        look(typed(&mut live.state))
    }

    /// All requests since the state was made, in order; those of the suite itself are not among them.
    pub fn requests(&self) -> Vec<Request> {
        let live = self
            .shared
            .live
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        live.requests.clone()
    }

    /// Makes the state anew and ends every scenario, as before each check.
    pub fn reset(&self) {
        self.shared.reset();
    }

    /// Switches a scenario on, or off with `None`. `false` if it is not scripted.
    pub fn play(&self, scenario: Option<Scenario>) -> bool {
        self.shared.play(scenario)
    }

    /// What stands there now; `None` if no inventory was scripted.
    pub fn stands(&self) -> Option<Vec<Resource>> {
        self.shared.stands()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        server::wake(&self.url);
    }
}

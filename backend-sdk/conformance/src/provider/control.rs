//! What the suite asks of a fake provider beside the provider's own routes.
//!
//! | request | what |
//! |---|---|
//! | `POST /_conformance/reset` | makes the state anew |
//! | `GET /_conformance/inventory` | list of [`Resource`]; 404 if the provider has none |
//! | `PUT /_conformance/scenario/<name>` | switches a [`Scenario`] on; 404 if it is not scripted |
//! | `DELETE /_conformance/scenario` | switches it off |
//!
//! A fake provider in another language joins in by answering these.

use std::sync::PoisonError;

use serde::{Deserialize, Serialize};

use super::{CONTROL, Live, Reply, Request, Shared};

/// Something that stands at the provider.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resource {
    /// The provider's word: `server`, `disk`, `ssh_key`.
    pub kind: String,
    /// The provider's id.
    pub id: String,
    /// The `provider_ref` on it (tag, or end of the name), if there is one.
    #[serde(default)]
    pub provider_ref: Option<String>,
}

impl Resource {
    /// A resource without a reference.
    pub fn new(kind: &str, id: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            id: id.into(),
            provider_ref: None,
        }
    }
    /// With the reference that it carries.
    #[must_use]
    pub fn with_ref(mut self, provider_ref: Option<impl Into<String>>) -> Self {
        self.provider_ref = provider_ref.map(Into::into);
        self
    }
}

/// What only the provider's author can script, since each provider has its own words for it. Everything else that goes
/// wrong (slow answers, 401, 429, 5xx, cut connections, lost answers) the suite does itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scenario {
    /// Creating a machine is refused at once: nothing free.
    NoCapacity,
    /// Creating is accepted, but the machine then fails for want of capacity.
    NoCapacityLate,
    /// Creating is refused by a limit of the account.
    Quota,
    /// Volumes cannot be made: a limit of the account.
    VolumeQuota,
}

impl Scenario {
    /// The word of the control request.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoCapacity => "no_capacity",
            Self::NoCapacityLate => "no_capacity_late",
            Self::Quota => "quota",
            Self::VolumeQuota => "volume_quota",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [
            Self::NoCapacity,
            Self::NoCapacityLate,
            Self::Quota,
            Self::VolumeQuota,
        ]
        .into_iter()
        .find(|scenario| scenario.as_str() == word)
    }
}

impl Shared {
    pub(super) fn reset(&self) {
        let state = (self.script.make)();
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        *live = Live {
            state,
            scenario: None,
            requests: Vec::new(),
        };
    }

    pub(super) fn play(&self, scenario: Option<Scenario>) -> bool {
        let is_known =
            scenario.is_none_or(|scenario| self.script.scenarios.contains_key(&scenario));
        if is_known {
            let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            live.scenario = scenario;
        }
        is_known
    }

    pub(super) fn stands(&self) -> Option<Vec<Resource>> {
        let inventory = self.script.inventory.as_ref()?;
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        Some(inventory(&mut live.state))
    }

    /// A request of the suite.
    pub(super) fn control(&self, request: &Request, rest: &str) -> Reply {
        let done = |is_done: bool| Reply::empty(if is_done { 204 } else { 404 });
        match (request.method(), rest) {
            ("POST", "/reset") => {
                self.reset();
                Reply::empty(204)
            }
            ("GET", "/inventory") => match self.stands() {
                Some(resources) => Reply::json(200, &resources),
                None => Reply::empty(404),
            },
            ("DELETE", "/scenario") => done(self.play(None)),
            ("PUT", path) => {
                let scenario = path.strip_prefix("/scenario/").and_then(Scenario::parse);
                done(scenario.is_some() && self.play(scenario))
            }
            _ => Reply::text(404, &format!("{CONTROL}{rest} is no control request")),
        }
    }

    /// Guards, then the scenario, then the routes.
    pub(super) fn answer(&self, mut request: Request) -> Reply {
        if let Some(rest) = request.path.strip_prefix(CONTROL) {
            return self.control(&request, rest);
        }
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let live = &mut *live;
        live.requests.push(request.clone());
        for guard in &self.script.guards {
            if let Some(reply) = guard(&mut live.state, &request) {
                return reply;
            }
        }
        let scenario = live
            .scenario
            .and_then(|scenario| self.script.scenarios.get(&scenario));
        if let Some(reply) = scenario.and_then(|answer| answer(&mut live.state, &request)) {
            return reply;
        }
        for (pattern, handler) in &self.script.routes {
            if let Some(params) = pattern.params_of(&request.method, &request.path) {
                request.params = params;
                return handler(&mut live.state, &request);
            }
        }
        let text = format!(
            "the fake provider has no route for {} {}",
            request.method, request.path
        );
        Reply::text(404, &text)
    }
}

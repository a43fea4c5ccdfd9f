//! Profile parameters: where and how to provision. Shared by runs, presets and `profiles.yml`.

use std::collections::{BTreeMap, BTreeSet};

use dstack_backend_types::BackendType;
use dstack_backend_types::deserialize_by_value;
use dstack_backend_types::reading::{Failed, FromValue, Reader, describe};
use serde::Serialize;
use serde_json::{Value, json};

use super::cron::{self, Cron};
use super::duration::{self, Limit};
use super::object::config;
use super::references::{EntityReference, InstanceSelector, Tags, tags};
use super::schema::{grammar, parts, scalars};
use super::words::{
    CreationPolicy, SpotPolicy, StartupOrder, StopCriteria, VastAi, VastAiOfferOrder,
};
use crate::jobs::{Retry, RetryEvent};

/// Seconds of the retry window when none is given.
pub const DEFAULT_RETRY_SECONDS: i64 = 3600;
/// Seconds a job gets to end after it was asked to, when none are given.
pub const DEFAULT_STOP_SECONDS: i64 = 300;
/// Seconds an instance made for a run is kept idle, when none are given.
pub const DEFAULT_RUN_IDLE_SECONDS: i64 = 300;
/// Seconds an instance of a fleet is kept idle, when none are given.
pub const DEFAULT_FLEET_IDLE_SECONDS: i64 = 259_200;

config! {
    /// Where and how to provision. `None` leaves the choice to whoever merges next.
    #[derive(Default)]
    pub struct ProfileParams {
        /// Backends to look at.
        pub backends: Option<Vec<BackendType>> = optional,
        /// Regions to look at, in any case.
        pub regions: Option<Vec<String>> = optional,
        /// Zones to look at, in any case.
        pub availability_zones: Option<Vec<String>> = optional,
        /// Instance types to look at, in any case.
        pub instance_types: Option<Vec<String>> = optional,
        /// Reserved capacity to use.
        pub reservation: Option<String> = optional,
        /// Price model; unset means on-demand.
        pub spot_policy: Option<SpotPolicy> = optional,
        /// With `spot_policy: auto`, how many spot offers are tried before regular ones; unset means that the price alone
        /// decides. Ours, absent in JSON when unset.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub spot_tries: Option<u32> = optional(super::task::at_least_one, parts::integer(1, i64::from(u32::MAX))),
        /// Whether and when to try again.
        pub retry: Option<ProfileRetry> = optional,
        /// Seconds a job may run; unset and off mean for ever.
        pub max_duration: Option<Limit> = default(None, duration::limit, scalars::limit),
        /// Seconds a job gets to end by itself; unset means 300.
        pub stop_duration: Option<Limit> = default(None, duration::limit, scalars::limit),
        /// US dollars an hour for the whole machine, above 0.
        pub max_price: Option<f64> = optional(price, scalars::above_zero),
        /// Whether machines may be made; unset means yes.
        pub creation_policy: Option<CreationPolicy> = optional,
        /// Seconds an idle instance is kept, negative for good. Unset: 300 for runs, 259,200 for fleets.
        pub idle_duration: Option<i64> = default(None, duration::idle, scalars::idle),
        /// When a run counts as wasting its GPUs.
        pub utilization_policy: Option<UtilizationPolicy> = optional,
        /// In which order nodes start; unset means any.
        pub startup_order: Option<StartupOrder> = optional,
        /// When several nodes are done; unset means when all are.
        pub stop_criteria: Option<StopCriteria> = optional,
        /// When to start.
        pub schedule: Option<Schedule> = optional,
        /// Fleets to use.
        pub fleets: Option<Vec<EntityReference>> = optional,
        /// Existing instances to use; then nothing else is used.
        pub instances: Option<Vec<InstanceSelector>> = optional(instances, grammar::instances),
        /// Tags for what the provider makes.
        pub tags: Option<Tags> = optional(tags, scalars::tags),
        /// Options of single backends, one entry each.
        pub backend_options: Option<Vec<BackendOptions>> = optional(backend_options),
    }
}

/// A price above 0.
pub(super) fn price(value: &Value, cx: &mut Reader) -> Result<f64, Failed> {
    match f64::from_value(value, cx)? {
        price if price > 0.0 => Ok(price),
        price => Err(cx.fail(format!("a price must be above 0, got {price}"))),
    }
}

fn instances(value: &Value, cx: &mut Reader) -> Result<Vec<InstanceSelector>, Failed> {
    match Vec::from_value(value, cx)? {
        list if list.is_empty() => Err(cx.fail("at least one instance is needed")),
        list => Ok(list),
    }
}

macro_rules! merge_fields {
    ($($field:ident),+) => {
        impl ProfileParams {
            /// Lets every parameter that `over` sets replace the own one as a whole.
            pub fn merge(&mut self, over: &Self) {
                $( if over.$field.is_some() { self.$field.clone_from(&over.$field); } )+
            }
        }
    };
}
merge_fields!(
    backends,
    regions,
    availability_zones,
    instance_types,
    reservation,
    spot_policy,
    spot_tries,
    retry,
    max_duration,
    stop_duration,
    max_price,
    creation_policy,
    idle_duration,
    utilization_policy,
    startup_order,
    stop_criteria,
    schedule,
    fleets,
    instances,
    tags,
    backend_options
);

impl ProfileParams {
    /// The retry in force, if any.
    pub fn effective_retry(&self) -> Option<Retry> {
        self.retry.as_ref().and_then(ProfileRetry::effective)
    }

    /// What `Requirements` say about spot: `None` for both kinds.
    pub fn requires_spot(&self) -> Option<bool> {
        match self.spot_policy {
            Some(SpotPolicy::Auto) => None,
            Some(SpotPolicy::Spot) => Some(true),
            Some(SpotPolicy::OnDemand) | None => Some(false),
        }
    }

    /// Seconds an idle instance is kept, `None` for good.
    pub fn idle_seconds(&self, default: i64) -> Option<i64> {
        Some(self.idle_duration.unwrap_or(default)).filter(|seconds| *seconds >= 0)
    }
}

/// What a person says about retries: on, off, or in detail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ProfileRetry {
    /// All events for an hour, or never.
    Switch(bool),
    /// In detail; what is unset has the same defaults.
    Detail {
        /// What to react to.
        on_events: Option<Vec<RetryEvent>>,
        /// Seconds of the window.
        duration: Option<i64>,
        /// How often at most, at least once; unset means as often as the window allows. Ours.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_attempts: Option<u32>,
    },
}

impl ProfileRetry {
    /// The rule in force, if any.
    pub fn effective(&self) -> Option<Retry> {
        let (on_events, duration, max_attempts) = match self {
            Self::Switch(false) => return None,
            Self::Switch(true) => (None, None, None),
            Self::Detail {
                on_events,
                duration,
                max_attempts,
            } => (on_events.clone(), *duration, *max_attempts),
        };
        Some(Retry {
            on_events: on_events.unwrap_or_else(|| RetryEvent::ALL.to_vec()),
            duration: duration.unwrap_or(DEFAULT_RETRY_SECONDS),
            max_attempts,
        })
    }
}

impl FromValue for ProfileRetry {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        match value {
            Value::Object(_) => {
                let mut obj = cx.object(value)?;
                let on_events = obj.optional_with("on_events", cx, |value, cx| {
                    match Vec::from_value(value, cx)? {
                        list if list.is_empty() => Err(
                            cx.fail("at least one event is needed; write `retry: false` for none")
                        ),
                        list => Ok(list),
                    }
                });
                let duration = obj.optional_with("duration", cx, duration::any);
                let max_attempts = obj.optional_with("max_attempts", cx, super::task::at_least_one);
                obj.finish(cx)?;
                Ok(Self::Detail {
                    on_events: on_events?,
                    duration: duration?,
                    max_attempts: max_attempts?,
                })
            }
            Value::Bool(on) => Ok(Self::Switch(*on)),
            other => match bool::from_value(other, &mut Reader::new(cx.mode())) {
                Ok(on) => Ok(Self::Switch(on)),
                Err(_) => Err(cx.fail(format!(
                    "expected true, false or a mapping with `on_events` and `duration`, got {}",
                    describe(other)
                ))),
            },
        }
    }
}

config! {
    /// When a run counts as wasting its GPUs.
    pub struct UtilizationPolicy {
        /// Per cent that every GPU must stay under.
        pub min_gpu_utilization: u32 = required(|value, cx| cx.integer_in(value, 0, 100), parts::integer(0, 100)),
        /// For so many seconds, at least 300.
        pub time_window: i64 = required(duration::at_least(300), scalars::duration_from(300)),
    }
}

config! {
    /// When a run starts.
    pub struct Schedule {
        /// In UTC; the earliest counts.
        pub cron: Vec<Cron> = required(cron::some, scalars::crons),
    }
}

/// Options of one backend. Backends this version does not know keep theirs as they are.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum BackendOptions {
    /// Vast.ai.
    VastAi(VastAiOptions),
    /// Any other, with its `type`.
    Other(BTreeMap<String, Value>),
}

config! {
    /// Options of Vast.ai.
    pub struct VastAiOptions {
        /// Always `vastai`.
        #[serde(rename = "type")]
        pub kind: VastAi = named("type", default(VastAi::VastAi)),
        /// How to sort; unset means by score.
        pub offer_order: Option<VastAiOfferOrder> = optional,
        /// From 0 to 1; unset means 0.9.
        pub min_reliability: Option<f64> = optional(fraction, parts::number(json!({"minimum": 0, "maximum": 1}))),
        /// 0 or more.
        pub min_score: Option<i64> = optional(|value, cx| cx.integer_in(value, 0, i64::MAX), parts::integer(0, i64::MAX)),
    }
}

fn fraction(value: &Value, cx: &mut Reader) -> Result<f64, Failed> {
    match f64::from_value(value, cx)? {
        number if (0.0..=1.0).contains(&number) => Ok(number),
        number => Err(cx.fail(format!("expected a number from 0 to 1, got {number}"))),
    }
}

impl BackendOptions {
    /// Which backend.
    pub fn backend(&self) -> &str {
        match self {
            Self::VastAi(_) => VastAi::VastAi.as_str(),
            Self::Other(fields) => fields
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or_default(),
        }
    }
}

impl FromValue for BackendOptions {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let backend: BackendType = {
            let mut obj = cx.object(value)?;
            obj.required("type", cx)?
        };
        if backend == "vastai" {
            return VastAiOptions::from_value(value, cx).map(Self::VastAi);
        }
        if backend.facts().is_some() {
            let message = format!("the backend {backend} has no options; `vastai` has");
            return Err(cx.fail_at("type", message));
        }
        BTreeMap::from_value(value, cx).map(Self::Other)
    }
}

pub(super) fn backend_options(
    value: &Value,
    cx: &mut Reader,
) -> Result<Vec<BackendOptions>, Failed> {
    let list: Vec<BackendOptions> = Vec::from_value(value, cx)?;
    let mut seen = BTreeSet::new();
    for options in &list {
        if !seen.insert(options.backend()) {
            return Err(cx.fail(format!("options of {} are given twice", options.backend())));
        }
    }
    Ok(list)
}

config! {
    /// An entry of `profiles.yml`.
    #[derive(Default)]
    pub struct Profile {
        /// The parameters.
        #[serde(flatten)]
        pub params: ProfileParams = flat,
        /// Its name; `default` for the empty one.
        pub name: String = default(String::new()),
        /// Whether it applies where no profile is named.
        pub default: bool = default(false),
    }
}

impl Profile {
    /// A profile without any parameter.
    pub fn empty(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }
}

config! {
    /// The file `profiles.yml`.
    pub struct ProfilesConfig {
        /// Its entries.
        pub profiles: Vec<Profile> = required,
    }
}

impl ProfilesConfig {
    /// The entry of this name.
    pub fn named(&self, name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }

    /// The first entry that is marked as default.
    pub fn default_entry(&self) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.default)
    }
}

deserialize_by_value!(ProfileRetry, BackendOptions);

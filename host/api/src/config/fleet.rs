//! Fleets.

use dstack_backend_types::reading::{Failed, FromValue, Reader, describe};
use dstack_backend_types::resources::ResourcesSpec;
use dstack_backend_types::{BackendType, deserialize_by_value};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::duration;
use super::env::Env;
use super::object::config;
use super::profile::{BackendOptions, ProfileParams, ProfileRetry, backend_options, price};
use super::references::{Tags, tags};
use super::schema::scalars;
use super::ssh::SshParams;
use super::words::{FleetTag, Placement, SpotPolicy};

config! {
    /// Instances that are kept for runs: made in clouds, or own hosts reached by SSH.
    pub struct FleetConfiguration {
        /// Always `fleet`.
        #[serde(rename = "type")]
        pub kind: FleetTag = named("type", default(FleetTag::Fleet)),
        /// Its name; unset means that the server makes one.
        pub name: Option<String> = optional,
        /// How the instances lie to each other; unset means anywhere.
        pub placement: Option<Placement> = optional,
        /// Into how many parts each instance is split.
        pub blocks: Blocks = default(Blocks::Count(1)),
        /// How many instances of clouds; excludes `ssh_config`.
        pub nodes: Option<FleetNodes> = optional,
        /// Reserved capacity to use.
        pub reservation: Option<String> = optional,
        /// What is asked of each machine; unset means anything.
        pub resources: Option<ResourcesSpec> = optional,
        /// Backends to look at.
        pub backends: Option<Vec<BackendType>> = optional,
        /// Regions to look at, in any case.
        pub regions: Option<Vec<String>> = optional,
        /// Zones to look at, in any case.
        pub availability_zones: Option<Vec<String>> = optional,
        /// Instance types to look at, in any case.
        pub instance_types: Option<Vec<String>> = optional,
        /// Price model; unset means on-demand.
        pub spot_policy: Option<SpotPolicy> = optional,
        /// Whether and when to try again; unset means never.
        pub retry: Option<ProfileRetry> = optional,
        /// US dollars an hour for a machine, above 0.
        pub max_price: Option<f64> = optional(price, scalars::above_zero),
        /// Seconds an idle instance is kept, negative for good; unset means 259,200.
        pub idle_duration: Option<i64> = default(None, duration::idle, scalars::idle),
        /// Tags for what the provider makes.
        pub tags: Option<Tags> = optional(tags, scalars::tags),
        /// Options of single backends, one entry each.
        pub backend_options: Option<Vec<BackendOptions>> = optional(backend_options),
        /// Own hosts; excludes `nodes`.
        pub ssh_config: Option<SshParams> = optional,
        /// Variables of the shim on own hosts.
        pub env: Env = default(Env::default()),
    }
}

impl FleetConfiguration {
    /// The profile parameters the fleet sets itself.
    pub fn profile(&self) -> ProfileParams {
        ProfileParams {
            backends: self.backends.clone(),
            regions: self.regions.clone(),
            availability_zones: self.availability_zones.clone(),
            instance_types: self.instance_types.clone(),
            reservation: self.reservation.clone(),
            spot_policy: self.spot_policy,
            retry: self.retry.clone(),
            max_price: self.max_price,
            idle_duration: self.idle_duration,
            tags: self.tags.clone(),
            backend_options: self.backend_options.clone(),
            ..ProfileParams::default()
        }
    }
}

/// Into how many parts an instance is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    /// As many as it has GPUs, or CPUs without GPUs.
    Auto,
    /// So many, at least 1; CPUs and GPUs must divide evenly.
    Count(u32),
}

impl Serialize for Blocks {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => s.serialize_str("auto"),
            Self::Count(count) => s.serialize_u32(*count),
        }
    }
}

impl FromValue for Blocks {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        match value.as_str() {
            Some("auto") => Ok(Self::Auto),
            Some(text) if text.parse::<u32>().is_err() => {
                Err(cx.fail(format!("expected a number or `auto`, got \"{text}\"")))
            }
            _ => super::task::at_least_one(value, cx).map(Self::Count),
        }
    }
}

/// How many instances a fleet of clouds has: `min` <= `target` <= `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetNodes {
    /// Kept at all times.
    pub min: u32,
    /// Made when the fleet is made. On the wire only if it differs from `min`.
    pub target: u32,
    /// Never more; `None` means no limit.
    pub max: Option<u32>,
}

impl Serialize for FleetNodes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("min", &self.min)?;
        if self.target != self.min {
            map.serialize_entry("target", &self.target)?;
        }
        map.serialize_entry("max", &self.max)?;
        map.end()
    }
}

impl FleetNodes {
    fn checked(self, cx: &mut Reader) -> Result<Self, Failed> {
        let Self { min, target, max } = self;
        if target < min {
            return Err(cx.fail(format!("target {target} is below min {min}")));
        }
        match max {
            Some(max) if max < target => {
                Err(cx.fail(format!("the greatest number {max} is below {target}")))
            }
            _ => Ok(self),
        }
    }

    fn from_text(text: &str, cx: &mut Reader) -> Result<Self, Failed> {
        let compact: String = text.chars().filter(|c| *c != ' ').collect();
        let mut number = |text: &str| match text {
            "" => Ok(None),
            text => text.parse::<u32>().map(Some).map_err(|_| {
                cx.fail(format!(
                    "expected a number or a range such as 2, 0..4 or 1.., got \"{text}\""
                ))
            }),
        };
        let (min, max) = match compact.split_once("..") {
            Some((min, max)) => (number(min)?.unwrap_or(0), number(max)?),
            None => match number(&compact)? {
                Some(exactly) => (exactly, Some(exactly)),
                None => return Err(cx.fail("the number of nodes is empty")),
            },
        };
        Self {
            min,
            target: min,
            max,
        }
        .checked(cx)
    }
}

impl FromValue for FleetNodes {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        match value {
            Value::Number(number) if !number.is_f64() => {
                let count = u32::from_value(value, cx)?;
                Ok(Self {
                    min: count,
                    target: count,
                    max: Some(count),
                })
            }
            Value::String(text) => Self::from_text(text, cx),
            Value::Object(_) => {
                let mut obj = cx.object(value)?;
                let min = obj.defaulted("min", cx, || 0);
                let target = obj.optional("target", cx);
                let max = obj.optional("max", cx);
                obj.finish(cx)?;
                let min = min?;
                Self {
                    min,
                    target: target?.unwrap_or(min),
                    max: max?,
                }
                .checked(cx)
            }
            other => Err(cx.fail(format!(
                "expected a number or a range such as 2, 0..4 or 1.., got {}",
                describe(other)
            ))),
        }
    }
}

deserialize_by_value!(Blocks, FleetNodes);

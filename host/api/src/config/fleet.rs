//! Fleets.

use std::net::IpAddr;

use dstack_backend_types::instances::SshKey;
use dstack_backend_types::reading::{Failed, FromValue, Reader, describe};
use dstack_backend_types::resources::ResourcesSpec;
use dstack_backend_types::{BackendType, deserialize_by_value};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::duration;
use super::env::Env;
use super::object::config;
use super::profile::{BackendOptions, ProfileParams, ProfileRetry, backend_options, price};
use super::references::{Tags, tags};
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
        pub max_price: Option<f64> = optional(price),
        /// Seconds an idle instance is kept, negative for good; unset means 259,200.
        pub idle_duration: Option<i64> = default(None, duration::idle),
        /// Tags for what the provider makes.
        pub tags: Option<Tags> = optional(tags),
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

config! {
    /// Own hosts and how to reach them.
    pub struct SshParams {
        /// User of all hosts that do not say otherwise.
        pub user: Option<String> = optional,
        /// Port of all hosts that do not say otherwise; unset means 22.
        pub port: Option<u16> = optional,
        /// Key file of all hosts that do not say otherwise; read by the client.
        pub identity_file: Option<String> = optional,
        /// The key itself; set by the client, never shown.
        pub ssh_key: Option<SshKey> = optional(ssh_key),
        /// A host to go through.
        pub proxy_jump: Option<SshProxyParams> = optional,
        /// The hosts.
        pub hosts: Vec<SshHost> = required,
        /// The private network the hosts share.
        pub network: Option<String> = optional(network),
    }
}

config! {
    /// A host to go through.
    pub struct SshProxyParams {
        /// Name or address.
        pub hostname: String = required,
        /// Unset means 22.
        pub port: Option<u16> = optional,
        /// User.
        pub user: String = required,
        /// Key file; read by the client.
        pub identity_file: String = required,
        /// The key itself; set by the client, never shown.
        pub ssh_key: Option<SshKey> = optional(ssh_key),
    }
}

config! {
    /// A host with settings of its own.
    pub struct SshHostParams {
        /// Name or address.
        pub hostname: String = required,
        /// Port; unset means the common one.
        pub port: Option<u16> = optional,
        /// User; unset means the common one.
        pub user: Option<String> = optional,
        /// Key file; unset means the common one.
        pub identity_file: Option<String> = optional,
        /// A host to go through; unset means the common one.
        pub proxy_jump: Option<SshProxyParams> = optional,
        /// Address in the private network.
        pub internal_ip: Option<String> = optional(internal_ip),
        /// The key itself; set by the client, never shown.
        pub ssh_key: Option<SshKey> = optional(ssh_key),
        /// Into how many parts the host is split; unset means as the fleet.
        pub blocks: Option<Blocks> = optional,
    }
}

/// A host: its name alone, or with settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SshHost {
    /// Name or address.
    Name(String),
    /// With settings of its own.
    Params(Box<SshHostParams>),
}

impl SshHost {
    /// Name or address.
    pub fn hostname(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Params(params) => &params.hostname,
        }
    }
}

impl FromValue for SshHost {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        if value.is_object() {
            SshHostParams::from_value(value, cx).map(|params| Self::Params(Box::new(params)))
        } else {
            String::from_value(value, cx).map(Self::Name)
        }
    }
}

fn ssh_key(value: &Value, cx: &mut Reader) -> Result<SshKey, Failed> {
    SshKey::deserialize(value)
        .map_err(|_| cx.fail("expected a mapping with `public` and `private`"))
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_loopback() || v6.is_unicast_link_local(),
    }
}

fn internal_ip(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    let text = String::from_value(value, cx)?;
    match text.parse::<IpAddr>() {
        Ok(address) if is_private(address) => Ok(text),
        Ok(_) => Err(cx.fail(format!("{text} is not a private address"))),
        Err(_) => Err(cx.fail(format!("\"{text}\" is not an IP address"))),
    }
}

fn network(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    let text = String::from_value(value, cx)?;
    let (address, bits) = text.split_once('/').unwrap_or((&text, ""));
    let Ok(address) = address.parse::<IpAddr>() else {
        return Err(cx.fail(format!("\"{text}\" is not a network such as 10.0.0.0/24")));
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = if bits.is_empty() {
        Some(most)
    } else {
        bits.parse::<u8>().ok()
    };
    match bits.filter(|bits| *bits <= most) {
        Some(_) if is_private(address) => Ok(text),
        Some(_) => Err(cx.fail(format!("{text} is not a private network"))),
        None => Err(cx.fail(format!("\"{text}\" is not a network such as 10.0.0.0/24"))),
    }
}

deserialize_by_value!(Blocks, FleetNodes, SshHost);

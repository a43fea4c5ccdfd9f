//! Configurations: what people write in YAML and clients send as JSON.
//!
//! Every type reads short and canonical forms and writes the canonical one. Reading by serde is tolerant (rows, peers);
//! [`read`] with [`Mode::Strict`] refuses unknown keys (people, request bodies).
//!
//! | file | type |
//! |---|---|
//! | a run, fleet, volume, gateway, preset | [`Configuration`], switched by the key `type` |
//! | `profiles.yml` | [`ProfilesConfig`] |
//! | the server's `config.yml` | [`ServerConfig`] |
//! | the client's `config.yml` | [`ClientConfig`] |

pub mod cron;
mod dev;
pub mod duration;
mod env;
mod files;
mod fleet;
mod gateway;
mod groups;
pub mod names;
mod object;
mod paths;
mod preset;
mod probes;
mod profile;
mod rate_limits;
mod references;
mod replica_groups;
mod run;
mod scaling;
mod schema;
mod service;
mod sources;
mod ssh;
mod task;
mod user;
mod volume;
mod words;

use dstack_backend_types::deserialize_by_value;
use serde::Serialize;
use serde_json::Value;

pub use cron::Cron;
pub use dev::DevEnvironmentConfiguration;
pub use dstack_backend_types::reading::{
    Failed, FromValue, Kind, Mode, Path, Problem, Problems, Read, Reader, Step, read, read_with,
};
pub use duration::Limit;
pub use env::{Env, EnvValue, UnsetVariable, parse_item as parse_env_item};
pub use files::{
    BackendEntry, ClientConfig, ClientProject, DefaultPermissions, Encryption, EncryptionKey,
    ServerConfig, ServerProject, TemplateParameter, TemplateVariable, UiTemplate,
};
pub use fleet::{Blocks, FleetConfiguration, FleetNodes};
pub use gateway::{Certificate, GatewayConfiguration, LoadBalancer};
pub use paths::{MountPoint, Names, PortMapping};
pub use preset::{
    AgentEffort, AgentProvider, PresetAgent, PresetConfiguration, PresetModel, Prompt,
};
pub use probes::ProbeConfig;
pub use profile::{
    BackendOptions, DEFAULT_FLEET_IDLE_SECONDS, DEFAULT_RETRY_SECONDS, DEFAULT_RUN_IDLE_SECONDS,
    DEFAULT_STOP_SECONDS, Profile, ProfileParams, ProfileRetry, ProfilesConfig, Schedule,
    UtilizationPolicy, VastAiOptions,
};
pub use rate_limits::{RateLimit, RateLimitKey};
pub use references::{EntityReference, InstanceSelector, Tags};
pub use replica_groups::{GroupReplicas, ReplicaGroup, Router, RouterConfig};
pub use run::{RunBase, RunConfiguration, RunKind};
pub use scaling::{DEFAULT_WINDOW_SECONDS, ScalingSpec};
pub(crate) use schema::Described;
pub use schema::{SchemaType, json_schema};
pub use service::{
    GatewayChoice, Https, OpenAiModel, Replication, ServiceConfiguration, ServiceModel, TgiModel,
};
pub use sources::{FileMapping, RepoSpec};
pub use ssh::{SshHost, SshHostParams, SshParams, SshProxyParams};
pub use task::{NodeGroup, TaskConfiguration};
pub use user::BadUser;
pub use volume::{
    ClaimVolume, DiskVolume, IdVolume, RunpodVolume, VolumeConfiguration, VolumePlace,
};
pub use words::{
    CreationPolicy, Ide, Placement, PluginIsolation, PythonVersion, ScalingMetric, SpotPolicy,
    StartupOrder, StopCriteria, VastAiOfferOrder,
};

/// Everything `apply` takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Configuration {
    /// A task, a service or a dev environment.
    Run(RunConfiguration),
    /// A fleet.
    Fleet(Box<FleetConfiguration>),
    /// A gateway.
    Gateway(Box<GatewayConfiguration>),
    /// A volume.
    Volume(Box<VolumeConfiguration>),
    /// A preset.
    Preset(Box<PresetConfiguration>),
}

/// The values of `type` that [`Configuration`] knows.
const TYPES: [&str; 7] = [
    "task",
    "service",
    "dev-environment",
    "fleet",
    "gateway",
    "volume",
    "preset",
];

impl Configuration {
    /// Its name, if it has one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Run(run) => run.name(),
            Self::Fleet(fleet) => fleet.name.as_deref(),
            Self::Gateway(gateway) => gateway.name.as_deref(),
            Self::Volume(volume) => volume.name.as_deref(),
            Self::Preset(preset) => preset.name.as_deref(),
        }
    }
}

impl FromValue for Configuration {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        match run::type_of(value, &TYPES, cx)? {
            "fleet" => FleetConfiguration::from_value(value, cx).map(|c| Self::Fleet(Box::new(c))),
            "gateway" => {
                GatewayConfiguration::from_value(value, cx).map(|c| Self::Gateway(Box::new(c)))
            }
            "volume" => {
                VolumeConfiguration::from_value(value, cx).map(|c| Self::Volume(Box::new(c)))
            }
            "preset" => PresetConfiguration::from_value(value, cx)
                .map(|c| Self::Preset(Box::new(c.expanded()))),
            _ => RunConfiguration::from_value(value, cx).map(Self::Run),
        }
    }
}

deserialize_by_value!(Configuration);

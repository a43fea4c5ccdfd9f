//! Services.

use dstack_backend_types::deserialize_by_value;
use dstack_backend_types::reading::{Failed, FromObject, FromValue, Obj, Reader, describe};
use dstack_backend_types::resources::Range;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

use super::object::config;
use super::paths::PortMapping;
use super::probes::{ProbeConfig, probes};
use super::profile::ProfileParams;
use super::rate_limits::{RateLimit, rate_limits};
use super::references::EntityReference;
use super::replica_groups::{ReplicaGroup, check_groups, replica_groups};
use super::run::RunBase;
use super::scaling::{ScalingSpec, check_scaling};
use super::schema::{self, grammar, rules};

config! {
    /// Something that answers requests.
    pub struct ServiceConfiguration {
        /// The port it listens on.
        pub port: PortMapping = required(PortMapping::service, grammar::service_port),
        /// The gateway that publishes it; unset means the default one if there is any.
        pub gateway: Option<GatewayChoice> = optional,
        /// Whether the in-server proxy removes its own path; gateways have none.
        pub strip_prefix: bool = default(true),
        /// The model it serves, if any.
        pub model: Option<ServiceModel> = optional,
        /// Whether it is published by HTTPS; unset means yes.
        pub https: Option<Https> = optional,
        /// Whether requests need a token.
        pub auth: bool = default(true),
        /// How many replicas there are when; needs a range of replicas.
        pub scaling: Option<ScalingSpec> = optional,
        /// Limits for requests.
        pub rate_limits: Vec<RateLimit> = default(Vec::new(), rate_limits),
        /// When a replica is ready; unset means a default probe for models, none else.
        pub probes: Option<Vec<ProbeConfig>> = optional(probes, probes_schema),
        /// Replicas and their groups.
        #[serde(flatten)]
        pub replication: Replication = flat,
        /// What to run; may be empty if the image has a command.
        pub commands: Vec<String> = default(Vec::new()),
        /// What all runs have.
        #[serde(flatten)]
        pub base: RunBase = flat,
        /// Where and how to provision.
        #[serde(flatten)]
        pub profile: ProfileParams = flat,
    }
    known("type" = "service") check(ServiceConfiguration::check) rules(rules::service)
}

impl ServiceConfiguration {
    /// The groups, if it has some.
    pub fn groups(&self) -> Option<&[ReplicaGroup]> {
        self.replication.groups.as_deref()
    }

    fn check(&self, cx: &mut Reader) -> Result<(), Failed> {
        self.base.check(cx)?;
        if let Some(groups) = self.groups() {
            return check_groups(self, groups, cx);
        }
        if self.commands.is_empty() && self.base.image.is_none() {
            return Err(cx.fail("either `commands` or `image` is required"));
        }
        check_scaling(self.replication.replicas, self.scaling.as_ref(), cx)
    }
}

fn probes_schema(generator: &mut SchemaGenerator) -> Schema {
    let items = schema::of::<ProbeConfig>(generator);
    json_schema!({"type": "array", "items": items, "uniqueItems": true})
}

/// How many replicas, or which groups of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Replication {
    /// Least and most replicas, both there; unset means exactly 1. Excludes `groups`.
    pub replicas: Option<Range<u32>>,
    /// Replicas of different sorts. Older files write this list under `replicas`.
    pub groups: Option<Vec<ReplicaGroup>>,
}

impl FromObject for Replication {
    fn from_object(obj: &mut Obj<'_>, cx: &mut Reader) -> Result<Self, Failed> {
        let replicas = obj.raw("replicas").filter(|value| !value.is_null());
        let groups = obj.optional_with("groups", cx, replica_groups)?;
        match (replicas, groups) {
            (None, groups) => Ok(Self {
                replicas: None,
                groups,
            }),
            (Some(_), Some(_)) => {
                Err(cx.fail_at("groups", "`groups` and `replicas` exclude each other"))
            }
            (Some(list @ Value::Array(_)), None) => {
                let groups = cx.at_key("replicas", |cx| replica_groups(list, cx))?;
                Ok(Self {
                    replicas: None,
                    groups: Some(groups),
                })
            }
            (Some(range), None) => {
                let replicas = cx.at_key("replicas", |cx| replicas_range(range, cx))?;
                Ok(Self {
                    replicas: Some(replicas),
                    groups: None,
                })
            }
        }
    }
}

/// A range with an upper bound; the lower one is 0 if it is not given.
pub(super) fn replicas_range(value: &Value, cx: &mut Reader) -> Result<Range<u32>, Failed> {
    let range = Range::<u32>::from_value(value, cx)?;
    match range.max {
        Some(max) => Ok(Range::between(range.min.unwrap_or(0), max)),
        None => Err(cx.fail(format!("an upper bound is required, such as {range}4"))),
    }
}

/// Which gateway publishes a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum GatewayChoice {
    /// False: none; true: the default one, which must exist.
    Switch(bool),
    /// This one.
    Named(EntityReference),
}

impl FromValue for GatewayChoice {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        match bool::from_value(value, &mut Reader::new(cx.mode())) {
            Ok(on) => Ok(Self::Switch(on)),
            Err(_) => EntityReference::from_value(value, cx).map(Self::Named),
        }
    }
}

/// Whether a service is published by HTTPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Https {
    /// Yes or no.
    Switch(bool),
    /// What the gateway can.
    Auto,
}

impl Serialize for Https {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Switch(on) => s.serialize_bool(*on),
            Self::Auto => s.serialize_str("auto"),
        }
    }
}

impl FromValue for Https {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        if value.as_str() == Some("auto") {
            return Ok(Self::Auto);
        }
        bool::from_value(value, &mut Reader::new(cx.mode()))
            .map(Self::Switch)
            .map_err(|_| {
                cx.fail(format!(
                    "expected true, false or `auto`, got {}",
                    describe(value)
                ))
            })
    }
}

/// The model a service serves. A text is the name of an OpenAI-compatible chat model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "format", rename_all = "lowercase")]
pub enum ServiceModel {
    /// The service speaks OpenAI's protocol.
    Openai(OpenAiModel),
    /// The service speaks the one of Text Generation Inference.
    Tgi(TgiModel),
}

impl ServiceModel {
    /// The model's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Openai(model) => &model.name,
            Self::Tgi(model) => &model.name,
        }
    }
}

dstack_backend_types::words! {
    /// The only type of model.
    pub enum ModelKind {
        /// Chat completions.
        Chat = "chat",
    }
}

config! {
    /// An OpenAI-compatible model.
    #[derive(Eq)]
    pub struct OpenAiModel {
        /// Always `chat`.
        #[serde(rename = "type")]
        pub kind: ModelKind = named("type", default(ModelKind::Chat)),
        /// The name clients ask for.
        pub name: String = required,
        /// Path of the protocol in the service.
        pub prefix: String = default("/v1".to_owned()),
    }
}

config! {
    /// A model of Text Generation Inference.
    #[derive(Eq)]
    pub struct TgiModel {
        /// Always `chat`.
        #[serde(rename = "type")]
        pub kind: ModelKind = named("type", default(ModelKind::Chat)),
        /// The name clients ask for.
        pub name: String = required,
        /// Template of the conversation; unset means the model's own.
        pub chat_template: Option<String> = optional,
        /// End of a text; unset means the model's own.
        pub eos_token: Option<String> = optional,
    }
}

impl FromValue for ServiceModel {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        if !value.is_object() {
            let name = String::from_value(value, cx)?;
            let prefix = "/v1".to_owned();
            return Ok(Self::Openai(OpenAiModel {
                kind: ModelKind::Chat,
                name,
                prefix,
            }));
        }
        let mut obj = cx.object(value)?;
        let format = obj.tag("format", &["openai", "tgi"], cx)?;
        let read = if format == "openai" {
            OpenAiModel::from_object(&mut obj, cx).map(Self::Openai)
        } else {
            TgiModel::from_object(&mut obj, cx).map(Self::Tgi)
        };
        obj.finish(cx)?;
        read
    }
}

deserialize_by_value!(GatewayChoice, Https, ServiceModel);

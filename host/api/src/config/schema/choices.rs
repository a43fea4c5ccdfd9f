//! Values of several shapes: switches with details, mappings that differ by a word in them.

use dstack_backend_types::backend_type::KNOWN_BACKENDS;
use dstack_backend_types::{BackendType, capability};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::object::{switched, with_doc};
use super::parts::{self, any_of, text, whole};
use super::{Described, Keys, Object, of, scalars};
use crate::config::files::{BackendEntry, EncryptionKey, TemplateParameter};
use crate::config::replica_groups::GroupReplicas;
use crate::config::service::Replication;
use crate::config::volume::{ClaimVolume, DiskVolume, IdVolume, RunpodVolume};
use crate::config::{
    BackendOptions, Certificate, ClientConfig, ClientProject, EntityReference, GatewayChoice,
    LoadBalancer, NodeGroup, OpenAiModel, PluginIsolation, PresetModel, ProfileRetry, Prompt,
    RateLimitKey, ReplicaGroup, RouterConfig, ServiceModel, SshHost, SshHostParams, TgiModel,
    VastAiOptions, VolumeConfiguration,
};
use crate::jobs::RetryEvent;

/// A mapping with the word of `key` and some keys more.
fn variant(key: &str, word: &str, more: impl FnOnce(&mut Object)) -> Schema {
    let mut object = Object::default();
    object.required(key, "", json_schema!({"const": word}));
    more(&mut object);
    object.finish("", "")
}

impl Described for ProfileRetry {
    const NAME: Option<&'static str> = Some("Retry");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let events = of::<RetryEvent>(generator);
        let events = json_schema!({"type": "array", "items": events, "minItems": 1});
        let mut detail = Object::default();
        detail.optional(
            "on_events",
            "What to react to; default: everything.",
            parts::nullable(events),
        );
        let duration = parts::nullable(scalars::duration(generator));
        detail.optional("duration", "For how long; default 1h.", duration);
        let attempts = parts::nullable(parts::integer(1, i64::from(u32::MAX))(generator));
        detail.optional(
            "max_attempts",
            "How often at most; default: as often as the duration allows. Not known to other servers.",
            attempts,
        );
        any_of([parts::switch(), detail.finish("", "")])
    }
}

impl Described for BackendOptions {
    const NAME: Option<&'static str> = Some("BackendOptions");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let without: Vec<_> = KNOWN_BACKENDS
            .iter()
            .map(|facts| facts.name)
            .filter(|name| *name != "vastai")
            .collect();
        let vastai = of::<VastAiOptions>(generator);
        json_schema!({
            "type": "object",
            "required": ["type"],
            "properties": {
                "type": {"type": "string", "not": {"enum": without}, "description": "The backend: `vastai`, or one of a plugin."},
            },
            "allOf": [{"if": {"properties": {"type": {"const": "vastai"}}}, "then": vastai}],
        })
    }
}

impl Described for RateLimitKey {
    const NAME: Option<&'static str> = Some("RateLimitKey");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        let header = variant("type", "header", |object| {
            let name = json_schema!({"type": ["string", "number"], "pattern": whole("[a-zA-Z0-9_-]{1,500}")});
            object.required("header", "Its name.", name);
        });
        switched(
            "type",
            "Who shares a limit: an address, or requests with the same value of a header.",
            [
                ("ip_address", variant("type", "ip_address", |_| {})),
                ("header", header),
            ],
        )
    }
}

/// Replicas, or the older form of `groups` under the same key.
fn replicas_or_groups(generator: &mut SchemaGenerator) -> Schema {
    let groups = groups_of::<ReplicaGroup>(generator);
    parts::nullable(any_of([super::resources::replicas(generator), groups]))
}

fn groups_of<G: Described>(generator: &mut SchemaGenerator) -> Schema {
    let items = of::<G>(generator);
    json_schema!({"type": "array", "items": items, "minItems": 1})
}

/// The groups of a task.
pub(in crate::config) fn node_groups(generator: &mut SchemaGenerator) -> Schema {
    groups_of::<NodeGroup>(generator)
}

impl Keys for Replication {
    fn keys(object: &mut Object, generator: &mut SchemaGenerator) {
        let doc =
            "How many replicas there are; default 1. A range needs `scaling`. Excludes `groups`.";
        object.optional("replicas", doc, replicas_or_groups(generator));
        let groups = parts::nullable(groups_of::<ReplicaGroup>(generator));
        object.optional(
            "groups",
            "Replicas of different sorts. Excludes `replicas`.",
            groups,
        );
    }
}

impl Keys for GroupReplicas {
    fn keys(object: &mut Object, generator: &mut SchemaGenerator) {
        let range = super::resources::replicas(generator);
        object.optional(
            "replicas",
            "How many replicas the group has; needed. A range needs `scaling`.",
            range,
        );
        object.optional("count", "The older name of `replicas`.", json_schema!({}));
    }
}

impl Described for RouterConfig {
    const NAME: Option<&'static str> = Some("Router");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        let mut object = Object::default();
        let words = json_schema!({"enum": ["smg", "dynamo", "sglang"]});
        object.defaulted(
            "type",
            "`smg` (the SGLang router, also `sglang`) or `dynamo` (NVIDIA Dynamo).",
            words,
            &"smg",
        );
        object.finish(
            "Router",
            "What distributes requests among the other groups.",
        )
    }
}

impl Described for GatewayChoice {
    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = any_of([
            json_schema!({"type": "boolean"}),
            of::<EntityReference>(generator),
        ]);
        let about = "False: no gateway. True: the default one, which must exist. Else the name of a gateway.";
        schema.insert("description".to_owned(), json!(about));
        schema
    }
}

impl Described for ServiceModel {
    const NAME: Option<&'static str> = Some("Model");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let openai = variant("format", "openai", |object| {
            OpenAiModel::keys(object, generator)
        });
        let tgi = variant("format", "tgi", |object| TgiModel::keys(object, generator));
        let detail = switched(
            "format",
            "The protocol that the service speaks.",
            [("openai", openai), ("tgi", tgi)],
        );
        let mut name = text();
        name.insert(
            "description".to_owned(),
            json!("The name of an OpenAI-compatible chat model."),
        );
        // Which of both is told by the type, so that an editor reports the one that was meant.
        json_schema!({"if": {"type": "object"}, "then": detail, "else": name})
    }
}

impl Described for PresetModel {
    const NAME: Option<&'static str> = Some("PresetModel");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        let (mut repo, mut base) = (Object::default(), Object::default());
        repo.required("repo", "Exactly this repository.", text());
        repo.optional(
            "name",
            "Another name to serve it under.",
            parts::nullable(text()),
        );
        base.required("base", "Any variant of this model.", text());
        any_of([text(), repo.finish("", ""), base.finish("", "")])
    }
}

impl Described for Prompt {
    fn describe(_: &mut SchemaGenerator) -> Schema {
        let filled =
            json_schema!({"type": ["string", "number"], "pattern": r"\S", "maxLength": 10_000});
        let mut file = Object::default();
        file.required("path", "A file beside the configuration.", text());
        any_of([filled, file.finish("", "")])
    }
}

impl Described for LoadBalancer {
    const NAME: Option<&'static str> = Some("LoadBalancer");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        variant("type", "alb", |_| {})
    }
}

impl Described for Certificate {
    const NAME: Option<&'static str> = Some("Certificate");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        let acm = variant("type", "acm", |object| {
            object.required("arn", "The certificate.", text())
        });
        let gcp = variant("type", "gcp-cm", |object| {
            object.required("name", "The certificate.", text())
        });
        switched(
            "type",
            "`lets-encrypt`: made for each service. `acm`: of AWS Certificate Manager. `gcp-cm`: of GCP Certificate Manager.",
            [
                ("lets-encrypt", variant("type", "lets-encrypt", |_| {})),
                ("acm", acm),
                ("gcp-cm", gcp),
            ],
        )
    }
}

impl Described for SshHost {
    fn describe(generator: &mut SchemaGenerator) -> Schema {
        any_of([text(), of::<SshHostParams>(generator)])
    }
}

impl Described for VolumeConfiguration {
    const NAME: Option<&'static str> = Some("VolumeConfiguration");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let without: Vec<_> = KNOWN_BACKENDS
            .iter()
            .filter(|facts| !facts.has(capability::VOLUMES))
            .map(|facts| facts.name)
            .collect();
        let mut common = Object::default();
        volume_keys(&mut common, generator);
        let mut schema = common.finish("Volume", "Storage that outlives jobs.");
        schema.remove("additionalProperties");
        let disk = volume_with(generator, DiskVolume::keys);
        let runpod = volume_with(generator, |object, generator| {
            RunpodVolume::keys(object, generator);
            let ignored = "Accepted in older files; RunPod has no zones.";
            object.optional("availability_zone", ignored, json_schema!({}));
        });
        let claim = volume_with(generator, ClaimVolume::keys);
        let by_id = volume_with(generator, IdVolume::keys);
        let when = |backends: &[&str], then: Schema| json!({"if": {"properties": {"backend": {"enum": backends}}}, "then": then});
        let branches = json!([
            when(&["aws", "gcp"], disk),
            when(&["runpod"], runpod),
            when(&["kubernetes"], claim),
            when(&["daytona", "lium"], by_id),
            {"properties": {"backend": {"not": {"enum": without}}}},
        ]);
        schema.insert("allOf".to_owned(), branches);
        schema
    }
}

fn volume_keys(object: &mut Object, generator: &mut SchemaGenerator) {
    object.optional(
        "type",
        "Always `volume`.",
        json_schema!({"const": "volume"}),
    );
    object.required("backend", "Who keeps it.", of::<BackendType>(generator));
    let name = parts::nullable(text());
    object.optional(
        "name",
        "Its name; unset means that the server makes one.",
        name,
    );
    let doc = "How long it is kept without use; default: for ever.";
    object.optional("auto_cleanup_duration", doc, scalars::idle(generator));
    let tags = parts::nullable(scalars::tags(generator));
    object.optional("tags", "Tags for what the provider makes.", tags);
}

fn volume_with(
    generator: &mut SchemaGenerator,
    more: impl FnOnce(&mut Object, &mut SchemaGenerator),
) -> Schema {
    let mut object = Object::default();
    volume_keys(&mut object, generator);
    more(&mut object, generator);
    object.finish("Volume", "")
}

impl Described for BackendEntry {
    const NAME: Option<&'static str> = Some("Backend");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let backend = of::<BackendType>(generator);
        let isolation = parts::nullable(of::<PluginIsolation>(generator));
        let backend = with_doc(backend, "Which backend.");
        let isolation = with_doc(
            isolation,
            "Where its plugin runs; default: what the lock file beside the plugin says.",
        );
        json_schema!({
            "title": "Backend",
            "description": "A backend with its settings; which keys there are is up to its plugin.",
            "type": "object",
            "required": ["type"],
            "properties": {"type": backend, "isolation": isolation},
        })
    }
}

impl Described for EncryptionKey {
    const NAME: Option<&'static str> = Some("EncryptionKey");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        let aes = variant("type", "aes", |object| {
            let name = json_schema!({"type": ["string", "number"], "pattern": whole("[A-Za-z0-9\\u0080-\\uffff]+")});
            object.required("name", "Letters and digits; stored with each text.", name);
            let secret = json_schema!({
                "type": "string",
                "pattern": whole("[A-Za-z0-9+/]{43}="),
                "patternErrorMessage": "expected base64 of 32 bytes; make one with openssl rand -base64 32",
            });
            object.required(
                "secret",
                "Base64 of 32 bytes; make one with `openssl rand -base64 32`.",
                secret,
            );
        });
        switched(
            "type",
            "`aes` encrypts; `identity` does not.",
            [
                ("identity", variant("type", "identity", |_| {})),
                ("aes", aes),
            ],
        )
    }
}

impl Described for ClientConfig {
    const NAME: Option<&'static str> = Some("ClientConfig");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let mut object = Object::default();
        object.optional(
            "projects",
            "Projects the client knows.",
            of::<Vec<ClientProject>>(generator),
        );
        object.optional(
            "repos",
            "Written by older clients; without effect.",
            json_schema!({}),
        );
        object.finish("ClientConfig", "The client's `~/.dstack/config.yml`.")
    }
}

impl Described for TemplateParameter {
    const NAME: Option<&'static str> = Some("TemplateParameter");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "required": ["type"]})
    }
}

/// A private network, or an address in one.
pub(in crate::config) fn address(_: &mut SchemaGenerator) -> Schema {
    let v4 = r"(10|127|169\.254|192\.168|172\.(1[6-9]|2[0-9]|3[01]))\.[0-9.]+";
    let pattern = format!("({v4}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*)(/[0-9]{{1,3}})?");
    json_schema!({
        "type": "string",
        "pattern": whole(&pattern),
        "patternErrorMessage": "expected a private address or network, such as 10.0.0.0/24",
    })
}

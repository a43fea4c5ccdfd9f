//! Volumes.

use dstack_backend_types::reading::{Failed, FromObject, FromValue, Obj, Reader, describe};
use dstack_backend_types::resources::Memory;
use dstack_backend_types::{BackendType, capability, deserialize_by_value};
use serde::Serialize;
use serde_json::{Map, Value};

use super::duration;
use super::object::config;
use super::references::{Tags, tags};
use super::words::VolumeTag;

/// Storage that outlives jobs. What else there is to say depends on the backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VolumeConfiguration {
    /// Always `volume`.
    #[serde(rename = "type")]
    pub kind: VolumeTag,
    /// Who keeps it.
    pub backend: BackendType,
    /// Its name; unset means that the server makes one.
    pub name: Option<String>,
    /// Seconds without use after which it is deleted, negative and unset for never.
    pub auto_cleanup_duration: Option<i64>,
    /// Tags for what the provider makes.
    pub tags: Option<Tags>,
    /// What depends on the backend.
    #[serde(flatten)]
    pub place: VolumePlace,
}

/// The keys of a volume that depend on its backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum VolumePlace {
    /// A disk of a cloud.
    Disk(DiskVolume),
    /// A network volume of RunPod.
    Runpod(RunpodVolume),
    /// A claim of Kubernetes.
    Claim(ClaimVolume),
    /// A volume known by its identifier alone.
    ById(IdVolume),
    /// A volume of a backend this version does not know.
    Other(Map<String, Value>),
}

config! {
    /// A disk of a cloud.
    pub struct DiskVolume {
        /// GB; needed unless there is a `volume_id`.
        pub size: Option<Memory> = optional,
        /// The provider's id of an existing disk.
        pub volume_id: Option<String> = optional,
        /// Where.
        pub region: String = required,
        /// Zone; unset means any.
        pub availability_zone: Option<String> = optional,
    }
}

config! {
    /// A network volume of RunPod.
    pub struct RunpodVolume {
        /// GB; needed unless there is a `volume_id`.
        pub size: Option<Memory> = optional,
        /// RunPod's id of an existing volume.
        pub volume_id: Option<String> = optional,
        /// Where.
        pub region: String = required,
    }
}

config! {
    /// A claim of Kubernetes.
    pub struct ClaimVolume {
        /// GB; needed unless there is a `claim_name`.
        pub size: Option<Memory> = optional,
        /// The context; empty means the only one.
        pub region: String = default(String::new()),
        /// An existing claim.
        pub claim_name: Option<String> = optional,
        /// The storage class; unset means the cluster's default.
        pub storage_class_name: Option<String> = optional,
        /// Access modes of the claim.
        pub access_modes: Vec<String> = default(vec!["ReadWriteOnce".to_owned()]),
        /// Whether it is mounted for reading only.
        pub read_only: bool = default(false),
    }
}

config! {
    /// A volume known by its identifier alone.
    pub struct IdVolume {
        /// The provider's id.
        pub volume_id: Option<String> = optional,
    }
}

impl VolumePlace {
    fn from_object(
        backend: &BackendType,
        value: &Value,
        obj: &mut Obj<'_>,
        cx: &mut Reader,
    ) -> Result<Self, Failed> {
        match backend.as_str() {
            "aws" | "gcp" => DiskVolume::from_object(obj, cx).map(Self::Disk),
            "runpod" => {
                // Accepted for the sake of older files; RunPod has no zones.
                obj.raw("availability_zone");
                RunpodVolume::from_object(obj, cx).map(Self::Runpod)
            }
            "kubernetes" => ClaimVolume::from_object(obj, cx).map(Self::Claim),
            "daytona" | "lium" => IdVolume::from_object(obj, cx).map(Self::ById),
            _ => match backend.facts() {
                Some(facts) if !facts.has(capability::VOLUMES) => {
                    Err(cx.fail_at("backend", format!("the backend {backend} has no volumes")))
                }
                _ => others(value, cx).map(Self::Other),
            },
        }
    }

    /// GB, if given.
    pub fn size(&self) -> Option<f64> {
        let size = match self {
            Self::Disk(volume) => volume.size,
            Self::Runpod(volume) => volume.size,
            Self::Claim(volume) => volume.size,
            Self::ById(_) => None,
            Self::Other(fields) => fields.get("size").and_then(Value::as_f64).map(Memory),
        };
        size.map(|size| size.0)
    }

    /// The provider's name of a volume made outside: `volume_id` or `claim_name`.
    pub fn external_id(&self) -> Option<&str> {
        match self {
            Self::Disk(volume) => volume.volume_id.as_deref(),
            Self::Runpod(volume) => volume.volume_id.as_deref(),
            Self::Claim(volume) => volume.claim_name.as_deref(),
            Self::ById(volume) => volume.volume_id.as_deref(),
            Self::Other(fields) => fields.get("volume_id").and_then(Value::as_str),
        }
    }

    /// The region; empty where there is none.
    pub fn region(&self) -> &str {
        match self {
            Self::Disk(volume) => &volume.region,
            Self::Runpod(volume) => &volume.region,
            Self::Claim(volume) => &volume.region,
            Self::ById(_) => "",
            Self::Other(fields) => fields
                .get("region")
                .and_then(Value::as_str)
                .unwrap_or_default(),
        }
    }
}

/// What stands beside the common keys. The size may have a unit, as everywhere.
fn others(value: &Value, cx: &mut Reader) -> Result<Map<String, Value>, Failed> {
    let common = ["type", "backend", "name", "auto_cleanup_duration", "tags"];
    let fields = value.as_object().into_iter().flatten();
    let others = fields.filter(|(key, _)| !common.contains(&key.as_str()));
    let mut others: Map<String, Value> = others
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if let Some(size) = others.get_mut("size").filter(|size| size.is_string()) {
        *size = Memory::from_value(size, cx)?.0.into();
    }
    Ok(others)
}

impl FromValue for VolumeConfiguration {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let mut obj = match value {
            Value::Object(_) => cx.object(value)?,
            other => return Err(cx.fail(format!("expected a mapping, got {}", describe(other)))),
        };
        let kind = obj.defaulted("type", cx, || VolumeTag::Volume);
        let backend: BackendType = obj.required("backend", cx)?;
        let name = obj.optional("name", cx);
        let auto_cleanup_duration =
            obj.defaulted_with("auto_cleanup_duration", cx, || None, duration::idle);
        let tags = obj.optional_with("tags", cx, tags);
        let place = VolumePlace::from_object(&backend, value, &mut obj, cx);
        if !matches!(place, Ok(VolumePlace::Other(_)) | Err(_)) {
            obj.finish(cx)?;
        }
        Ok(Self {
            kind: kind?,
            backend,
            name: name?,
            auto_cleanup_duration: auto_cleanup_duration?,
            tags: tags?,
            place: place?,
        })
    }
}

deserialize_by_value!(VolumeConfiguration);

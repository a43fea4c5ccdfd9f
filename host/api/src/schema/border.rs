//! Mirrors of the types that plugins have too.

#![expect(dead_code, reason = "they are there for their schemas")]

use std::borrow::Cow;
use std::collections::BTreeMap;

use dstack_backend_types as real;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use crate::config::Described;

/// Defines structs with the fields of others; a field too many or too few does not compile.
macro_rules! mirrors {
    ($(
        $(#[$meta:meta])*
        $name:ident { $( $(#[$field_meta:meta])* $field:ident : $type:ty ),+ $(,)? }
    )+) => {$(
        $(#[$meta])*
        #[derive(Debug, JsonSchema)]
        pub struct $name { $( $(#[$field_meta])* $field: $type ),+ }

        const _: fn(real::$name) = |real::$name { $( $field: _ ),+ }| {};
    )+};
}

/// Defines what stands for a type with a described schema.
macro_rules! described {
    ($( $(#[$meta:meta])* $name:ident = $real:ty ),+ $(,)?) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                <$real as Described>::NAME.is_none()
            }

            fn schema_name() -> Cow<'static, str> {
                <$real as Described>::NAME.unwrap_or(stringify!($name)).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$real as Described>::describe(generator)
            }
        }
    )+};
}

/// Defines what stands for an enum of words.
macro_rules! words {
    ($( $(#[$meta:meta])* $name:ident [ $($word:literal),+ ] )+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "enum": [$($word),+]})
            }
        }
    )+};
}

described! {
    /// What is asked of a machine.
    ResourcesSpec = real::resources::ResourcesSpec,
    /// Login for the registry of an image.
    RegistryAuth = real::RegistryAuth,
}

/// Name of a backend. Any plugin may bring one, so there is no list.
#[derive(Debug, Clone, Copy)]
pub struct BackendType;

impl JsonSchema for BackendType {
    fn schema_name() -> Cow<'static, str> {
        "BackendType".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Name of a backend. Plugins bring them: `/api/backends/list_types` knows those of a server.",
            "examples": ["aws", "local"],
        })
    }
}

words! {
    /// Processor family.
    CpuArchitecture ["x86", "arm"]
    /// Maker of accelerators.
    AcceleratorVendor ["nvidia", "amd", "google", "intel", "tenstorrent", "unknown"]
    /// Whether an offer can be had.
    InstanceAvailability ["unknown", "available", "not_available", "no_quota", "no_balance", "idle", "busy"]
    /// Which agent a machine starts with.
    InstanceRuntime ["shim", "runner"]
    /// Whose network a job sees.
    NetworkMode ["host", "bridge"]
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}

mirrors! {
    /// An accelerator.
    Gpu {
        name: String,
        memory_mib: u64,
        #[schemars(default)]
        vendor: Option<AcceleratorVendor>,
    }

    /// A disk.
    Disk { size_mib: u64 }

    /// What a machine has.
    Resources {
        cpus: u32,
        memory_mib: u64,
        #[schemars(default)]
        gpus: Vec<Gpu>,
        #[schemars(default)]
        spot: bool,
        #[schemars(default = "disk")]
        disk: Disk,
        #[schemars(default)]
        cpu_arch: Option<CpuArchitecture>,
        #[schemars(default)]
        description: String,
    }

    /// A type of machine.
    InstanceType { name: String, resources: Resources }

    /// Something that can be rented.
    InstanceOfferWithAvailability {
        backend: BackendType,
        instance: InstanceType,
        region: String,
        /// US dollars an hour.
        price: f64,
        #[schemars(default)]
        backend_data: Map<String, Value>,
        #[schemars(default = "unknown")]
        availability: InstanceAvailability,
        #[schemars(default)]
        availability_zones: Option<Vec<String>>,
        #[schemars(default = "shim")]
        instance_runtime: InstanceRuntime,
        #[schemars(default = "one")]
        blocks: u32,
        #[schemars(default = "one")]
        total_blocks: u32,
        #[schemars(default, skip_serializing_if = "Option::is_none")]
        provisioning_timeout_s: Option<u64>,
    }

    /// How a machine is reached.
    SshConnectionParams { hostname: String, username: String, port: u16 }

    /// The driver of accelerators.
    GpuDriverInfo {
        #[schemars(default)]
        vendor: Option<AcceleratorVendor>,
        version: String,
    }

    /// What came out of making a machine.
    JobProvisioningData {
        backend: BackendType,
        #[schemars(default)]
        base_backend: Option<BackendType>,
        instance_type: InstanceType,
        instance_id: String,
        #[schemars(default)]
        hostname: Option<String>,
        #[schemars(default)]
        internal_ip: Option<String>,
        #[schemars(default = "yes")]
        public_ip_enabled: bool,
        #[schemars(default)]
        instance_network: Option<String>,
        region: String,
        #[schemars(default)]
        availability_zone: Option<String>,
        #[schemars(default)]
        reservation: Option<String>,
        /// US dollars an hour.
        price: f64,
        username: String,
        #[schemars(default)]
        ssh_port: Option<u16>,
        dockerized: bool,
        #[schemars(default)]
        ssh_proxy: Option<SshConnectionParams>,
        #[schemars(default)]
        backend_data: Option<String>,
        #[schemars(default)]
        gpu_driver: Option<GpuDriverInfo>,
    }

    /// What a job got of its machine.
    JobRuntimeData {
        network_mode: NetworkMode,
        #[schemars(default)]
        gpu: Option<u32>,
        #[schemars(default)]
        cpu: Option<f64>,
        #[schemars(default)]
        memory: Option<f64>,
        /// By the ports of the container.
        #[schemars(default)]
        ports: Option<BTreeMap<String, u16>>,
        #[schemars(default)]
        volume_names: Option<Vec<String>>,
        #[schemars(default)]
        offer: Option<InstanceOfferWithAvailability>,
        #[schemars(default)]
        working_dir: Option<String>,
        #[schemars(default)]
        username: Option<String>,
    }

    /// What a job needs.
    Requirements {
        resources: ResourcesSpec,
        /// US dollars an hour.
        #[schemars(default)]
        max_price: Option<f64>,
        #[schemars(default)]
        spot: Option<bool>,
        #[schemars(default)]
        reservation: Option<String>,
        #[schemars(default)]
        multinode: Option<bool>,
        #[schemars(default)]
        backend_options: Option<Vec<Value>>,
    }

    /// What came out of making a volume.
    VolumeProvisioningData {
        #[schemars(default)]
        backend: Option<BackendType>,
        volume_id: String,
        #[schemars(default)]
        size_gb: Option<u64>,
        #[schemars(default)]
        availability_zone: Option<String>,
        /// US dollars a month.
        #[schemars(default)]
        price: Option<f64>,
        #[schemars(default = "yes")]
        attachable: bool,
        #[schemars(default = "yes")]
        detachable: bool,
        #[schemars(default)]
        backend_data: Option<String>,
    }

    /// How a volume is attached.
    VolumeAttachmentData {
        #[schemars(default)]
        device_name: Option<String>,
    }
}

const fn disk() -> Disk {
    Disk {
        size_mib: real::instances::DEFAULT_DISK_MIB,
    }
}

const fn unknown() -> InstanceAvailability {
    InstanceAvailability
}

const fn shim() -> InstanceRuntime {
    InstanceRuntime
}

//! What came out of making a machine, and what a job got of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::backend_type::BackendType;
use crate::instances::{AcceleratorVendor, InstanceType};
use crate::offers::InstanceOfferWithAvailability;

/// A host to log in to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SshConnectionParams {
    /// Name or address.
    pub hostname: String,
    /// User.
    pub username: String,
    /// Port.
    pub port: u16,
}

/// The accelerator driver of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuDriverInfo {
    /// Maker.
    #[serde(default)]
    pub vendor: Option<AcceleratorVendor>,
    /// As the driver prints it.
    pub version: String,
}

/// A machine, or the container of a container backend. Fields are those of the HTTP API.
///
/// A backend may return it before an address is known: `hostname` and `ssh_port` stay `None`, and the host calls
/// `update_provisioning_data` every few seconds until they are set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobProvisioningData {
    /// Who made it.
    pub backend: BackendType,
    /// Of the marketplace: who really made it.
    #[serde(default)]
    pub base_backend: Option<BackendType>,
    /// What it is.
    pub instance_type: InstanceType,
    /// The provider's id.
    pub instance_id: String,
    /// Where to log in.
    #[serde(default)]
    pub hostname: Option<String>,
    /// Address other nodes of the cluster use.
    #[serde(default)]
    pub internal_ip: Option<String>,
    /// Whether it has a public address.
    #[serde(default = "yes")]
    pub public_ip_enabled: bool,
    /// CIDR that holds `internal_ip`.
    #[serde(default)]
    pub instance_network: Option<String>,
    /// Where it is.
    pub region: String,
    /// Zone of the region.
    #[serde(default)]
    pub availability_zone: Option<String>,
    /// Reserved capacity it uses.
    #[serde(default)]
    pub reservation: Option<String>,
    /// US dollars an hour.
    pub price: f64,
    /// User to log in as.
    pub username: String,
    /// Port to log in to.
    #[serde(default)]
    pub ssh_port: Option<u16>,
    /// Whether the shim runs there.
    pub dockerized: bool,
    /// Host to go through.
    #[serde(default)]
    pub ssh_proxy: Option<SshConnectionParams>,
    /// For the backend itself; nobody else reads it.
    #[serde(default)]
    pub backend_data: Option<String>,
    /// Accelerator driver found there.
    #[serde(default)]
    pub gpu_driver: Option<GpuDriverInfo>,
}

/// How the container is joined to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkMode {
    /// The machine's own network.
    Host,
    /// A network of its own, with ports mapped.
    Bridge,
}

/// What a job got of its machine. Fields are those of the HTTP API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRuntimeData {
    /// How the container is joined to the network.
    pub network_mode: NetworkMode,
    /// Accelerators; `None` means all.
    #[serde(default)]
    pub gpu: Option<u32>,
    /// Processors; `None` means all.
    #[serde(default)]
    pub cpu: Option<f64>,
    /// Memory in GB; `None` means all.
    #[serde(default)]
    pub memory: Option<f64>,
    /// Container port to port of the machine.
    #[serde(default)]
    pub ports: Option<BTreeMap<u16, u16>>,
    /// Names of attached volumes.
    #[serde(default)]
    pub volume_names: Option<Vec<String>>,
    /// The offer that was taken, with the share.
    #[serde(default)]
    pub offer: Option<InstanceOfferWithAvailability>,
    /// Working directory in the container.
    #[serde(default)]
    pub working_dir: Option<String>,
    /// User in the container.
    #[serde(default)]
    pub username: Option<String>,
}

const fn yes() -> bool {
    true
}

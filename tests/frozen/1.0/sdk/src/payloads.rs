//! Payloads as of 1.0: those of offers and machines, the manifest, what the host says of itself.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub schema: u32,
    pub name: String,
    pub version: String,
    pub sdk: String,
    pub abi: AbiVersion,
    #[serde(default)]
    pub encodings: Vec<String>,
    #[serde(default)]
    pub capabilities: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbiVersion {
    pub major: u32,
    #[serde(default)]
    pub minor: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    pub host_version: String,
    pub log_level: u32,
    pub services: BTreeMap<String, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    pub unix_micros: i64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GetOffersRequest {
    pub requirements: Value,
    #[serde(default)]
    pub full_offers: bool,
    #[serde(default)]
    pub unallocated_resources: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GetOffersReply {
    pub offers: Vec<Offer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Availability {
    Available,
    NotAvailable,
    NoQuota,
    NoBalance,
    Idle,
    Busy,
    #[default]
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    pub backend: String,
    pub instance: InstanceType,
    pub region: String,
    pub price: f64,
    #[serde(default)]
    pub backend_data: Map<String, Value>,
    #[serde(default)]
    pub availability: Availability,
    #[serde(default)]
    pub availability_zones: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_timeout_s: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceType {
    pub name: String,
    pub resources: Resources,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    pub cpus: u32,
    pub memory_mib: u64,
    #[serde(default)]
    pub spot: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateInstanceRequest {
    pub offer: Offer,
    pub config: InstanceConfiguration,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceConfiguration {
    pub project_name: String,
    pub instance_name: String,
    pub user: String,
    #[serde(default)]
    pub provider_ref: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateInstanceReply {
    pub provisioning_data: JobProvisioningData,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobProvisioningData {
    pub backend: String,
    pub instance_type: InstanceType,
    pub instance_id: String,
    #[serde(default)]
    pub hostname: Option<String>,
    pub region: String,
    pub price: f64,
    pub username: String,
    #[serde(default)]
    pub ssh_port: Option<u16>,
    pub dockerized: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminateInstanceRequest {
    pub instance_id: String,
    pub region: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReply {
    #[serde(default)]
    pub message: Option<String>,
}

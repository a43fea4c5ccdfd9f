//! Machines and load balancers that publish services.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backend_type::BackendType;

/// What to make: a gateway machine, or the load balancer before several of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayComputeConfiguration {
    /// The project it is for.
    pub project_name: String,
    /// Name of the gateway, with the number of the replica.
    pub instance_name: String,
    /// Who makes it.
    pub backend: BackendType,
    /// Where.
    pub region: String,
    /// The provider's type name; `None` means the backend's choice.
    #[serde(default)]
    pub instance_type: Option<String>,
    /// Whether it needs a public address.
    #[serde(default = "yes")]
    pub public_ip: bool,
    /// Public key that may log in.
    pub ssh_key_pub: String,
    /// Certificate as in the configuration, e.g. `{"type":"acm","arn":…}`.
    #[serde(default)]
    pub certificate: Option<Value>,
    /// Load balancer as in the configuration, e.g. `{"type":"alb"}`.
    #[serde(default)]
    pub load_balancer: Option<Value>,
    /// Router as in the configuration.
    #[serde(default)]
    pub router: Option<Value>,
    /// Tags of the user.
    #[serde(default)]
    pub tags: Option<BTreeMap<String, String>>,
    /// Put on everything that is made; see `InstanceConfiguration`.
    #[serde(default)]
    pub provider_ref: Option<String>,
}

/// What came out of making a gateway machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayProvisioningData {
    /// The provider's id.
    pub instance_id: String,
    /// Where to log in.
    pub ip_address: String,
    /// Where it is.
    pub region: String,
    /// Zone of the region.
    #[serde(default)]
    pub availability_zone: Option<String>,
    /// Name of its own, if there is one.
    #[serde(default)]
    pub hostname: Option<String>,
    /// For the backend itself; nobody else reads it.
    #[serde(default)]
    pub backend_data: Option<String>,
}

/// What came out of making a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayLoadBalancerData {
    /// Name to publish.
    pub hostname: String,
    /// For the backend itself; nobody else reads it.
    #[serde(default)]
    pub backend_data: Option<String>,
}

const fn yes() -> bool {
    true
}

//! Gateways: public entrances of services.

use dstack_backend_types::BackendType;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use serde_json::Value;
use uuid::Uuid;

use crate::words::wire_enum;

wire_enum! {
    /// Where a gateway stands.
    pub enum GatewayStatus {
        /// Wanted.
        Submitted = "submitted",
        /// Being made.
        Provisioning = "provisioning",
        /// Usable.
        Running = "running",
        /// Could not be made.
        Failed = "failed",
    }
}

/// `POST /api/project/{project}/gateways/list`; the body may be absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListGatewaysRequest {
    /// Also gateways that other projects share.
    pub include_imported: bool,
}

/// `POST /api/project/{project}/gateways/get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetGatewayRequest {
    /// Name.
    pub name: String,
}

/// `POST /api/project/{project}/gateways/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteGatewaysRequest {
    /// Names; unknown ones are ignored.
    pub names: Vec<String>,
}

wire_enum! {
    /// Where a gateway's replica stands.
    pub enum GatewayReplicaStatus {
        /// Wanted.
        Submitted = "submitted",
        /// Being made.
        Provisioning = "provisioning",
        /// Usable.
        Running = "running",
        /// Being given back.
        Terminating = "terminating",
        /// Gone.
        Terminated = "terminated",
    }
}

/// One machine of a gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayReplica {
    /// Address.
    #[serde(default)]
    pub hostname: Option<String>,
    /// Number, from 0.
    pub replica_num: u32,
    /// Who made it.
    #[serde(default)]
    pub backend: Option<BackendType>,
    /// Region.
    #[serde(default)]
    pub region: Option<String>,
    /// When it was made.
    #[serde(with = "crate::time")]
    pub created_at: Timestamp,
    /// Status.
    pub status: GatewayReplicaStatus,
    /// Details of the status.
    #[serde(default)]
    pub status_message: Option<String>,
}

/// A gateway as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gateway {
    /// Id.
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// Project.
    pub project_name: String,
    /// What the user wants.
    pub configuration: Value,
    /// When it was made.
    #[serde(with = "crate::time")]
    pub created_at: Timestamp,
    /// Status.
    pub status: GatewayStatus,
    /// Details of the status.
    #[serde(default)]
    pub status_message: Option<String>,
    /// Address.
    #[serde(default)]
    pub hostname: Option<String>,
    /// Domain below which services get their names.
    #[serde(default)]
    pub wildcard_domain: Option<String>,
    /// Whether services of the project use it unless they name another.
    pub default: bool,
    /// Machines.
    #[serde(default)]
    pub replicas: Vec<GatewayReplica>,
    /// Deprecated, null.
    #[serde(default)]
    pub backend: Option<BackendType>,
    /// Deprecated, null.
    #[serde(default)]
    pub region: Option<String>,
    /// Deprecated, null.
    #[serde(default)]
    pub ip_address: Option<String>,
    /// Deprecated, null.
    #[serde(default)]
    pub instance_id: Option<String>,
}

//! Gateways: public entrances of services.

use dstack_backend_types::BackendType;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use serde_json::Value;
use uuid::Uuid;

use crate::config::GatewayConfiguration;
use crate::runs::ApplyAction;
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListGatewaysRequest {
    /// Also gateways that other projects share.
    pub include_imported: bool,
}

/// `POST /api/project/{project}/gateways/get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GetGatewayRequest {
    /// Name.
    pub name: String,
}

/// `POST /api/project/{project}/gateways/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayReplica {
    /// Address.
    #[serde(default)]
    pub hostname: Option<String>,
    /// Number, from 0.
    pub replica_num: u32,
    /// Who made it.
    #[serde(default)]
    #[schemars(with = "Option<crate::schema::BackendType>")]
    pub backend: Option<BackendType>,
    /// Region.
    #[serde(default)]
    pub region: Option<String>,
    /// When it was made.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub created_at: Timestamp,
    /// Status.
    pub status: GatewayReplicaStatus,
    /// Details of the status.
    #[serde(default)]
    pub status_message: Option<String>,
}

/// A gateway as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gateway {
    /// Id.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// Project.
    pub project_name: String,
    /// What the user wants.
    #[schemars(with = "crate::config::GatewayConfiguration")]
    pub configuration: Value,
    /// When it was made.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
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
    #[schemars(with = "Option<crate::schema::BackendType>")]
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

/// What a user wants, with the file it came from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatewaySpec {
    /// The configuration.
    pub configuration: GatewayConfiguration,
    /// The file, as the user named it.
    #[serde(default)]
    pub configuration_path: Option<String>,
}

/// `POST /api/project/{project}/gateways/get_plan`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GetGatewayPlanRequest {
    /// What is wanted.
    pub spec: GatewaySpec,
}

/// What applying a specification would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayPlan {
    /// Project.
    pub project_name: String,
    /// Who asks.
    pub user: String,
    /// What was sent.
    pub spec: GatewaySpec,
    /// What would be stored.
    pub effective_spec: GatewaySpec,
    /// The gateway of that name.
    #[serde(default)]
    pub current_resource: Option<Gateway>,
    /// What would be done.
    pub action: ApplyAction,
}

/// The part of a plan that is applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApplyGatewayPlanInput {
    /// What is wanted.
    pub spec: GatewaySpec,
    /// What the client saw.
    #[serde(default)]
    pub current_resource: Option<Gateway>,
}

/// `POST /api/project/{project}/gateways/apply`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApplyGatewayPlanRequest {
    /// The plan.
    pub plan: ApplyGatewayPlanInput,
    /// Apply although it changed meanwhile.
    #[serde(default)]
    pub force: bool,
}

/// `POST /api/project/{project}/gateways/create`; deprecated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreateGatewayRequest {
    /// What is wanted.
    pub configuration: GatewayConfiguration,
}

/// `POST /api/project/{project}/gateways/set_default`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetDefaultGatewayRequest {
    /// Name.
    pub name: String,
    /// Whose gateway it is; absent means the project in the path.
    #[serde(default)]
    pub gateway_project: Option<String>,
}

/// `POST /api/project/{project}/gateways/set_wildcard_domain`; deprecated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetWildcardDomainRequest {
    /// Name.
    pub name: String,
    /// The domain; null takes it away.
    #[serde(default)]
    pub wildcard_domain: Option<String>,
}

//! Gateways: public entrances of services.

use serde::{Deserialize, Serialize};

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

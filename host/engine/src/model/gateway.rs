use std::sync::Arc;

use dstack_api::config::GatewayConfiguration;
use dstack_api::gateways::{GatewayReplicaStatus, GatewayStatus};
use dstack_backend_types::{GatewayLoadBalancerData, GatewayProvisioningData};
use jiff::Timestamp;

use crate::ids::{GatewayId, GatewayReplicaId, ProjectId};

/// A gateway: the public entrance of services.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayRow {
    /// Its id.
    pub id: GatewayId,
    /// The project it belongs to.
    pub project_id: ProjectId,
    /// Its name, unique among the not deleted gateways of the project.
    pub name: Arc<str>,
    /// What was asked for, `default` left out: that is a matter of the project.
    pub configuration: Arc<GatewayConfiguration>,
    /// Where it stands.
    pub status: GatewayStatus,
    /// Why it failed.
    pub status_message: Option<String>,
    /// When the row was made.
    pub created_at: Timestamp,
    /// When its pipeline last wrote it.
    pub last_processed_at: Timestamp,
    /// Stands on the load balancer. Stored with the row, and the same in every try.
    pub provider_ref: Arc<str>,
    /// When the provider was first told to make the load balancer.
    pub attempted_at: Option<Timestamp>,
    /// The load balancer, once it is made.
    pub load_balancer: Option<Arc<GatewayLoadBalancerData>>,
    /// How many times in a row the number of replicas had to be raised; picks the delay, ends at 15.
    pub scale_attempt: u32,
    /// When it was last raised; `None` after creation and after an update.
    pub scaled_at: Option<Timestamp>,
    /// Somebody wants it gone.
    pub delete_asked: bool,
    /// When the provider was first asked in vain to delete the load balancer.
    pub first_end_failure_at: Option<Timestamp>,
    /// When it was deleted; the row is kept for history.
    pub deleted_at: Option<Timestamp>,
}

impl GatewayRow {
    /// Gone; kept for history.
    pub fn is_deleted(&self) -> bool {
        self.deleted_at.is_some()
    }
}

/// One machine of a gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayReplicaRow {
    /// Its id.
    pub id: GatewayReplicaId,
    /// The gateway it belongs to.
    pub gateway_id: GatewayId,
    /// The project of the gateway.
    pub project_id: ProjectId,
    /// `<gateway>-<replica_num>`.
    pub name: Arc<str>,
    /// Number within the gateway; the lowest one that no living replica had when it was made.
    pub replica_num: u32,
    /// Where it stands.
    pub status: GatewayReplicaStatus,
    /// Why it ended.
    pub status_message: Option<String>,
    /// When the row was made.
    pub created_at: Timestamp,
    /// When its pipeline last wrote it.
    pub last_processed_at: Timestamp,
    /// Stands on the machine. Stored with the row, and the same in every try.
    pub provider_ref: Arc<str>,
    /// When the provider was first told to make the machine; from here on something may exist.
    pub attempted_at: Option<Timestamp>,
    /// The machine, once it is made.
    pub provisioning_data: Option<Arc<GatewayProvisioningData>>,
    /// How often its agent was looked for.
    pub connect_tries: u32,
    /// It stands behind the load balancer.
    pub registered: bool,
    /// When the provider was first asked in vain to end the machine.
    pub first_end_failure_at: Option<Timestamp>,
}

impl GatewayReplicaRow {
    /// Whether it counts as a machine of its gateway.
    pub fn is_living(&self) -> bool {
        !matches!(
            self.status,
            GatewayReplicaStatus::Terminating | GatewayReplicaStatus::Terminated
        )
    }
}

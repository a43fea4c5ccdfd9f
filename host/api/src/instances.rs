//! Instances: machines of fleets.

use dstack_backend_types::{BackendType, GpuDriverInfo, InstanceType};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::words::wire_enum;

wire_enum! {
    /// Where an instance stands.
    ///
    /// ```text
    /// pending ─► provisioning ─► idle ◄─► busy ─► terminating ─► terminated
    /// ```
    pub enum InstanceStatus {
        /// Has no machine yet.
        Pending = "pending",
        /// The machine is being made or booted.
        Provisioning = "provisioning",
        /// Ready, without jobs.
        Idle = "idle",
        /// Ready, with jobs.
        Busy = "busy",
        /// The machine is being given back.
        Terminating = "terminating",
        /// Gone.
        Terminated = "terminated",
    }
}

impl InstanceStatus {
    /// Whether the machine can take or run jobs.
    #[must_use]
    pub const fn is_available(self) -> bool {
        matches!(self, Self::Idle | Self::Busy)
    }

    /// Whether the instance is alive: neither being given back nor gone.
    #[must_use]
    pub const fn is_active(self) -> bool {
        !matches!(self, Self::Terminating | Self::Terminated)
    }

    /// Whether nothing changes any more.
    #[must_use]
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Terminated)
    }

    /// Whether an instance may go from `self` to `next`. Staying put is not a transition.
    ///
    /// A pending instance ends at once when it never had a machine, and becomes idle directly on SSH hosts.
    #[must_use]
    pub const fn can_become(self, next: Self) -> bool {
        use InstanceStatus::{Busy, Idle, Pending, Provisioning, Terminated, Terminating};
        match self {
            Pending => matches!(next, Provisioning | Idle | Terminating | Terminated),
            Provisioning => matches!(next, Idle | Busy | Terminating),
            Idle => matches!(next, Busy | Terminating),
            Busy => matches!(next, Idle | Terminating),
            Terminating => matches!(next, Terminated),
            Terminated => false,
        }
    }
}

wire_enum! {
    /// Why an instance ends.
    pub enum InstanceTerminationReason {
        /// `dstack fleet delete`.
        TerminatedByUser = "terminated_by_user",
        /// Idle longer than `idle_duration`.
        IdleTimeout = "idle_timeout",
        /// Not ready in time.
        ProvisioningTimeout = "provisioning_timeout",
        /// Something else went wrong; the message says what.
        Error = "error",
        /// The machine lived for its job only.
        JobFinished = "job_finished",
        /// Stopped answering.
        Unreachable = "unreachable",
        /// No offer could be had.
        NoOffers = "no_offers",
        /// The first instance of the cluster could not be made.
        MasterFailed = "master_failed",
        /// The fleet has more instances than allowed.
        MaxInstancesLimit = "max_instances_limit",
        /// The fleet's specification changed and this machine no longer fits.
        FleetSpecMismatch = "fleet_spec_mismatch",
        /// The account has no money left.
        NoBalance = "no_balance",
    }
}

impl InstanceTerminationReason {
    /// The text of the instance's error, for screens.
    #[must_use]
    pub const fn error(self) -> Option<&'static str> {
        match self {
            Self::IdleTimeout => Some("idle timeout"),
            Self::ProvisioningTimeout => Some("provisioning timeout"),
            Self::Error => Some("error"),
            Self::Unreachable => Some("unreachable"),
            Self::NoOffers => Some("no offers"),
            Self::MasterFailed => Some("master failed"),
            Self::MaxInstancesLimit => Some("max instances limit"),
            Self::FleetSpecMismatch => Some("fleet spec mismatch"),
            Self::NoBalance => Some("no balance"),
            Self::TerminatedByUser | Self::JobFinished => None,
        }
    }
}

wire_enum! {
    /// What the machine's own health checks say.
    pub enum HealthStatus {
        /// No complaint.
        Healthy = "healthy",
        /// May be used, with doubts.
        Warning = "warning",
        /// Must not be used.
        Failure = "failure",
    }
}

/// An instance as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Instance {
    /// Id.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Project that owns the fleet.
    pub project_name: String,
    /// Backend that made the machine; none while pending.
    #[serde(default)]
    #[schemars(with = "Option<crate::schema::BackendType>")]
    pub backend: Option<BackendType>,
    /// Machine type.
    #[serde(default)]
    #[schemars(with = "Option<crate::schema::InstanceType>")]
    pub instance_type: Option<InstanceType>,
    /// `<fleet>-<instance_num>`.
    pub name: String,
    /// Fleet.
    #[serde(default)]
    #[schemars(with = "Option<crate::schema::Id>")]
    pub fleet_id: Option<Uuid>,
    /// Fleet's name.
    #[serde(default)]
    pub fleet_name: Option<String>,
    /// Number within the fleet.
    pub instance_num: u32,
    /// Always null; kept for old clients.
    #[serde(default)]
    pub job_name: Option<String>,
    /// Address.
    #[serde(default)]
    pub hostname: Option<String>,
    /// Status.
    pub status: InstanceStatus,
    /// Whether the last contact failed.
    #[serde(default)]
    pub unreachable: bool,
    /// Health.
    #[serde(default = "healthy")]
    pub health_status: HealthStatus,
    /// A word of [`InstanceTerminationReason`]; newer servers may send others.
    #[serde(default)]
    pub termination_reason: Option<String>,
    /// Details of the reason.
    #[serde(default)]
    pub termination_reason_message: Option<String>,
    /// When the row was made.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub created: Timestamp,
    /// When it ended.
    #[serde(default, with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub finished_at: Option<Timestamp>,
    /// Region.
    #[serde(default)]
    pub region: Option<String>,
    /// Zone.
    #[serde(default)]
    pub availability_zone: Option<String>,
    /// US dollars per hour.
    #[serde(default)]
    pub price: Option<f64>,
    /// Blocks the machine is divided into.
    #[serde(default)]
    pub total_blocks: Option<u32>,
    /// Blocks in use.
    #[serde(default)]
    pub busy_blocks: u32,
    /// GPU driver found on the machine.
    #[serde(default)]
    #[schemars(with = "Option<crate::schema::GpuDriverInfo>")]
    pub gpu_driver: Option<GpuDriverInfo>,
}

const fn healthy() -> HealthStatus {
    HealthStatus::Healthy
}

/// `POST /api/instances/list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListInstancesRequest {
    /// Only these projects.
    pub project_names: Option<Vec<String>>,
    /// Only these fleets.
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub fleet_ids: Option<Vec<Uuid>>,
    /// Only instances that are not terminated.
    pub only_active: bool,
    /// Also instances of imported fleets.
    pub include_imported: bool,
    /// Cursor: time of the last row of the previous page.
    #[serde(with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub prev_created_at: Option<Timestamp>,
    /// Cursor: id of that row.
    #[schemars(with = "Option<crate::schema::Id>")]
    pub prev_id: Option<Uuid>,
    /// Page size.
    pub limit: u32,
    /// Oldest first.
    pub ascending: bool,
}

impl Default for ListInstancesRequest {
    fn default() -> Self {
        Self {
            project_names: None,
            fleet_ids: None,
            only_active: false,
            include_imported: false,
            prev_created_at: None,
            prev_id: None,
            limit: 1000,
            ascending: false,
        }
    }
}

/// `POST /api/project/{project}/instances/get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GetInstanceRequest {
    /// Which.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
}

/// `POST /api/project/{project}/instances/get_instance_health_checks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GetInstanceHealthChecksRequest {
    /// Fleet.
    pub fleet_name: String,
    /// Instance of the fleet.
    pub instance_num: u32,
    /// Only reports made later.
    #[serde(default, with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub after: Option<Timestamp>,
    /// Only reports made earlier.
    #[serde(default, with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub before: Option<Timestamp>,
    /// At most this many.
    #[serde(default)]
    pub limit: Option<u32>,
}

/// Answer of `get_instance_health_checks`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GetInstanceHealthChecksResponse {
    /// Newest first.
    pub health_checks: Vec<HealthCheck>,
}

/// One health check of an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HealthCheck {
    /// When it was made.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub collected_at: Timestamp,
    /// Its result.
    pub status: HealthStatus,
    /// What it found.
    pub events: Vec<HealthEvent>,
}

/// One finding of a health check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HealthEvent {
    /// When it happened.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub timestamp: Timestamp,
    /// How bad it is.
    pub status: HealthStatus,
    /// What it is.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::{InstanceStatus, InstanceTerminationReason};

    #[test]
    fn terminated_is_final_and_everything_can_end() {
        for &from in InstanceStatus::ALL {
            assert!(!from.can_become(from));
            assert!(!InstanceStatus::Terminated.can_become(from));
            assert_eq!(
                from.can_become(InstanceStatus::Terminating),
                from.is_active(),
                "{from}"
            );
            assert!(
                !from.can_become(InstanceStatus::Pending),
                "{from} to pending"
            );
        }
        assert!(!InstanceStatus::Idle.can_become(InstanceStatus::Terminated));
        for &reason in InstanceTerminationReason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
    }
}

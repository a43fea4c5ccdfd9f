use std::sync::Arc;

use dstack_api::config::Profile;
use dstack_api::instances::{HealthStatus, InstanceStatus, InstanceTerminationReason};
use dstack_backend_types::{
    BackendType, InstanceOfferWithAvailability, InstanceRuntime, JobProvisioningData, Requirements,
};
use jiff::Timestamp;

use crate::ids::{FleetId, InstanceId, JobId, ProjectId};

/// One try to make a machine at a provider, stored before the first call of the try.
///
/// An attempt that is found with no result belongs to a step that died between storing and concluding:
/// whatever it made carries `provider_ref`, so it is handed to cleanup, and the next try has a new reference.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CloudAttempt {
    /// Put on every resource that the attempt makes.
    pub provider_ref: String,
    /// The places that the attempt may have asked, in its order, without doubles.
    pub places: Vec<(BackendType, String)>,
    /// When it was stored.
    pub started_at: Timestamp,
}

/// A machine of a fleet, from the wish for it to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceRow {
    /// Its id.
    pub id: InstanceId,
    /// The project of its fleet.
    pub project_id: ProjectId,
    /// The fleet it belongs to.
    pub fleet_id: FleetId,
    /// `<fleet>-<instance_num>`.
    pub name: Arc<str>,
    /// Number within the fleet; the lowest one that no living instance had when it was made.
    pub instance_num: u32,
    /// Where it stands.
    pub status: InstanceStatus,
    /// The last checks failed.
    pub unreachable: bool,
    /// What the last health report said.
    pub health: HealthStatus,
    /// Why it is terminating or terminated.
    pub termination_reason: Option<InstanceTerminationReason>,
    /// Details of the reason, for people.
    pub termination_reason_message: Option<String>,
    /// When the row was made.
    pub created_at: Timestamp,
    /// When the provider was given the order; the provisioning time limit counts from here.
    pub started_at: Option<Timestamp>,
    /// When its end was confirmed.
    pub finished_at: Option<Timestamp>,
    /// When its pipeline last wrote it.
    pub last_processed_at: Timestamp,
    /// When its last job left it; idle time counts from here, else from `created_at`.
    pub last_job_at: Option<Timestamp>,
    /// Seconds it may idle before it is destroyed; `None` keeps it for good.
    pub idle_limit: Option<i64>,
    /// End of the patience with an unreachable machine.
    pub give_up_at: Option<Timestamp>,
    /// When the provider was first asked in vain to end the machine.
    pub first_end_failure_at: Option<Timestamp>,
    /// When health was last asked for.
    pub health_checked_at: Option<Timestamp>,
    /// A try to make the machine that has no result yet.
    pub attempt: Option<CloudAttempt>,
    /// The reference on the machine's resources, once it is made.
    pub provider_ref: Option<String>,
    /// The machine, as the backend described it; without host name until the address is known.
    pub provisioning_data: Option<Arc<JobProvisioningData>>,
    /// The offer it was made from, whole (not a share).
    pub offer: Option<Arc<InstanceOfferWithAvailability>>,
    /// What it was made for: a fleet's or a job's needs.
    pub requirements: Option<Arc<Requirements>>,
    /// The profile it was made with: the fleet's, or the fleet's and the run's combined.
    pub profile: Option<Arc<Profile>>,
    /// Equal parts it can be shared in; `None` before the machine is known.
    pub total_blocks: Option<u32>,
    /// Parts held by jobs.
    pub busy_blocks: u32,
    /// It is a placeholder that this submitted job provisions; the instances pipeline leaves it alone
    /// while it is `pending` or its job lives.
    pub owner_job: Option<JobId>,
    /// A host of an SSH fleet: never created, idle-timed or given up by us.
    pub ssh_host: Option<Arc<str>>,
    /// The row counts no longer; kept for history.
    pub deleted: bool,
}

impl InstanceRow {
    /// A new pending instance of a fleet, not numbered yet.
    pub fn pending(id: InstanceId, fleet: &super::FleetRow, now: Timestamp) -> Self {
        Self {
            id,
            project_id: fleet.project_id,
            fleet_id: fleet.id,
            name: Arc::clone(&fleet.name),
            instance_num: 0,
            status: InstanceStatus::Pending,
            unreachable: false,
            health: HealthStatus::Healthy,
            termination_reason: None,
            termination_reason_message: None,
            created_at: now,
            started_at: None,
            finished_at: None,
            last_processed_at: now,
            last_job_at: None,
            idle_limit: None,
            give_up_at: None,
            first_end_failure_at: None,
            health_checked_at: None,
            attempt: None,
            provider_ref: None,
            provisioning_data: None,
            offer: None,
            requirements: None,
            profile: None,
            total_blocks: None,
            busy_blocks: 0,
            owner_job: None,
            ssh_host: None,
            deleted: false,
        }
    }

    /// Whether it counts as a machine of its fleet: neither terminating nor terminated.
    pub fn is_living(&self) -> bool {
        !self.deleted && self.status.is_active()
    }

    /// Whether a shim answers on the machine; else the machine is the job's container itself.
    pub fn has_shim(&self) -> bool {
        self.ssh_host.is_some()
            || match (&self.offer, &self.provisioning_data) {
                (Some(offer), _) => offer.instance_runtime == InstanceRuntime::Shim,
                (None, Some(data)) => data.dockerized,
                (None, None) => false,
            }
    }

    /// Blocks that no job holds; 0 before the machine is known.
    pub fn free_blocks(&self) -> u32 {
        self.total_blocks
            .unwrap_or(0)
            .saturating_sub(self.busy_blocks)
    }
}

//! Changed columns of rows. In a patch `None` leaves a column alone; for columns that may be null, `Some(None)` writes null.

use std::collections::BTreeMap;
use std::sync::Arc;

use dstack_api::config::GatewayConfiguration;
use dstack_api::fleets::{FleetSpec, FleetStatus};
use dstack_api::gateways::{GatewayReplicaStatus, GatewayStatus};
use dstack_api::instances::{HealthStatus, InstanceStatus, InstanceTerminationReason};
use dstack_api::jobs::{JobStatus, JobTerminationReason};
use dstack_api::plan::ImagesFacts;
use dstack_api::runs::{RunSpec, RunStatus, RunTerminationReason};
use dstack_api::volumes::VolumeStatus;
use dstack_backend_types::{
    GatewayLoadBalancerData, GatewayProvisioningData, InstanceOfferWithAvailability,
    JobProvisioningData, JobRuntimeData, VolumeProvisioningData,
};
use jiff::Timestamp;

use crate::ids::{FleetId, GatewayId, GatewayReplicaId, InstanceId, JobId, RunId, VolumeId};
use crate::model::{CloudAttempt, Stop};

/// Changed columns of a run; see [`RunRow`](crate::model::RunRow) for their meaning.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    missing_docs,
    reason = "each field means what the field of that name in the row means"
)]
pub struct RunPatch {
    pub id: RunId,
    pub status: Option<RunStatus>,
    pub termination_reason: Option<Option<RunTerminationReason>>,
    pub fleet_id: Option<Option<FleetId>>,
    pub spec: Option<Arc<RunSpec>>,
    pub images: Option<Option<Arc<ImagesFacts>>>,
    pub next_triggered_at: Option<Option<Timestamp>>,
    pub resubmission_attempt: Option<u32>,
    pub deployment_num: Option<u32>,
    pub priority: Option<i64>,
    pub desired_replicas: Option<BTreeMap<String, u32>>,
    pub capacity_at: Option<Option<Timestamp>>,
    pub deleted: Option<bool>,
}

impl RunPatch {
    /// A patch that changes nothing yet.
    pub fn of(id: RunId) -> Self {
        Self {
            id,
            status: None,
            termination_reason: None,
            fleet_id: None,
            spec: None,
            images: None,
            next_triggered_at: None,
            resubmission_attempt: None,
            deployment_num: None,
            priority: None,
            desired_replicas: None,
            capacity_at: None,
            deleted: None,
        }
    }
}

/// Changed columns of a job; see [`JobRow`](crate::model::JobRow) for their meaning.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    missing_docs,
    reason = "each field means what the field of that name in the row means"
)]
pub struct JobPatch {
    pub id: JobId,
    pub status: Option<JobStatus>,
    pub termination_reason: Option<Option<JobTerminationReason>>,
    pub termination_reason_message: Option<Option<String>>,
    pub exit_status: Option<Option<i64>>,
    pub instance_id: Option<Option<InstanceId>>,
    pub deployment_num: Option<u32>,
    pub started_at: Option<Option<Timestamp>>,
    pub finished_at: Option<Option<Timestamp>>,
    pub stop: Option<Stop>,
    pub remove_at: Option<Option<Timestamp>>,
    pub provisioning_data: Option<Option<Arc<JobProvisioningData>>>,
    pub runtime_data: Option<Option<Arc<JobRuntimeData>>>,
    pub blocks: Option<u32>,
    pub runner_timestamp: Option<i64>,
    pub disconnected_at: Option<Option<Timestamp>>,
    pub inactivity_secs: Option<Option<i64>>,
    pub released: Option<bool>,
    pub registered: Option<bool>,
}

impl JobPatch {
    /// A patch that changes nothing yet.
    pub fn of(id: JobId) -> Self {
        Self {
            id,
            status: None,
            termination_reason: None,
            termination_reason_message: None,
            exit_status: None,
            instance_id: None,
            deployment_num: None,
            started_at: None,
            finished_at: None,
            stop: None,
            remove_at: None,
            provisioning_data: None,
            runtime_data: None,
            blocks: None,
            runner_timestamp: None,
            disconnected_at: None,
            inactivity_secs: None,
            released: None,
            registered: None,
        }
    }
}

/// Changed columns of an instance; see [`InstanceRow`](crate::model::InstanceRow) for their meaning.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    missing_docs,
    reason = "each field means what the field of that name in the row means"
)]
pub struct InstancePatch {
    pub id: InstanceId,
    pub status: Option<InstanceStatus>,
    pub unreachable: Option<bool>,
    pub health: Option<HealthStatus>,
    pub termination_reason: Option<Option<InstanceTerminationReason>>,
    pub termination_reason_message: Option<Option<String>>,
    pub started_at: Option<Option<Timestamp>>,
    pub finished_at: Option<Option<Timestamp>>,
    pub last_job_at: Option<Option<Timestamp>>,
    pub idle_limit: Option<Option<i64>>,
    pub give_up_at: Option<Option<Timestamp>>,
    pub first_end_failure_at: Option<Option<Timestamp>>,
    pub health_checked_at: Option<Option<Timestamp>>,
    pub attempt: Option<Option<CloudAttempt>>,
    pub provider_ref: Option<Option<String>>,
    pub provisioning_data: Option<Option<Arc<JobProvisioningData>>>,
    pub offer: Option<Option<Arc<InstanceOfferWithAvailability>>>,
    pub total_blocks: Option<Option<u32>>,
    /// Added to `busy_blocks` in the transaction, so that two jobs that come and go together both count.
    pub busy_blocks_delta: i32,
    pub owner_job: Option<Option<JobId>>,
    pub deleted: Option<bool>,
}

impl InstancePatch {
    /// A patch that changes nothing yet.
    pub fn of(id: InstanceId) -> Self {
        Self {
            id,
            status: None,
            unreachable: None,
            health: None,
            termination_reason: None,
            termination_reason_message: None,
            started_at: None,
            finished_at: None,
            last_job_at: None,
            idle_limit: None,
            give_up_at: None,
            first_end_failure_at: None,
            health_checked_at: None,
            attempt: None,
            provider_ref: None,
            provisioning_data: None,
            offer: None,
            total_blocks: None,
            busy_blocks_delta: 0,
            owner_job: None,
            deleted: None,
        }
    }
}

/// Changed columns of a fleet; see [`FleetRow`](crate::model::FleetRow) for their meaning.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    missing_docs,
    reason = "each field means what the field of that name in the row means"
)]
pub struct FleetPatch {
    pub id: FleetId,
    pub status: Option<FleetStatus>,
    pub status_message: Option<Option<String>>,
    pub spec: Option<Arc<FleetSpec>>,
    pub consolidation_attempt: Option<u32>,
    pub consolidated_at: Option<Option<Timestamp>>,
    pub deleted: Option<bool>,
}

impl FleetPatch {
    /// A patch that changes nothing yet.
    pub fn of(id: FleetId) -> Self {
        Self {
            id,
            status: None,
            status_message: None,
            spec: None,
            consolidation_attempt: None,
            consolidated_at: None,
            deleted: None,
        }
    }
}

/// Changed columns of a volume; see [`VolumeRow`](crate::model::VolumeRow) for their meaning.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    missing_docs,
    reason = "each field means what the field of that name in the row means"
)]
pub struct VolumePatch {
    pub id: VolumeId,
    pub status: Option<VolumeStatus>,
    pub status_message: Option<Option<String>>,
    pub last_job_at: Option<Option<Timestamp>>,
    pub attempted_at: Option<Option<Timestamp>>,
    pub provisioning_data: Option<Option<Arc<VolumeProvisioningData>>>,
    pub delete_asked: Option<bool>,
    pub first_end_failure_at: Option<Option<Timestamp>>,
    pub deleted_at: Option<Option<Timestamp>>,
}

impl VolumePatch {
    /// A patch that changes nothing yet.
    pub fn of(id: VolumeId) -> Self {
        Self {
            id,
            status: None,
            status_message: None,
            last_job_at: None,
            attempted_at: None,
            provisioning_data: None,
            delete_asked: None,
            first_end_failure_at: None,
            deleted_at: None,
        }
    }
}

/// Changed columns of a gateway; see [`GatewayRow`](crate::model::GatewayRow) for their meaning.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    missing_docs,
    reason = "each field means what the field of that name in the row means"
)]
pub struct GatewayPatch {
    pub id: GatewayId,
    pub configuration: Option<Arc<GatewayConfiguration>>,
    pub status: Option<GatewayStatus>,
    pub status_message: Option<Option<String>>,
    pub attempted_at: Option<Option<Timestamp>>,
    pub load_balancer: Option<Option<Arc<GatewayLoadBalancerData>>>,
    pub scale_attempt: Option<u32>,
    pub scaled_at: Option<Option<Timestamp>>,
    pub delete_asked: Option<bool>,
    pub first_end_failure_at: Option<Option<Timestamp>>,
    pub deleted_at: Option<Option<Timestamp>>,
}

impl GatewayPatch {
    /// A patch that changes nothing yet.
    pub fn of(id: GatewayId) -> Self {
        Self {
            id,
            configuration: None,
            status: None,
            status_message: None,
            attempted_at: None,
            load_balancer: None,
            scale_attempt: None,
            scaled_at: None,
            delete_asked: None,
            first_end_failure_at: None,
            deleted_at: None,
        }
    }
}

/// Changed columns of a gateway's machine; see [`GatewayReplicaRow`](crate::model::GatewayReplicaRow) for their meaning.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    missing_docs,
    reason = "each field means what the field of that name in the row means"
)]
pub struct GatewayReplicaPatch {
    pub id: GatewayReplicaId,
    pub status: Option<GatewayReplicaStatus>,
    pub status_message: Option<Option<String>>,
    pub attempted_at: Option<Option<Timestamp>>,
    pub provisioning_data: Option<Option<Arc<GatewayProvisioningData>>>,
    pub connect_tries: Option<u32>,
    pub registered: Option<bool>,
    pub first_end_failure_at: Option<Option<Timestamp>>,
}

impl GatewayReplicaPatch {
    /// A patch that changes nothing yet.
    pub fn of(id: GatewayReplicaId) -> Self {
        Self {
            id,
            status: None,
            status_message: None,
            attempted_at: None,
            provisioning_data: None,
            connect_tries: None,
            registered: None,
            first_end_failure_at: None,
        }
    }
}

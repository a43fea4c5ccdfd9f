//! Fleets: sets of instances.

use dstack_backend_types::InstanceOfferWithAvailability;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::config::{FleetConfiguration, Profile};
use crate::instances::Instance;
use crate::runs::ApplyAction;
use crate::words::wire_enum;

wire_enum! {
    /// Where a fleet stands.
    pub enum FleetStatus {
        /// Not used by this server; older ones had it.
        Submitted = "submitted",
        /// In use.
        Active = "active",
        /// Its instances are being given back.
        Terminating = "terminating",
        /// Gone.
        Terminated = "terminated",
        /// Not used by this server; older ones had it.
        Failed = "failed",
    }
}

impl FleetStatus {
    /// Whether nothing changes any more.
    #[must_use]
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Terminated | Self::Failed)
    }

    /// Whether a fleet may go from `self` to `next`. Staying put is not a transition.
    #[must_use]
    pub const fn can_become(self, next: Self) -> bool {
        match self {
            Self::Submitted => matches!(next, Self::Active | Self::Terminating | Self::Failed),
            Self::Active => matches!(next, Self::Terminating),
            Self::Terminating => matches!(next, Self::Terminated),
            Self::Terminated | Self::Failed => false,
        }
    }
}

/// What the user wants a fleet to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetSpec {
    /// The configuration file's content.
    pub configuration: FleetConfiguration,
    /// Where the file was, relative to the user's folder.
    #[serde(default)]
    pub configuration_path: Option<String>,
    /// Profile merged below the configuration.
    pub profile: Profile,
    /// Whether the server made the fleet for a run. Clients leave it out.
    #[serde(default)]
    pub autocreated: bool,
}

/// A fleet as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fleet {
    /// Id.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// Project that owns it.
    pub project_name: String,
    /// What the user wants, without private keys.
    pub spec: FleetSpec,
    /// When it was made.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub created_at: Timestamp,
    /// Status.
    pub status: FleetStatus,
    /// Details of the status.
    #[serde(default)]
    pub status_message: Option<String>,
    /// Instances that are not deleted, by number.
    pub instances: Vec<Instance>,
}

/// What applying a [`FleetSpec`] would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetPlan {
    /// Project.
    pub project_name: String,
    /// Who asks.
    pub user: String,
    /// The request's spec, defaults filled in.
    pub spec: FleetSpec,
    /// The spec that would be stored, without private keys.
    #[serde(default)]
    pub effective_spec: Option<FleetSpec>,
    /// The fleet of that name.
    #[serde(default)]
    pub current_resource: Option<Fleet>,
    /// The first offers.
    #[schemars(with = "Vec<crate::schema::InstanceOfferWithAvailability>")]
    pub offers: Vec<InstanceOfferWithAvailability>,
    /// How many offers there are.
    pub total_offers: u64,
    /// The highest price among all offers, US dollars per hour.
    #[serde(default)]
    pub max_offer_price: Option<f64>,
    /// Whether applying makes a fleet or changes one.
    #[serde(default)]
    pub action: Option<ApplyAction>,
}

/// `POST /api/fleets/list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListFleetsRequest {
    /// Only this project.
    pub project_name: Option<String>,
    /// Only fleets that are not gone.
    pub only_active: bool,
    /// Also fleets that other projects share.
    pub include_imported: bool,
    /// Cursor: time of the last row of the previous page.
    #[serde(with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub prev_created_at: Option<Timestamp>,
    /// Cursor: id of that row.
    #[schemars(with = "Option<crate::schema::Id>")]
    pub prev_id: Option<Uuid>,
    /// Page size, at most 100.
    pub limit: u32,
    /// Oldest first.
    pub ascending: bool,
}

impl Default for ListFleetsRequest {
    fn default() -> Self {
        Self {
            project_name: None,
            only_active: false,
            include_imported: false,
            prev_created_at: None,
            prev_id: None,
            limit: 100,
            ascending: false,
        }
    }
}

/// `POST /api/project/{project}/fleets/list`; the body may be absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListProjectFleetsRequest {
    /// Also fleets that other projects share.
    pub include_imported: bool,
}

/// `POST /api/project/{project}/fleets/get`; one of the two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GetFleetRequest {
    /// Name of a fleet that is not deleted.
    pub name: Option<String>,
    /// Id, also of a deleted one.
    #[schemars(with = "Option<crate::schema::Id>")]
    pub id: Option<Uuid>,
}

/// `POST /api/project/{project}/fleets/get_plan`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GetFleetPlanRequest {
    /// What the user wants.
    pub spec: FleetSpec,
}

/// The plan as the client saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApplyFleetPlanInput {
    /// What the user wants.
    pub spec: FleetSpec,
    /// The fleet the client compared with.
    #[serde(default)]
    pub current_resource: Option<Fleet>,
}

/// `POST /api/project/{project}/fleets/apply`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApplyFleetPlanRequest {
    /// The plan.
    pub plan: ApplyFleetPlanInput,
    /// Apply even if the fleet changed since.
    pub force: bool,
}

/// `POST /api/project/{project}/fleets/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteFleetsRequest {
    /// Which; unknown names are ignored.
    pub names: Vec<String>,
}

/// `POST /api/project/{project}/fleets/delete_instances`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteFleetInstancesRequest {
    /// Fleet.
    pub name: String,
    /// Numbers of the instances.
    pub instance_nums: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::FleetStatus;

    #[test]
    fn fleets_end_through_terminating() {
        for &from in FleetStatus::ALL {
            assert!(!from.can_become(from));
            assert_eq!(
                from.can_become(FleetStatus::Terminated),
                from == FleetStatus::Terminating,
                "{from}"
            );
            if from.is_finished() {
                assert!(FleetStatus::ALL.iter().all(|&to| !from.can_become(to)));
            }
        }
    }
}

use std::sync::Arc;

use dstack_api::fleets::{FleetSpec, FleetStatus};
use jiff::Timestamp;

use crate::ids::{FleetId, ProjectId};

/// A fleet: the rule by which machines are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetRow {
    /// Its id.
    pub id: FleetId,
    /// The project it belongs to.
    pub project_id: ProjectId,
    /// Its name, unique among the not deleted fleets of the project.
    pub name: Arc<str>,
    /// The effective specification.
    pub spec: Arc<FleetSpec>,
    /// Where it stands.
    pub status: FleetStatus,
    /// Details for people.
    pub status_message: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its pipeline last wrote it.
    pub last_processed_at: Timestamp,
    /// How many consolidations in a row had to change something; picks the delay, ends at 15.
    pub consolidation_attempt: u32,
    /// When consolidation last ran; `None` after creation or an update.
    pub consolidated_at: Option<Timestamp>,
    /// Gone; kept for history.
    pub deleted: bool,
}

use std::collections::BTreeMap;
use std::sync::Arc;

use dstack_api::plan::ImagesFacts;
use dstack_api::runs::{RunSpec, RunStatus, RunTerminationReason, ServiceSpec};
use jiff::Timestamp;

use crate::ids::{FleetId, ProjectId, RunId, UserId};

/// A run: what one applied configuration became.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// Its id.
    pub id: RunId,
    /// The project it belongs to.
    pub project_id: ProjectId,
    /// Who submitted it.
    pub user_id: UserId,
    /// The fleet its jobs are placed in; set with the first placed job, cleared when the run goes back
    /// to pending.
    pub fleet_id: Option<FleetId>,
    /// Its name, unique among the not deleted runs of the project.
    pub name: Arc<str>,
    /// The effective specification.
    pub spec: Arc<RunSpec>,
    /// Where it stands.
    pub status: RunStatus,
    /// Why it is terminating or finished.
    pub termination_reason: Option<RunTerminationReason>,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When its pipeline last wrote it.
    pub last_processed_at: Timestamp,
    /// When it fires next, for runs with a schedule. Stays during the run that it fired, and is the
    /// start of that run's retry window.
    pub next_triggered_at: Option<Timestamp>,
    /// How often the whole run went back to pending since it last reached provisioning; picks the
    /// delay before the next try.
    pub resubmission_attempt: u32,
    /// Number of the newest deployment; 0 at first, one more for each update in place.
    pub deployment_num: u32,
    /// 0 to 100; higher first.
    pub priority: i64,
    /// How many replicas each group should have; empty before the first decision.
    pub desired_replicas: BTreeMap<String, u32>,
    /// When a machine that it might use turned free while it waited for the next try: then it need not wait any
    /// longer. `None` while none did, and after every try.
    pub capacity_at: Option<Timestamp>,
    /// Address and model of a service, made at submission.
    pub service: Option<Arc<ServiceSpec>>,
    /// What the registries told of its images when it was submitted or updated, by name; jobs made later start the
    /// same way, whatever became of a tag.
    pub images: Option<Arc<ImagesFacts>>,
    /// Deleted by a user, or replaced by a newer run of its name.
    pub deleted: bool,
}

//! Events: what happened to what, and who did it.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::words::wire_enum;

wire_enum! {
    /// What an event is about.
    pub enum EventTargetType {
        /// Project.
        Project = "project",
        /// User.
        User = "user",
        /// Fleet.
        Fleet = "fleet",
        /// Instance.
        Instance = "instance",
        /// Run.
        Run = "run",
        /// Job.
        Job = "job",
        /// Volume.
        Volume = "volume",
        /// Gateway.
        Gateway = "gateway",
        /// Gateway replica.
        GatewayReplica = "gateway-replica",
        /// Secret.
        Secret = "secret",
        /// Preset.
        Preset = "preset",
    }
}

/// One thing an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventTarget {
    /// A word of [`EventTargetType`]; newer servers may send others.
    #[serde(rename = "type")]
    pub kind: String,
    /// Project of the thing.
    #[serde(default)]
    #[schemars(with = "Option<crate::schema::Id>")]
    pub project_id: Option<Uuid>,
    /// Its name, also after it was deleted.
    #[serde(default)]
    pub project_name: Option<String>,
    /// Whether that project was deleted.
    #[serde(default)]
    pub is_project_deleted: Option<bool>,
    /// Id of the thing.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// Name of the thing.
    pub name: String,
}

/// An event as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Id.
    #[schemars(with = "crate::schema::Id")]
    pub id: Uuid,
    /// What happened.
    pub message: String,
    /// When.
    #[serde(with = "crate::time")]
    #[schemars(with = "crate::schema::Time")]
    pub recorded_at: Timestamp,
    /// Who did it; none is the server itself.
    #[serde(default)]
    #[schemars(with = "Option<crate::schema::Id>")]
    pub actor_user_id: Option<Uuid>,
    /// Name, also after the user was deleted.
    #[serde(default)]
    pub actor_user: Option<String>,
    /// Whether that user was deleted.
    #[serde(default)]
    pub is_actor_user_deleted: Option<bool>,
    /// What it is about.
    pub targets: Vec<EventTarget>,
}

/// `POST /api/events/list`. At most one of the `target_*` and one of the `within_*` lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListEventsRequest {
    /// Events about these projects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub target_projects: Option<Vec<Uuid>>,
    /// Events about these users.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub target_users: Option<Vec<Uuid>>,
    /// Events about these fleets.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub target_fleets: Option<Vec<Uuid>>,
    /// Events about these instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub target_instances: Option<Vec<Uuid>>,
    /// Events about these runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub target_runs: Option<Vec<Uuid>>,
    /// Events about these job submissions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub target_jobs: Option<Vec<Uuid>>,
    /// Events about these volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub target_volumes: Option<Vec<Uuid>>,
    /// Events about these gateways.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub target_gateways: Option<Vec<Uuid>>,
    /// Events about these gateway replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub target_gateway_replicas: Option<Vec<Uuid>>,
    /// Events about these secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub target_secrets: Option<Vec<Uuid>>,
    /// Events about these presets.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub target_presets: Option<Vec<Uuid>>,
    /// Events about anything in these projects.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub within_projects: Option<Vec<Uuid>>,
    /// Events about these fleets and their instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub within_fleets: Option<Vec<Uuid>>,
    /// Events about these runs and their jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub within_runs: Option<Vec<Uuid>>,
    /// Events about these gateways and their replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<crate::schema::Id>>")]
    pub within_gateways: Option<Vec<Uuid>>,
    /// Only events about these kinds of things.
    pub include_target_types: Option<Vec<EventTargetType>>,
    /// Only events by these users; null is the server itself.
    #[schemars(with = "Option<Vec<Option<crate::schema::Id>>>")]
    pub actors: Option<Vec<Option<Uuid>>>,
    /// Cursor: time of the last row of the previous page.
    #[serde(with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub prev_recorded_at: Option<Timestamp>,
    /// Cursor: id of that row.
    #[schemars(with = "Option<crate::schema::Id>")]
    pub prev_id: Option<Uuid>,
    /// Page size, 1 to 100.
    pub limit: u32,
    /// Oldest first.
    pub ascending: bool,
}

impl Default for ListEventsRequest {
    fn default() -> Self {
        Self {
            target_projects: None,
            target_users: None,
            target_fleets: None,
            target_instances: None,
            target_runs: None,
            target_jobs: None,
            target_volumes: None,
            target_gateways: None,
            target_gateway_replicas: None,
            target_secrets: None,
            target_presets: None,
            within_projects: None,
            within_fleets: None,
            within_runs: None,
            within_gateways: None,
            include_target_types: None,
            actors: None,
            prev_recorded_at: None,
            prev_id: None,
            limit: 100,
            ascending: false,
        }
    }
}

//! Projects and their members.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::backends::BackendInfo;
use crate::users::User;
use crate::words::wire_enum;

wire_enum! {
    /// What a member may do in a project.
    pub enum ProjectRole {
        /// Everything.
        Admin = "admin",
        /// Members and, where the server allows it, secrets.
        Manager = "manager",
        /// Runs, fleets, volumes.
        User = "user",
    }
}

/// What a member may do beside the role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberPermissions {
    /// Make and change SSH fleets.
    pub can_manage_ssh_fleets: bool,
    /// Read and change secrets.
    #[serde(default)]
    pub can_manage_secrets: bool,
}

/// A member of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Member {
    /// Who.
    pub user: User,
    /// Role.
    pub project_role: ProjectRole,
    /// What the member may do beside the role.
    pub permissions: MemberPermissions,
}

/// A project as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Project {
    /// Id; version 4, since clients insist.
    #[schemars(with = "crate::schema::Id")]
    pub project_id: Uuid,
    /// Name.
    pub project_name: String,
    /// Who made it.
    pub owner: User,
    /// When it was made.
    #[serde(default, with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub created_at: Option<Timestamp>,
    /// Backends, without credentials.
    pub backends: Vec<BackendInfo>,
    /// Members in the order they joined.
    pub members: Vec<Member>,
    /// Whether any user may look and join.
    #[serde(default)]
    pub is_public: bool,
    /// Repository of run templates.
    #[serde(default)]
    pub templates_repo: Option<String>,
}

/// Answer of `projects/list` with `return_total_count`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectsInfoList {
    /// Projects that match, over all pages.
    #[serde(default)]
    pub total_count: Option<u64>,
    /// This page.
    pub projects: Vec<Project>,
}

/// `POST /api/projects/list`; the body may be absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListProjectsRequest {
    /// Also public projects the caller has not joined.
    pub include_not_joined: bool,
    /// Only projects this user is a member of, with that membership.
    pub username: Option<String>,
    /// Answer with [`ProjectsInfoList`] instead of a bare list.
    pub return_total_count: bool,
    /// Part of the name, in any case.
    pub name_pattern: Option<String>,
    /// Cursor: time of the last row of the previous page.
    #[serde(with = "crate::time::option")]
    #[schemars(with = "Option<crate::schema::Time>")]
    pub prev_created_at: Option<Timestamp>,
    /// Cursor: id of that row.
    #[schemars(with = "Option<crate::schema::Id>")]
    pub prev_id: Option<Uuid>,
    /// Page size, at most 2000.
    pub limit: u32,
    /// Oldest first.
    pub ascending: bool,
}

impl Default for ListProjectsRequest {
    fn default() -> Self {
        Self {
            include_not_joined: true,
            username: None,
            return_total_count: false,
            name_pattern: None,
            prev_created_at: None,
            prev_id: None,
            limit: 2000,
            ascending: false,
        }
    }
}

/// `POST /api/projects/create`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreateProjectRequest {
    /// Name.
    pub project_name: String,
    /// Whether any user may look and join.
    #[serde(default)]
    pub is_public: bool,
    /// Repository of run templates.
    #[serde(default)]
    pub templates_repo: Option<String>,
}

/// `POST /api/projects/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeleteProjectsRequest {
    /// Names.
    pub projects_names: Vec<String>,
}

/// Who gets which role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberSetting {
    /// Name or e-mail address.
    pub username: String,
    /// Role.
    pub project_role: ProjectRole,
}

/// `POST /api/projects/{project}/set_members` (replaces all) and `add_members`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetProjectMembersRequest {
    /// Members.
    pub members: Vec<MemberSetting>,
}

/// `POST /api/projects/{project}/remove_members`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemoveProjectMembersRequest {
    /// Names or e-mail addresses.
    pub usernames: Vec<String>,
}

/// `POST /api/projects/{project}/update`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UpdateProjectRequest {
    /// Whether any user may look and join.
    pub is_public: Option<bool>,
    /// Repository of run templates.
    pub templates_repo: Option<String>,
    /// Go back to the server's repository of run templates.
    pub reset_templates_repo: bool,
}

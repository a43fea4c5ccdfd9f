//! Projects and their members.

mod members;

use std::sync::Arc;

use dstack_api::backends::BackendInfo;
use dstack_api::projects::{
    CreateProjectRequest, ListProjectsRequest, Member, MemberPermissions, Project, ProjectRole,
    ProjectsInfoList, UpdateProjectRequest,
};
use dstack_api::users::GlobalRole;
use dstack_engine::ids::{ProjectId, UserId};
use dstack_remote::KeyPair;
use dstack_store::projects::{self, ProjectRow, ProjectsFilter};
use dstack_store::users::{self, UserRow};
use dstack_store::{DbError, Page, Store, Tx, backends, exports, fleets, runs};
use uuid::Uuid;

use super::events;
use super::keyring::Keyring;
use super::names::{self, NameRule};
use super::users::{Listed, Users};
use crate::app::{Permissions, now};
use crate::compat::{Client, view};
use crate::error::ApiError;
use crate::extract::{Access, Authenticated};

const PROJECT_NAME: NameRule = NameRule {
    kind: "Project name",
    max: 50,
};

/// The projects of the server.
pub(crate) struct Projects {
    store: Store,
    keyring: Keyring,
    permissions: Permissions,
    quota: u32,
    users: Arc<Users>,
}

/// Everything a [`Project`] shows.
struct Whole {
    row: ProjectRow,
    owner: UserRow,
    backends: Vec<backends::BackendRow>,
    members: Vec<(UserRow, ProjectRole)>,
}

impl Projects {
    pub(crate) fn new(
        store: Store,
        keyring: Keyring,
        permissions: Permissions,
        quota: u32,
        users: Arc<Users>,
    ) -> Self {
        Self {
            store,
            keyring,
            permissions,
            quota,
            users,
        }
    }

    fn member(&self, user: &UserRow, role: ProjectRole) -> Member {
        let admin = user.global_role == GlobalRole::Admin || role == ProjectRole::Admin;
        Member {
            user: self.users.view(user),
            project_role: role,
            permissions: MemberPermissions {
                can_manage_ssh_fleets: admin || self.permissions.non_admins_manage_ssh_fleets,
                can_manage_secrets: admin
                    || (role == ProjectRole::Manager && self.permissions.managers_manage_secrets),
            },
        }
    }

    fn view(&self, whole: &Whole, client: &Client) -> Project {
        let shown = |backend: &&backends::BackendRow| client.ours || view::is_known(&backend.kind);
        let info = |backend: &backends::BackendRow| BackendInfo {
            name: backend.kind.as_str().to_owned(),
            config: backend.record.clone(),
        };
        Project {
            project_id: whole.row.id.0,
            project_name: whole.row.name.clone(),
            owner: self.users.view(&whole.owner),
            created_at: Some(whole.row.created_at),
            backends: whole.backends.iter().filter(shown).map(info).collect(),
            members: whole
                .members
                .iter()
                .map(|(user, role)| self.member(user, *role))
                .collect(),
            is_public: whole.row.is_public,
            templates_repo: whole.row.templates_repo.clone(),
        }
    }

    /// One page of the projects that the caller may see.
    pub(crate) async fn list(
        &self,
        caller: &Authenticated,
        request: ListProjectsRequest,
    ) -> Result<Listed<Project, ProjectsInfoList>, ApiError> {
        names::check_limit(request.limit, 2000)?;
        names::check_pattern(request.name_pattern.as_deref())?;
        let me = (!caller.is_admin()).then_some(caller.0.id);
        let count = request.return_total_count;
        let (projects, total) = self
            .store
            .read_as(move |tx| visible(tx, me, &request))
            .await?;
        let client = Client {
            ours: true,
            version: None,
        };
        let projects: Vec<Project> = projects
            .iter()
            .map(|whole| self.view(whole, &client))
            .collect();
        Ok(if count {
            Listed::Counted(ProjectsInfoList {
                total_count: total,
                projects,
            })
        } else {
            Listed::Bare(projects)
        })
    }

    /// Member projects without fleets, oldest first.
    pub(crate) async fn without_fleets(
        &self,
        caller: &Authenticated,
    ) -> Result<Vec<Project>, ApiError> {
        let me = caller.0.id;
        let found = self
            .store
            .read(move |tx| {
                let mut found = Vec::new();
                for id in projects::ids_of_member(tx, me)? {
                    if fleets::names(tx, id)?.is_empty()
                        && exports::imported_fleets(tx, id)?.is_empty()
                        && let Some(row) = projects::get(tx, id)?
                        && let Some(owner) = users::get(tx, row.owner_id)?
                    {
                        found.push(Whole {
                            row,
                            owner,
                            backends: Vec::new(),
                            members: Vec::new(),
                        });
                    }
                }
                found.sort_by_key(|whole| (whole.row.created_at, whole.row.id));
                Ok(found)
            })
            .await?;
        let client = Client {
            ours: true,
            version: None,
        };
        Ok(found
            .iter()
            .map(|whole| self.view(whole, &client))
            .collect())
    }

    /// A project with backends and members.
    pub(crate) async fn get(&self, id: ProjectId, client: &Client) -> Result<Project, ApiError> {
        let whole = self.store.read_as(move |tx| whole(tx, id)).await?;
        Ok(self.view(&whole, client))
    }

    /// Makes a project; the caller becomes its admin.
    pub(crate) async fn create(
        &self,
        caller: &Authenticated,
        request: CreateProjectRequest,
        client: &Client,
    ) -> Result<Project, ApiError> {
        if !caller.is_admin() && !self.permissions.non_admins_create_projects {
            return Err(ApiError::Denied("User cannot create projects".to_owned()));
        }
        PROJECT_NAME.check(&request.project_name)?;
        let row = self.new_row(&request, caller.0.id)?;
        let quota = (!caller.is_admin()).then_some(self.quota);
        let whole = self
            .store
            .write_as(move |tx| {
                if projects::by_name_any_case(tx, &row.name)?.is_some() {
                    return Err(ApiError::exists("Resource exists"));
                }
                if let Some(quota) = quota
                    && projects::owned_by(tx, row.owner_id)? >= quota
                {
                    return Err(ApiError::refused("User project quota exceeded"));
                }
                insert(tx, &row, Some(row.owner_id))?;
                whole(tx, row.id)
            })
            .await?;
        Ok(self.view(&whole, client))
    }

    fn new_row(
        &self,
        request: &CreateProjectRequest,
        owner_id: UserId,
    ) -> Result<ProjectRow, ApiError> {
        let internal = |error: &dyn std::fmt::Display| ApiError::Internal(error.to_string());
        let pair = KeyPair::generate(&format!("dstack-{}", request.project_name))
            .map_err(|e| internal(&e))?;
        Ok(ProjectRow {
            id: ProjectId(Uuid::new_v4()),
            name: request.project_name.clone(),
            owner_id,
            created_at: now(),
            is_public: request.is_public,
            templates_repo: request.templates_repo.clone(),
            ssh_public_key: pair.public,
            ssh_private_key: self
                .keyring
                .seal(pair.private.expose())
                .map_err(|e| internal(&e))?,
            original_name: None,
            deleted: false,
        })
    }

    /// The project of this name, made for `owner` if there is none.
    pub(crate) async fn ensure(&self, name: &str, owner: UserId) -> Result<ProjectRow, ApiError> {
        let request = CreateProjectRequest {
            project_name: name.to_owned(),
            is_public: false,
            templates_repo: None,
        };
        PROJECT_NAME.check(name)?;
        let fresh = self.new_row(&request, owner)?;
        let row = self
            .store
            .write(move |tx| match projects::by_name(tx, &fresh.name)? {
                Some(row) => Ok(row),
                None => {
                    insert(tx, &fresh, None)?;
                    Ok(fresh)
                }
            })
            .await?;
        Ok(row)
    }

    /// Deletes projects in which nothing runs any more; if one cannot be deleted, none is.
    pub(crate) async fn delete(
        &self,
        caller: &Authenticated,
        wanted: Vec<String>,
    ) -> Result<(), ApiError> {
        let (me, is_admin) = (caller.0.id, caller.is_admin());
        self.store
            .write_as(move |tx| {
                let mut rows = Vec::new();
                for name in &wanted {
                    let row = projects::by_name(tx, name)?.filter(|row| !row.deleted);
                    if !is_admin {
                        let role = match &row {
                            Some(row) => projects::role(tx, row.id, me)?,
                            None => None,
                        };
                        if role != Some(ProjectRole::Admin) {
                            return Err(ApiError::access_denied());
                        }
                    }
                    rows.push(row.ok_or_else(|| {
                        ApiError::refused("Failed to delete non-existent projects")
                    })?);
                }
                for row in rows {
                    let active = runs::active_names(tx, row.id, 20)?;
                    if !active.is_empty() {
                        return Err(in_use("runs", &active));
                    }
                    let active = fleets::names(tx, row.id)?;
                    if !active.is_empty() {
                        return Err(in_use("fleets", &active));
                    }
                    let active = dstack_store::volumes::names(tx, row.id)?;
                    if !active.is_empty() {
                        return Err(in_use("volumes", &active));
                    }
                    let active = dstack_store::gateways::names(tx, row.id)?;
                    if !active.is_empty() {
                        return Err(in_use("gateways", &active));
                    }
                    events::record(
                        tx,
                        now(),
                        Some(me),
                        "Project deleted",
                        vec![events::project(&row)],
                    )?;
                    projects::delete(tx, row.id, &names::deleted(now(), row.id.0))?;
                }
                Ok(())
            })
            .await
    }

    /// Changes visibility and templates.
    pub(crate) async fn update(
        &self,
        access: &Access,
        request: UpdateProjectRequest,
        client: &Client,
    ) -> Result<Project, ApiError> {
        let (row, actor) = (access.project.clone(), access.user.id);
        let whole = self
            .store
            .write_as(move |tx| {
                let templates = match (request.reset_templates_repo, request.templates_repo) {
                    (true, _) => Some(None),
                    (false, Some(repo)) => Some(Some(repo)),
                    (false, None) => None,
                };
                let mut changed = Vec::new();
                if request
                    .is_public
                    .is_some_and(|public| public != row.is_public)
                {
                    changed.push("is_public");
                }
                if templates
                    .as_ref()
                    .is_some_and(|repo| *repo != row.templates_repo)
                {
                    changed.push("templates_repo");
                }
                projects::update(
                    tx,
                    row.id,
                    request.is_public,
                    templates.as_ref().map(Option::as_deref),
                )?;
                if !changed.is_empty() {
                    let message =
                        format!("Project updated. Updated fields: {}", changed.join(", "));
                    events::record(tx, now(), Some(actor), message, vec![events::project(&row)])?;
                }
                whole(tx, row.id)
            })
            .await?;
        Ok(self.view(&whole, client))
    }
}

fn in_use(what: &str, names: &[String]) -> ApiError {
    let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    ApiError::refused(format!(
        "Failed to delete project with active {what}: [{}]",
        names.join(", ")
    ))
}

fn insert(tx: &mut dyn Tx, row: &ProjectRow, actor: Option<UserId>) -> Result<(), DbError> {
    projects::insert(tx, row)?;
    projects::set_member(tx, row.id, row.owner_id, ProjectRole::Admin)?;
    super::exports::give_global(tx, row.id, row.created_at)?;
    events::record(
        tx,
        row.created_at,
        actor,
        "Project created",
        vec![events::project(row)],
    )
}

/// A user by name, else by address.
fn find(tx: &mut dyn Tx, name: &str) -> Result<Option<UserRow>, DbError> {
    let found = users::by_name(tx, name)?.filter(|user| !user.deleted);
    if found.is_some() {
        Ok(found)
    } else {
        users::by_email(tx, name)
    }
}

fn whole(tx: &mut dyn Tx, id: ProjectId) -> Result<Whole, ApiError> {
    let row = projects::get(tx, id)?.ok_or(ApiError::NotFound)?;
    let owner = users::get(tx, row.owner_id)?
        .ok_or_else(|| ApiError::Internal("a project without owner".to_owned()))?;
    Ok(Whole {
        owner,
        backends: backends::of_project(tx, id)?,
        members: projects::members(tx, id)?,
        row,
    })
}

/// A page of what `me` may see (`None`: everything). Backends are never listed, members only those asked for.
fn visible(
    tx: &mut dyn Tx,
    me: Option<UserId>,
    request: &ListProjectsRequest,
) -> Result<(Vec<Whole>, Option<u64>), ApiError> {
    let page = Page {
        prev_at: request.prev_created_at,
        prev_id: request.prev_id,
        limit: request.limit,
        ascending: request.ascending,
    };
    let asked = match &request.username {
        Some(name) => match find(tx, name)? {
            Some(user) => Some(user),
            None => return Ok((Vec::new(), request.return_total_count.then_some(0))),
        },
        None => None,
    };
    let mut filter = ProjectsFilter {
        member: me,
        or_public: request.include_not_joined,
        name_part: request.name_pattern.clone(),
        page,
    };
    if me.is_none() && asked.is_some() {
        (filter.member, filter.or_public) = (asked.as_ref().map(|user| user.id), false);
    }
    let total = if request.return_total_count {
        Some(projects::count(tx, &filter)?)
    } else {
        None
    };
    let mut found = Vec::new();
    for row in projects::list(tx, &filter)? {
        let mut members = Vec::new();
        if let Some(user) = &asked {
            let Some(role) = projects::role(tx, row.id, user.id)? else {
                continue;
            };
            members.push((user.clone(), role));
        }
        if let Some(owner) = users::get(tx, row.owner_id)? {
            found.push(Whole {
                row,
                owner,
                backends: Vec::new(),
                members,
            });
        }
    }
    Ok((found, total))
}

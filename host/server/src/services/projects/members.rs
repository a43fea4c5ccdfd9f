//! Who belongs to a project.

use std::collections::HashSet;

use dstack_api::projects::{MemberSetting, Project, ProjectRole};
use dstack_engine::ids::{ProjectId, UserId};
use dstack_store::{DbError, Tx, projects};

use super::{Projects, find, whole};
use crate::compat::Client;
use crate::error::ApiError;
use crate::extract::Access;

impl Projects {
    /// Replaces all members. Unknown users are left out silently.
    pub(crate) async fn set_members(
        &self,
        access: &Access,
        members: Vec<MemberSetting>,
        client: &Client,
    ) -> Result<Project, ApiError> {
        let mut seen = HashSet::new();
        if !members
            .iter()
            .all(|member| seen.insert(member.username.clone()))
        {
            return Err(ApiError::refused("Cannot add same user multiple times"));
        }
        let (id, may_change_admins) = (access.project.id, access.is_project_admin());
        let whole = self
            .store
            .write_as(move |tx| {
                let before: HashSet<UserId> = admins(tx, id)?;
                let mut wanted = Vec::new();
                for member in members {
                    if let Some(user) = find(tx, &member.username)? {
                        wanted.push((user.id, member.project_role));
                    }
                }
                let after: HashSet<UserId> = wanted
                    .iter()
                    .filter(|(_, role)| *role == ProjectRole::Admin)
                    .map(|(id, _)| *id)
                    .collect();
                if before != after && !may_change_admins {
                    return Err(ApiError::Denied(
                        "Access denied: changing project admins".to_owned(),
                    ));
                }
                projects::clear_members(tx, id)?;
                for (user, role) in wanted {
                    projects::set_member(tx, id, user, role)?;
                }
                whole(tx, id)
            })
            .await?;
        Ok(self.view(&whole, client))
    }

    /// Adds members or gives them new roles. Anybody may join a public project as a user.
    pub(crate) async fn add_members(
        &self,
        access: &Access,
        members: Vec<MemberSetting>,
        client: &Client,
    ) -> Result<Project, ApiError> {
        let own = [
            Some(access.user.name.as_str()),
            access.user.email.as_deref(),
        ];
        let only_self = members
            .iter()
            .all(|member| own.contains(&Some(member.username.as_str())));
        if !access.is_manager() {
            if !access.project.is_public || !only_self {
                return Err(ApiError::Denied(
                    "Access denied: insufficient permissions to add members".to_owned(),
                ));
            }
            if members
                .iter()
                .any(|member| member.project_role != ProjectRole::User)
            {
                return Err(ApiError::Denied(
                    "Access denied: can only join public projects as user role".to_owned(),
                ));
            }
        }
        let (id, may_change_admins) = (access.project.id, access.is_project_admin());
        let whole = self
            .store
            .write_as(move |tx| {
                for member in members {
                    let user = find(tx, &member.username)?;
                    let user = user.ok_or_else(|| {
                        ApiError::refused(format!("User not found: {}", member.username))
                    })?;
                    let touches_admins = member.project_role == ProjectRole::Admin
                        || projects::role(tx, id, user.id)? == Some(ProjectRole::Admin);
                    if touches_admins && !may_change_admins {
                        return Err(ApiError::Denied(
                            "Access denied: only global admins can add project admins".to_owned(),
                        ));
                    }
                    projects::set_member(tx, id, user.id, member.project_role)?;
                }
                whole(tx, id)
            })
            .await?;
        Ok(self.view(&whole, client))
    }

    /// Removes members; everybody may leave.
    pub(crate) async fn remove_members(
        &self,
        access: &Access,
        usernames: Vec<String>,
        client: &Client,
    ) -> Result<Project, ApiError> {
        let own = [
            Some(access.user.name.as_str()),
            access.user.email.as_deref(),
        ];
        let leaves = usernames
            .iter()
            .all(|name| own.contains(&Some(name.as_str())));
        if !access.is_manager() && !leaves {
            return Err(ApiError::access_denied());
        }
        let (id, may_change_admins) = (access.project.id, access.is_project_admin());
        let whole = self
            .store
            .write_as(move |tx| {
                let mut rest = admins(tx, id)?;
                for name in usernames {
                    let user = find(tx, &name)?
                        .ok_or_else(|| ApiError::refused(format!("User not found: {name}")))?;
                    let was_admin = rest.remove(&user.id);
                    if was_admin && rest.is_empty() {
                        let text = if leaves {
                            "Cannot leave project: you are the last admin"
                        } else {
                            "Cannot remove all project admins"
                        };
                        return Err(ApiError::refused(text));
                    }
                    if was_admin && !may_change_admins {
                        return Err(ApiError::access_denied());
                    }
                    if !projects::remove_member(tx, id, user.id)? {
                        return Err(ApiError::refused(format!(
                            "User is not a member of this project: {name}"
                        )));
                    }
                }
                whole(tx, id)
            })
            .await?;
        Ok(self.view(&whole, client))
    }
}

fn admins(tx: &mut dyn Tx, id: ProjectId) -> Result<HashSet<UserId>, DbError> {
    let members = projects::members(tx, id)?;
    Ok(members
        .into_iter()
        .filter(|(_, role)| *role == ProjectRole::Admin)
        .map(|(user, _)| user.id)
        .collect())
}

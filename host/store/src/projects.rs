//! Projects and their members.

use dstack_api::projects::ProjectRole;
use dstack_engine::ids::{ProjectId, UserId};
use jiff::Timestamp;

use crate::error::DbError;
use crate::page::Page;
use crate::patch::Patch;
use crate::sealed::Sealed;
use crate::sql::Sql;
use crate::tx::{Query, Row, Tx};
use crate::users::{self, UserRow};
use crate::{params, sql};

/// A project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRow {
    /// Its id.
    pub id: ProjectId,
    /// Its name; unique without regard to case.
    pub name: String,
    /// Who made it.
    pub owner_id: UserId,
    /// When it was made.
    pub created_at: Timestamp,
    /// Whether everybody may see and join it.
    pub is_public: bool,
    /// Where its templates are.
    pub templates_repo: Option<String>,
    /// The public key put on its machines.
    pub ssh_public_key: String,
    /// Its private half, sealed.
    pub ssh_private_key: Sealed,
    /// The name it had before it was deleted.
    pub original_name: Option<String>,
    /// Deleted; kept for history.
    pub deleted: bool,
}

macro_rules! columns {
    () => {
        "SELECT p.id, p.name, p.owner_id, p.created_at, p.is_public, p.templates_repo, p.ssh_public_key, \
         p.ssh_private_key, p.original_name, p.deleted FROM projects p "
    };
}

const GET: Sql = sql!(columns!(), "WHERE p.id = ?1");
pub(crate) const BY_NAME: Sql = sql!(
    columns!(),
    "WHERE lower(p.name) = lower(?1) AND p.name = ?1 AND p.deleted = 0"
);
const BY_ANY_CASE: Sql = sql!(
    columns!(),
    "WHERE lower(p.name) = lower(?1) AND p.deleted = 0"
);
const OWNED: Sql = sql!("SELECT count(*) FROM projects WHERE owner_id = ?1 AND deleted = 0");
const INSERT: Sql = sql!(
    "INSERT INTO projects (id, name, owner_id, created_at, is_public, templates_repo, ssh_public_key, \
     ssh_private_key, original_name, deleted) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
);
const DELETE: Sql = sql!(
    "UPDATE projects SET original_name = name, name = ?2, deleted = 1 WHERE id = ?1 AND deleted = 0"
);

fn from_row(mut row: Row<'_>) -> Result<ProjectRow, DbError> {
    Ok(ProjectRow {
        id: row.take()?,
        name: row.take()?,
        owner_id: row.take()?,
        created_at: row.take()?,
        is_public: row.take()?,
        templates_repo: row.take()?,
        ssh_public_key: row.take()?,
        ssh_private_key: row.take()?,
        original_name: row.take()?,
        deleted: row.take()?,
    })
}

/// The project of this id, also a deleted one.
pub fn get(tx: &mut dyn Tx, id: ProjectId) -> Result<Option<ProjectRow>, DbError> {
    tx.first(GET, params![id], from_row)
}

/// The project of exactly this name.
pub fn by_name(tx: &mut dyn Tx, name: &str) -> Result<Option<ProjectRow>, DbError> {
    tx.first(BY_NAME, params![name], from_row)
}

/// The project whose name differs from this one by case at most; creation refuses such names.
pub fn by_name_any_case(tx: &mut dyn Tx, name: &str) -> Result<Option<ProjectRow>, DbError> {
    tx.first(BY_ANY_CASE, params![name], from_row)
}

/// How many projects a user owns.
pub fn owned_by(tx: &mut dyn Tx, user: UserId) -> Result<u32, DbError> {
    Ok(tx
        .first(OWNED, params![user], |mut row| row.take())?
        .unwrap_or(0))
}

/// Stores a new project. A name that is taken (in any case) is [`DbError::Conflict`].
pub fn insert(tx: &mut dyn Tx, project: &ProjectRow) -> Result<(), DbError> {
    tx.exec(
        INSERT,
        params![
            project.id,
            &project.name,
            project.owner_id,
            project.created_at,
            project.is_public,
            project.templates_repo.as_deref(),
            &project.ssh_public_key,
            &project.ssh_private_key,
            project.original_name.as_deref(),
            project.deleted,
        ],
    )?;
    Ok(())
}

/// Changes the given settings; `Some(None)` clears the templates.
pub fn update(
    tx: &mut dyn Tx,
    id: ProjectId,
    is_public: Option<bool>,
    templates_repo: Option<Option<&str>>,
) -> Result<(), DbError> {
    let mut patch = Patch::of("projects");
    patch.set("is_public", is_public);
    patch.set("templates_repo", templates_repo);
    patch.run(tx, id)?;
    Ok(())
}

/// Marks a project as deleted under a new name, so that the old one is free.
pub fn delete(tx: &mut dyn Tx, id: ProjectId, new_name: &str) -> Result<(), DbError> {
    tx.exec(DELETE, params![id, new_name])?;
    Ok(())
}

/// Which projects to list.
#[derive(Debug, Clone, Default)]
pub struct ProjectsFilter {
    /// Only projects that this user has joined.
    pub member: Option<UserId>,
    /// With `member`: also public ones.
    pub or_public: bool,
    /// Only names that contain this, without regard to case.
    pub name_part: Option<String>,
    /// Which part of the list.
    pub page: Page,
}

fn conditions<'a>(filter: &'a ProjectsFilter, query: &mut Query<'a>) {
    query.text(" WHERE p.deleted = 0");
    if let Some(member) = filter.member {
        query.text(
            " AND (EXISTS (SELECT 1 FROM members m WHERE m.project_id = p.id AND m.user_id = ",
        );
        query.bind(member).text(")");
        if filter.or_public {
            query.text(" OR p.is_public = 1");
        }
        query.text(")");
    }
    if let Some(part) = &filter.name_part {
        query
            .text(" AND lower(p.name) LIKE ")
            .bind(users::like(part))
            .text(" ESCAPE '\\'");
    }
}

/// One page of projects by creation time.
pub fn list(tx: &mut dyn Tx, filter: &ProjectsFilter) -> Result<Vec<ProjectRow>, DbError> {
    let mut query = Query::new(columns!());
    conditions(filter, &mut query);
    filter.page.append(&mut query, "p.created_at", "p.id");
    tx.all_of(&query, from_row)
}

/// How many projects the filter matches, on all pages.
pub fn count(tx: &mut dyn Tx, filter: &ProjectsFilter) -> Result<u64, DbError> {
    let mut query = Query::new("SELECT count(*) FROM projects p");
    conditions(filter, &mut query);
    Ok(tx
        .all_of(&query, |mut row| row.take::<u64>())?
        .first()
        .copied()
        .unwrap_or(0))
}

/// Ids of the not deleted projects that a user has joined.
pub fn ids_of_member(tx: &mut dyn Tx, user: UserId) -> Result<Vec<ProjectId>, DbError> {
    const OF_MEMBER: Sql = sql!(
        "SELECT p.id FROM members m JOIN projects p ON p.id = m.project_id WHERE m.user_id = ?1 AND p.deleted = 0 \
         ORDER BY m.number"
    );
    tx.all(OF_MEMBER, params![user], |mut row| row.take())
}

const MEMBERS: Sql = sql!(
    "SELECT u.id, u.name, u.global_role, u.email, u.active, u.token, u.token_sha256, u.ssh_public_key, \
     u.ssh_private_key, u.created_at, u.original_name, u.deleted, m.role FROM members m \
     JOIN users u ON u.id = m.user_id WHERE m.project_id = ?1 ORDER BY m.number"
);
pub(crate) const ROLE: Sql =
    sql!("SELECT role FROM members WHERE project_id = ?1 AND user_id = ?2");
const ROLES: Sql = sql!("SELECT project_id, role FROM members WHERE user_id = ?1 ORDER BY number");
const JOIN: Sql = sql!(
    "INSERT INTO members (project_id, user_id, role) VALUES (?1, ?2, ?3) \
     ON CONFLICT (project_id, user_id) DO UPDATE SET role = excluded.role"
);
const LEAVE: Sql = sql!("DELETE FROM members WHERE project_id = ?1 AND user_id = ?2");
const CLEAR: Sql = sql!("DELETE FROM members WHERE project_id = ?1");

/// The members of a project in the order in which they joined.
pub fn members(
    tx: &mut dyn Tx,
    project: ProjectId,
) -> Result<Vec<(UserRow, ProjectRole)>, DbError> {
    tx.all(MEMBERS, params![project], |mut row| {
        Ok((users::from_row(&mut row)?, row.take()?))
    })
}

/// A user's role in a project.
pub fn role(
    tx: &mut dyn Tx,
    project: ProjectId,
    user: UserId,
) -> Result<Option<ProjectRole>, DbError> {
    tx.first(ROLE, params![project, user], |mut row| row.take())
}

/// A user's roles in all projects.
pub fn roles(tx: &mut dyn Tx, user: UserId) -> Result<Vec<(ProjectId, ProjectRole)>, DbError> {
    tx.all(ROLES, params![user], |mut row| {
        Ok((row.take()?, row.take()?))
    })
}

/// Adds a member at the end, or gives one that is there the new role.
pub fn set_member(
    tx: &mut dyn Tx,
    project: ProjectId,
    user: UserId,
    role: ProjectRole,
) -> Result<(), DbError> {
    tx.exec(JOIN, params![project, user, role])?;
    Ok(())
}

/// Removes a member; true if it was one.
pub fn remove_member(tx: &mut dyn Tx, project: ProjectId, user: UserId) -> Result<bool, DbError> {
    Ok(tx.exec(LEAVE, params![project, user])? > 0)
}

/// Removes all members, before a new list is set.
pub fn clear_members(tx: &mut dyn Tx, project: ProjectId) -> Result<(), DbError> {
    tx.exec(CLEAR, params![project])?;
    Ok(())
}

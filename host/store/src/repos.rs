//! Repositories of a project, the credentials of their users, and uploaded code.

use dstack_api::repos::RepoInfo;
use dstack_engine::ids::{ProjectId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::DbError;
use crate::sealed::Sealed;
use crate::sql::Sql;
use crate::tx::{Row, Tx, json};
use crate::{params, sql};

/// A repository that runs of a project use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoRow {
    /// Its id.
    pub id: Uuid,
    /// The project.
    pub project_id: ProjectId,
    /// What the wire calls `repo_id`.
    pub name: String,
    /// What it is.
    pub info: RepoInfo,
}

const OF_PROJECT: Sql =
    sql!("SELECT id, project_id, name, info FROM repos WHERE project_id = ?1 ORDER BY name");
const GET: Sql =
    sql!("SELECT id, project_id, name, info FROM repos WHERE project_id = ?1 AND name = ?2");
const PUT: Sql = sql!(
    "INSERT INTO repos (id, project_id, name, info) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (project_id, name) DO UPDATE SET info = excluded.info RETURNING id"
);
const DELETE: Sql = sql!("DELETE FROM repos WHERE project_id = ?1 AND name = ?2");
const CREDS: Sql = sql!("SELECT creds FROM repo_creds WHERE repo_id = ?1 AND user_id = ?2");
const PUT_CREDS: Sql = sql!(
    "INSERT INTO repo_creds (repo_id, user_id, creds) VALUES (?1, ?2, ?3) \
     ON CONFLICT (repo_id, user_id) DO UPDATE SET creds = excluded.creds"
);
const DELETE_CREDS: Sql = sql!("DELETE FROM repo_creds WHERE repo_id = ?1 AND user_id = ?2");

fn from_row(mut row: Row<'_>) -> Result<RepoRow, DbError> {
    Ok(RepoRow {
        id: row.take()?,
        project_id: row.take()?,
        name: row.take()?,
        info: row.json()?,
    })
}

/// The repositories of a project, by name.
pub fn of_project(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<RepoRow>, DbError> {
    tx.all(OF_PROJECT, params![project], from_row)
}

/// A repository by the wire's `repo_id`.
pub fn get(tx: &mut dyn Tx, project: ProjectId, name: &str) -> Result<Option<RepoRow>, DbError> {
    tx.first(GET, params![project, name], from_row)
}

/// Adds a repository or replaces what is known of it; answers its id, which for a known one is the old id.
pub fn put(tx: &mut dyn Tx, repo: &RepoRow) -> Result<Uuid, DbError> {
    let info = json("the description of a repository", &repo.info)?;
    let id = tx.first(
        PUT,
        params![repo.id, repo.project_id, &repo.name, info],
        |mut row| row.take(),
    )?;
    Ok(id.unwrap_or(repo.id))
}

/// Removes a repository with its credentials and code; true if it was there.
pub fn delete(tx: &mut dyn Tx, project: ProjectId, name: &str) -> Result<bool, DbError> {
    Ok(tx.exec(DELETE, params![project, name])? > 0)
}

/// A user's credentials for a repository (JSON of the wire's `repo_creds`, sealed).
pub fn creds(tx: &mut dyn Tx, repo: Uuid, user: UserId) -> Result<Option<Sealed>, DbError> {
    tx.first(CREDS, params![repo, user], |mut row| row.take())
}

/// Stores a user's credentials; `None` removes them.
pub fn set_creds(
    tx: &mut dyn Tx,
    repo: Uuid,
    user: UserId,
    creds: Option<&Sealed>,
) -> Result<(), DbError> {
    match creds {
        Some(creds) => tx.exec(PUT_CREDS, params![repo, user, creds])?,
        None => tx.exec(DELETE_CREDS, params![repo, user])?,
    };
    Ok(())
}

/// Uploaded code of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeRow {
    /// The repository.
    pub repo_id: Uuid,
    /// SHA-256 in hexadecimal, as the client named it.
    pub hash: String,
    /// Bytes.
    pub size: u32,
    /// The bytes themselves; `None` when the blob store keeps them.
    pub blob: Option<Vec<u8>>,
}

const CODE: Sql =
    sql!("SELECT repo_id, blob_hash, size, blob FROM codes WHERE repo_id = ?1 AND blob_hash = ?2");
const HAS_CODE: Sql = sql!("SELECT 1 FROM codes WHERE repo_id = ?1 AND blob_hash = ?2");
const ADD_CODE: Sql = sql!(
    "INSERT INTO codes (repo_id, blob_hash, size, blob, created_at) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT (repo_id, blob_hash) DO NOTHING"
);

/// Code by its hash.
pub fn code(tx: &mut dyn Tx, repo: Uuid, hash: &str) -> Result<Option<CodeRow>, DbError> {
    tx.first(CODE, params![repo, hash], |mut row| {
        Ok(CodeRow {
            repo_id: row.take()?,
            hash: row.take()?,
            size: row.take()?,
            blob: row.take()?,
        })
    })
}

/// Whether code of this hash is known.
pub fn has_code(tx: &mut dyn Tx, repo: Uuid, hash: &str) -> Result<bool, DbError> {
    Ok(tx
        .first(HAS_CODE, params![repo, hash], |mut row| row.take::<i64>())?
        .is_some())
}

/// Stores code; the same hash again changes nothing.
pub fn add_code(tx: &mut dyn Tx, code: &CodeRow, now: Timestamp) -> Result<(), DbError> {
    tx.exec(
        ADD_CODE,
        params![code.repo_id, &code.hash, code.size, code.blob.as_ref(), now],
    )?;
    Ok(())
}

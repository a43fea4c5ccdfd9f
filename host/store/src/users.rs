//! Users, their tokens, and their public keys.

use dstack_api::users::GlobalRole;
use dstack_engine::ids::UserId;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::DbError;
use crate::page::Page;
use crate::sealed::Sealed;
use crate::sql::Sql;
use crate::tx::{Query, Row, Tx};
use crate::{params, sql};

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRow {
    /// Its id.
    pub id: UserId,
    /// Its name; unique without regard to case.
    pub name: String,
    /// What it may do on the whole server.
    pub global_role: GlobalRole,
    /// Its address.
    pub email: Option<String>,
    /// Whether it may log in.
    pub active: bool,
    /// The token, sealed.
    pub token: Sealed,
    /// SHA-256 of the token in lower-case hexadecimal; found by it.
    pub token_sha256: String,
    /// The public key put on machines.
    pub ssh_public_key: Option<String>,
    /// Its private half, sealed.
    pub ssh_private_key: Option<Sealed>,
    /// When it was made.
    pub created_at: Timestamp,
    /// The name it had before it was deleted.
    pub original_name: Option<String>,
    /// Deleted; kept for history.
    pub deleted: bool,
}

macro_rules! columns {
    () => {
        "SELECT u.id, u.name, u.global_role, u.email, u.active, u.token, u.token_sha256, u.ssh_public_key, \
         u.ssh_private_key, u.created_at, u.original_name, u.deleted FROM users u "
    };
}

const GET: Sql = sql!(columns!(), "WHERE u.id = ?1");
const BY_NAME: Sql = sql!(
    columns!(),
    "WHERE lower(u.name) = lower(?1) AND u.name = ?1 AND u.deleted = 0"
);
const BY_ANY_CASE: Sql = sql!(
    columns!(),
    "WHERE lower(u.name) = lower(?1) AND u.deleted = 0"
);
const BY_EMAIL: Sql = sql!(
    columns!(),
    "WHERE u.email = ?1 AND u.deleted = 0 ORDER BY u.created_at LIMIT 1"
);
pub(crate) const BY_TOKEN: Sql = sql!(
    columns!(),
    "WHERE u.token_sha256 = ?1 AND u.deleted = 0 AND u.active = 1"
);
const INSERT: Sql = sql!(
    "INSERT INTO users (id, name, global_role, email, active, token, token_sha256, ssh_public_key, ssh_private_key, \
     created_at, original_name, deleted) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
);
const UPDATE: Sql = sql!(
    "UPDATE users SET global_role = ?2, email = ?3, active = ?4 WHERE id = ?1 AND deleted = 0"
);
const SET_TOKEN: Sql =
    sql!("UPDATE users SET token = ?2, token_sha256 = ?3 WHERE id = ?1 AND deleted = 0");
const SET_SSH_KEY: Sql = sql!(
    "UPDATE users SET ssh_public_key = ?2, ssh_private_key = ?3 WHERE id = ?1 AND deleted = 0"
);
const DELETE: Sql = sql!(
    "UPDATE users SET original_name = name, name = ?2, deleted = 1, active = 0 WHERE id = ?1 AND deleted = 0"
);
const LEAVE_ALL: Sql = sql!("DELETE FROM members WHERE user_id = ?1");

pub(crate) fn from_row(row: &mut Row<'_>) -> Result<UserRow, DbError> {
    Ok(UserRow {
        id: row.take()?,
        name: row.take()?,
        global_role: row.take()?,
        email: row.take()?,
        active: row.take()?,
        token: row.take()?,
        token_sha256: row.take()?,
        ssh_public_key: row.take()?,
        ssh_private_key: row.take()?,
        created_at: row.take()?,
        original_name: row.take()?,
        deleted: row.take()?,
    })
}

/// The form in which tokens are looked up.
#[must_use]
pub fn token_hash(token: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(64);
    for byte in Sha256::digest(token.as_bytes()) {
        // Writing to a String cannot fail.
        let Ok(()) = write!(out, "{byte:02x}") else {
            continue;
        };
    }
    out
}

/// The user of this id, also a deleted one.
pub fn get(tx: &mut dyn Tx, id: UserId) -> Result<Option<UserRow>, DbError> {
    tx.first(GET, params![id], |mut row| from_row(&mut row))
}

/// The user of exactly this name.
pub fn by_name(tx: &mut dyn Tx, name: &str) -> Result<Option<UserRow>, DbError> {
    tx.first(BY_NAME, params![name], |mut row| from_row(&mut row))
}

/// The user whose name differs from this one by case at most; creation refuses such names.
pub fn by_name_any_case(tx: &mut dyn Tx, name: &str) -> Result<Option<UserRow>, DbError> {
    tx.first(BY_ANY_CASE, params![name], |mut row| from_row(&mut row))
}

/// The user of this address.
pub fn by_email(tx: &mut dyn Tx, email: &str) -> Result<Option<UserRow>, DbError> {
    tx.first(BY_EMAIL, params![email], |mut row| from_row(&mut row))
}

/// The active user whose token has this hash (see [`token_hash`]).
pub fn by_token_hash(tx: &mut dyn Tx, hash: &str) -> Result<Option<UserRow>, DbError> {
    tx.first(BY_TOKEN, params![hash], |mut row| from_row(&mut row))
}

/// Stores a new user. A name that is taken (in any case) is [`DbError::Conflict`].
pub fn insert(tx: &mut dyn Tx, user: &UserRow) -> Result<(), DbError> {
    tx.exec(
        INSERT,
        params![
            user.id,
            &user.name,
            user.global_role,
            user.email.as_deref(),
            user.active,
            &user.token,
            &user.token_sha256,
            user.ssh_public_key.as_deref(),
            user.ssh_private_key.as_ref(),
            user.created_at,
            user.original_name.as_deref(),
            user.deleted,
        ],
    )?;
    Ok(())
}

/// Replaces what an administrator may change.
pub fn update(
    tx: &mut dyn Tx,
    id: UserId,
    role: GlobalRole,
    email: Option<&str>,
    active: bool,
) -> Result<(), DbError> {
    tx.exec(UPDATE, params![id, role, email, active])?;
    Ok(())
}

/// Replaces the token.
pub fn set_token(tx: &mut dyn Tx, id: UserId, token: &Sealed, hash: &str) -> Result<(), DbError> {
    tx.exec(SET_TOKEN, params![id, token, hash])?;
    Ok(())
}

/// Replaces the key pair.
pub fn set_ssh_key(
    tx: &mut dyn Tx,
    id: UserId,
    public: &str,
    private: &Sealed,
) -> Result<(), DbError> {
    tx.exec(SET_SSH_KEY, params![id, public, private])?;
    Ok(())
}

/// Marks a user as deleted under a new name, so that the old one is free, and takes it out of all projects.
pub fn delete(tx: &mut dyn Tx, id: UserId, new_name: &str) -> Result<(), DbError> {
    tx.exec(DELETE, params![id, new_name])?;
    tx.exec(LEAVE_ALL, params![id])?;
    Ok(())
}

/// Which users to list.
#[derive(Debug, Clone, Default)]
pub struct UsersFilter {
    /// Only this one.
    pub only: Option<UserId>,
    /// Only names that contain this, without regard to case.
    pub name_part: Option<String>,
    /// Which part of the list.
    pub page: Page,
}

fn conditions<'a>(filter: &'a UsersFilter, query: &mut Query<'a>) {
    query.text(" WHERE u.deleted = 0");
    if let Some(only) = filter.only {
        query.text(" AND u.id = ").bind(only);
    }
    if let Some(part) = &filter.name_part {
        query
            .text(" AND lower(u.name) LIKE ")
            .bind(like(part))
            .text(" ESCAPE '\\'");
    }
}

/// A LIKE pattern for names that contain a text.
pub(crate) fn like(part: &str) -> String {
    let part = part
        .to_lowercase()
        .replace('\\', "\\\\")
        .replace('%', "\\%")
        .replace('_', "\\_");
    format!("%{part}%")
}

/// One page of users by creation time.
pub fn list(tx: &mut dyn Tx, filter: &UsersFilter) -> Result<Vec<UserRow>, DbError> {
    let mut query = Query::new(columns!());
    conditions(filter, &mut query);
    filter.page.append(&mut query, "u.created_at", "u.id");
    tx.all_of(&query, |mut row| from_row(&mut row))
}

/// How many users the filter matches, on all pages.
pub fn count(tx: &mut dyn Tx, filter: &UsersFilter) -> Result<u64, DbError> {
    let mut query = Query::new("SELECT count(*) FROM users u");
    conditions(filter, &mut query);
    Ok(tx
        .all_of(&query, |mut row| row.take::<u64>())?
        .first()
        .copied()
        .unwrap_or(0))
}

/// A public key that a user added for logging in to jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKeyRow {
    /// Its id.
    pub id: Uuid,
    /// Whose it is.
    pub user_id: UserId,
    /// When it was added.
    pub added_at: Timestamp,
    /// What the user calls it.
    pub name: String,
    /// Its algorithm, such as `ssh-ed25519`.
    pub kind: String,
    /// `SHA256:…`, unique for a user.
    pub fingerprint: String,
    /// The key line.
    pub public_key: String,
}

const KEYS: Sql = sql!(
    "SELECT id, user_id, added_at, name, type, fingerprint, public_key FROM user_keys WHERE user_id = ?1 \
     ORDER BY added_at DESC, id ASC"
);
const INSERT_KEY: Sql = sql!(
    "INSERT INTO user_keys (id, user_id, added_at, name, type, fingerprint, public_key) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
);
const DELETE_KEY: Sql = sql!("DELETE FROM user_keys WHERE id = ?1 AND user_id = ?2");

/// A user's public keys, newest first.
pub fn public_keys(tx: &mut dyn Tx, user: UserId) -> Result<Vec<PublicKeyRow>, DbError> {
    tx.all(KEYS, params![user], |mut row| {
        Ok(PublicKeyRow {
            id: row.take()?,
            user_id: row.take()?,
            added_at: row.take()?,
            name: row.take()?,
            kind: row.take()?,
            fingerprint: row.take()?,
            public_key: row.take()?,
        })
    })
}

/// Adds a public key; one that the user has already is [`DbError::Conflict`].
pub fn add_public_key(tx: &mut dyn Tx, key: &PublicKeyRow) -> Result<(), DbError> {
    tx.exec(
        INSERT_KEY,
        params![
            key.id,
            key.user_id,
            key.added_at,
            &key.name,
            &key.kind,
            &key.fingerprint,
            &key.public_key
        ],
    )?;
    Ok(())
}

/// Removes a user's public key; true if it was there.
pub fn delete_public_key(tx: &mut dyn Tx, user: UserId, id: Uuid) -> Result<bool, DbError> {
    Ok(tx.exec(DELETE_KEY, params![id, user])? > 0)
}

//! Extra tokens of users: with a name, an end and a scope. Only their hashes are kept.

use dstack_engine::ids::UserId;
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::{Row, Tx, json};
use crate::{params, sql};

/// An extra token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Its id.
    pub id: Uuid,
    /// Whose it is.
    pub user_id: UserId,
    /// What its user calls it.
    pub name: String,
    /// SHA-256 of the token, in hexadecimal.
    pub token_sha256: String,
    /// What it may be used for.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends; `None` is never.
    pub expires_at: Option<Timestamp>,
}

macro_rules! columns {
    () => {
        "SELECT id, user_id, name, token_sha256, scopes, created_at, expires_at FROM tokens "
    };
}
const OF_USER: Sql = sql!(columns!(), "WHERE user_id = ?1 ORDER BY created_at, id");
pub(crate) const BY_HASH: Sql = sql!(columns!(), "WHERE token_sha256 = ?1");
const INSERT: Sql = sql!(
    "INSERT INTO tokens (id, user_id, name, token_sha256, scopes, created_at, expires_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
);
const DELETE: Sql = sql!("DELETE FROM tokens WHERE user_id = ?1 AND name = ?2");
const DELETE_OF_USER: Sql = sql!("DELETE FROM tokens WHERE user_id = ?1");

fn from_row(mut row: Row<'_>) -> Result<TokenRow, DbError> {
    Ok(TokenRow {
        id: row.take()?,
        user_id: row.take()?,
        name: row.take()?,
        token_sha256: row.take()?,
        scopes: row.json()?,
        created_at: row.take()?,
        expires_at: row.take()?,
    })
}

/// The token with this hash, also one that has ended.
pub fn by_hash(tx: &mut dyn Tx, hash: &str) -> Result<Option<TokenRow>, DbError> {
    tx.first(BY_HASH, params![hash], from_row)
}

/// A user's extra tokens, oldest first.
pub fn of_user(tx: &mut dyn Tx, user: UserId) -> Result<Vec<TokenRow>, DbError> {
    tx.all(OF_USER, params![user], from_row)
}

/// Stores a token; a name that the user has already is [`DbError::Conflict`].
pub fn insert(tx: &mut dyn Tx, token: &TokenRow) -> Result<(), DbError> {
    tx.exec(
        INSERT,
        params![
            token.id,
            token.user_id,
            &token.name,
            &token.token_sha256,
            json("the scopes of a token", &token.scopes)?,
            token.created_at,
            token.expires_at
        ],
    )?;
    Ok(())
}

/// Ends a token; true if there was one.
pub fn delete(tx: &mut dyn Tx, user: UserId, name: &str) -> Result<bool, DbError> {
    Ok(tx.exec(DELETE, params![user, name])? > 0)
}

/// Ends all extra tokens of a user.
pub fn delete_of_user(tx: &mut dyn Tx, user: UserId) -> Result<(), DbError> {
    tx.exec(DELETE_OF_USER, params![user])?;
    Ok(())
}

//! Turns: work that one server at a time does for all servers of a database.

use jiff::Timestamp;
use uuid::Uuid;

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::Tx;
use crate::{params, sql};

pub(crate) const TAKE: Sql = sql!(
    "INSERT INTO turns (name, owner, expires_at) VALUES (?1, ?2, ?3) \
     ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at \
     WHERE turns.owner = excluded.owner OR turns.expires_at <= ?4"
);
const GIVE_BACK: Sql = sql!("UPDATE turns SET expires_at = 0 WHERE name = ?1 AND owner = ?2");

/// Takes the turn at some work until `until`, or keeps it longer; false while another server has it.
pub fn take(
    tx: &mut dyn Tx,
    name: &str,
    owner: Uuid,
    now: Timestamp,
    until: Timestamp,
) -> Result<bool, DbError> {
    Ok(tx.exec(TAKE, params![name, owner, until, now])? > 0)
}

/// Gives the turn to whoever wants it next; nothing happens if another server has it by now.
pub fn give_back(tx: &mut dyn Tx, name: &str, owner: Uuid) -> Result<(), DbError> {
    tx.exec(GIVE_BACK, params![name, owner])?;
    Ok(())
}

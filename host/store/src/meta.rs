//! Small facts about this database: named texts.

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::Tx;
use crate::{params, sql};

const GET: Sql = sql!("SELECT value FROM meta WHERE name = ?1");
const SET: Sql = sql!(
    "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
);
const KEEP: Sql =
    sql!("INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING");

/// The text of this name.
pub fn get(tx: &mut dyn Tx, name: &str) -> Result<Option<String>, DbError> {
    tx.first(GET, params![name], |mut row| row.take())
}

/// Sets a text.
pub fn set(tx: &mut dyn Tx, name: &str, value: &str) -> Result<(), DbError> {
    tx.exec(SET, params![name, value])?;
    Ok(())
}

/// Sets a text unless there is one; answers the one that stands now.
pub fn get_or_set(tx: &mut dyn Tx, name: &str, value: &str) -> Result<String, DbError> {
    tx.exec(KEEP, params![name, value])?;
    Ok(get(tx, name)?.unwrap_or_else(|| value.to_owned()))
}

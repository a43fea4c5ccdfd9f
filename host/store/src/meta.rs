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

/// Every text whose name starts with `prefix`, with its name.
pub fn starting_with(tx: &mut dyn Tx, prefix: &str) -> Result<Vec<(String, String)>, DbError> {
    const LIST: Sql =
        sql!("SELECT name, value FROM meta WHERE name >= ?1 AND name < ?2 ORDER BY name");
    // No name of ours has a character behind `~`.
    tx.all(LIST, params![prefix, format!("{prefix}~")], |mut row| {
        Ok((row.take()?, row.take()?))
    })
}

/// Removes a text; one that is not there is fine.
pub fn remove(tx: &mut dyn Tx, name: &str) -> Result<(), DbError> {
    const DELETE: Sql = sql!("DELETE FROM meta WHERE name = ?1");
    tx.exec(DELETE, params![name])?;
    Ok(())
}

/// Sets a text unless there is one; answers the one that stands now.
pub fn get_or_set(tx: &mut dyn Tx, name: &str, value: &str) -> Result<String, DbError> {
    tx.exec(KEEP, params![name, value])?;
    Ok(get(tx, name)?.unwrap_or_else(|| value.to_owned()))
}

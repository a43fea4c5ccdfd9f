//! Settings of a PostgreSQL database.

use std::time::Duration;

use dstack_backend_types::Secret;

use super::{Reader, SettingsError, Vars};

/// How PostgreSQL is used; SQLite looks at none of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseUse {
    /// `DSTACK_DATABASE_DIRECT_URL`: the database's address without a pooler; none is the same as `DSTACK_DATABASE_URL`.
    pub direct_url: Option<Secret<String>>,
    /// `DSTACK_DB_POOL_SIZE` (8, 3 to 200): connections of this server.
    pub connections: usize,
    /// `DSTACK_DB_COMMAND_TIMEOUT` (300 s): one statement; none when set to 0.
    pub command_timeout: Option<Duration>,
}

pub(super) fn database_use<V: Vars>(read: &Reader<'_, V>) -> Result<DatabaseUse, SettingsError> {
    let (name, wanted) = ("DSTACK_DB_POOL_SIZE", "3 to 200 connections");
    let connections = read.number(name, 8_usize, wanted)?;
    if !(3..=200).contains(&connections) {
        return Err(SettingsError {
            name,
            value: connections.to_string(),
            wanted,
        });
    }
    let limit = read.seconds("DSTACK_DB_COMMAND_TIMEOUT", 300)?;
    Ok(DatabaseUse {
        direct_url: read.secret("DSTACK_DATABASE_DIRECT_URL"),
        connections,
        command_timeout: (!limit.is_zero()).then_some(limit),
    })
}

//! How the server logs in to own hosts: sealed texts beside their instances.

use dstack_engine::ids::InstanceId;

use crate::error::DbError;
use crate::sealed::Sealed;
use crate::sql::Sql;
use crate::tx::Tx;
use crate::{params, sql};

pub(crate) const GET: Sql = sql!("SELECT login FROM ssh_hosts WHERE id = ?1");
const PUT: Sql = sql!(
    "INSERT INTO ssh_hosts (id, login) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET login = excluded.login"
);
const REMOVE: Sql = sql!("DELETE FROM ssh_hosts WHERE id = ?1");

/// The login of a host, if it is stored.
pub fn get(tx: &mut dyn Tx, id: InstanceId) -> Result<Option<Sealed>, DbError> {
    tx.first(GET, params![id], |mut row| row.take())
}

/// Stores the login of a host.
pub fn put(tx: &mut dyn Tx, id: InstanceId, login: &Sealed) -> Result<(), DbError> {
    tx.exec(PUT, params![id, login])?;
    Ok(())
}

/// Forgets the login of a host that is gone.
pub fn remove(tx: &mut dyn Tx, id: InstanceId) -> Result<(), DbError> {
    tx.exec(REMOVE, params![id])?;
    Ok(())
}

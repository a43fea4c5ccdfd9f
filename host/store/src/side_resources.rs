//! The ledger of side resources: what backends make beside machines, until it is known to be gone.
//!
//! No row of the engine's world: nothing is decided about it but whether its owner lives.

use dstack_backend_types::BackendType;
use dstack_backend_types::services::SideResource;
use dstack_engine::ids::ProjectId;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::error::DbError;
use crate::sql::Sql;
use crate::tx::{Row, Tx, json};
use crate::{params, sql};

/// An entry of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The project whose credentials reach it.
    pub project_id: ProjectId,
    /// The backend that declared it.
    pub backend: BackendType,
    /// What was declared.
    pub resource: SideResource,
    /// When it was declared first.
    pub declared_at: Timestamp,
    /// How often its deletion was tried.
    pub attempts: u32,
}

macro_rules! columns {
    () => {
        "SELECT project_id, backend, provider_ref, kind, name, region, resource_id, attributes, declared_at, attempts \
         FROM side_resources "
    };
}
const PUT: Sql = sql!(
    "INSERT INTO side_resources (project_id, backend, provider_ref, kind, name, region, resource_id, attributes, \
     declared_at, look_again_at, attempts) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0) \
     ON CONFLICT (project_id, backend, provider_ref, kind, name) DO UPDATE SET region = excluded.region, \
     resource_id = coalesce(excluded.resource_id, side_resources.resource_id), attributes = excluded.attributes, \
     look_again_at = excluded.look_again_at"
);
pub(crate) const DUE: Sql = sql!(
    columns!(),
    "WHERE look_again_at <= ?1 ORDER BY look_again_at LIMIT ?2"
);
const ALL: Sql = sql!(
    columns!(),
    "ORDER BY project_id, backend, provider_ref, kind, name"
);
const LATER: Sql = sql!(
    "UPDATE side_resources SET look_again_at = ?6, attempts = attempts + ?7 \
     WHERE project_id = ?1 AND backend = ?2 AND provider_ref = ?3 AND kind = ?4 AND name = ?5"
);
const REMOVE: Sql = sql!(
    "DELETE FROM side_resources \
     WHERE project_id = ?1 AND backend = ?2 AND provider_ref = ?3 AND kind = ?4 AND name = ?5"
);
pub(crate) const OWNED: Sql =
    sql!("SELECT 1 FROM instances WHERE provider_ref = ?1 AND active = 1 LIMIT 1");
/// Machines that are being made are known by their attempt only. They are few, and asked for only when an entry is due.
const ATTEMPTED: Sql = sql!(
    "SELECT 1 FROM instances i JOIN instance_data d ON d.id = i.id \
     WHERE i.active = 1 AND d.attempt LIKE '%\"' || ?1 || '\"%' LIMIT 1"
);

fn from_row(mut row: Row<'_>) -> Result<LedgerEntry, DbError> {
    let (project_id, backend) = (row.take()?, row.take()?);
    let (provider_ref, kind, name) = (row.take()?, row.take()?, row.take()?);
    let (region, id) = (row.take()?, row.take()?);
    let attributes: Map<String, Value> = row.json()?;
    Ok(LedgerEntry {
        project_id,
        backend,
        resource: SideResource {
            provider_ref,
            kind,
            name,
            region,
            id,
            attributes,
        },
        declared_at: row.take()?,
        attempts: row.take()?,
    })
}

/// Writes an entry down, or adds what is known of it by now. It is looked at after `look_again_at`.
pub fn declare(
    tx: &mut dyn Tx,
    project: ProjectId,
    backend: &BackendType,
    resource: &SideResource,
    now: Timestamp,
    look_again_at: Timestamp,
) -> Result<(), DbError> {
    tx.exec(
        PUT,
        params![
            project,
            backend,
            &resource.provider_ref,
            &resource.kind,
            &resource.name,
            &resource.region,
            resource.id.as_deref(),
            json("attributes of a side resource", &resource.attributes)?.as_str(),
            now,
            look_again_at,
        ],
    )?;
    Ok(())
}

/// Crosses an entry out, if it is there.
pub fn settle(
    tx: &mut dyn Tx,
    project: ProjectId,
    backend: &BackendType,
    provider_ref: &str,
    kind: &str,
    name: &str,
) -> Result<(), DbError> {
    tx.exec(REMOVE, params![project, backend, provider_ref, kind, name])?;
    Ok(())
}

/// Entries to look at, oldest first.
pub fn due(tx: &mut dyn Tx, now: Timestamp, limit: u32) -> Result<Vec<LedgerEntry>, DbError> {
    tx.all(DUE, params![now, limit], from_row)
}

/// All entries.
pub fn all(tx: &mut dyn Tx) -> Result<Vec<LedgerEntry>, DbError> {
    tx.all(ALL, params![], from_row)
}

/// Whether a machine with this reference lives, is being made, or waits for its end in the cleanup queue, or a volume has it: what
/// was made beside it is left alone so long.
pub fn is_owned(tx: &mut dyn Tx, provider_ref: &str) -> Result<bool, DbError> {
    for sql in [OWNED, ATTEMPTED] {
        let found = tx.first(sql, params![provider_ref], |mut row| row.take::<i64>())?;
        if found.is_some() {
            return Ok(true);
        }
    }
    if crate::volumes::is_owner(tx, provider_ref)? || crate::gateways::is_owner(tx, provider_ref)? {
        return Ok(true);
    }
    crate::cleanups::is_queued(tx, provider_ref)
}

/// Puts a look off, after a try to delete it or without one.
pub fn later(
    tx: &mut dyn Tx,
    entry: &LedgerEntry,
    at: Timestamp,
    was_tried: bool,
) -> Result<(), DbError> {
    let resource = &entry.resource;
    tx.exec(
        LATER,
        params![
            entry.project_id,
            &entry.backend,
            &resource.provider_ref,
            &resource.kind,
            &resource.name,
            at,
            i64::from(was_tried),
        ],
    )?;
    Ok(())
}

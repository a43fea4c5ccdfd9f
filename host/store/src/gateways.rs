//! Gateways, their machines, and which of them a project uses by default.

use std::sync::Arc;

use dstack_engine::changes::{GatewayPatch, GatewayReplicaPatch};
use dstack_engine::ids::{GatewayId, GatewayReplicaId, ProjectId};
use dstack_engine::model::{GatewayReplicaRow, GatewayRow};
use jiff::Timestamp;

use crate::error::DbError;
use crate::patch::Patch;
use crate::sql::Sql;
use crate::tx::{Row, Tx, json, json_opt};
use crate::{params, sql};

macro_rules! columns {
    () => {
        "SELECT g.id, g.project_id, g.name, g.configuration, g.status, g.status_message, g.created_at, \
         g.last_processed_at, g.provider_ref, g.attempted_at, g.load_balancer, g.scale_attempt, g.scaled_at, \
         g.delete_asked, g.first_end_failure_at, g.deleted_at FROM gateways g "
    };
}
macro_rules! replica_columns {
    () => {
        "SELECT r.id, r.gateway_id, r.project_id, r.name, r.replica_num, r.status, r.status_message, r.created_at, \
         r.last_processed_at, r.provider_ref, r.attempted_at, r.provisioning_data, r.connect_tries, r.registered, \
         r.first_end_failure_at FROM gateway_replicas r "
    };
}
const GET: Sql = sql!(columns!(), "WHERE g.id = ?1");
const BY_NAME: Sql = sql!(
    columns!(),
    "WHERE g.project_id = ?1 AND g.name = ?2 AND g.deleted_at IS NULL"
);
const OF_PROJECT: Sql = sql!(
    columns!(),
    "WHERE g.project_id = ?1 AND g.deleted_at IS NULL ORDER BY g.created_at DESC, g.id ASC"
);
const NAMES: Sql =
    sql!("SELECT name FROM gateways WHERE project_id = ?1 AND deleted_at IS NULL ORDER BY name");
const INSERT: Sql = sql!(
    "INSERT INTO gateways (id, project_id, name, configuration, status, status_message, created_at, provider_ref, \
     attempted_at, load_balancer, scale_attempt, scaled_at, delete_asked, first_end_failure_at, deleted_at, \
     last_processed_at, look_again_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, \
     ?17)"
);
const REPLICA: Sql = sql!(replica_columns!(), "WHERE r.id = ?1");
const REPLICAS: Sql = sql!(
    replica_columns!(),
    "WHERE r.gateway_id = ?1 ORDER BY r.replica_num, r.created_at, r.id"
);
const INSERT_REPLICA: Sql = sql!(
    "INSERT INTO gateway_replicas (id, gateway_id, project_id, name, replica_num, status, status_message, created_at, \
     provider_ref, attempted_at, provisioning_data, connect_tries, registered, first_end_failure_at, last_processed_at, \
     look_again_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)"
);
const OWNED: Sql =
    sql!("SELECT 1 FROM gateways WHERE provider_ref = ?1 AND deleted_at IS NULL LIMIT 1");
const REPLICA_OWNED: Sql = sql!(
    "SELECT 1 FROM gateway_replicas WHERE provider_ref = ?1 AND status <> 'terminated' LIMIT 1"
);
const DEFAULT: Sql = sql!(
    columns!(),
    "JOIN default_gateways d ON d.gateway_id = g.id WHERE d.project_id = ?1 AND g.deleted_at IS NULL \
     AND g.delete_asked = 0"
);
const SET_DEFAULT: Sql = sql!(
    "INSERT INTO default_gateways (project_id, gateway_id) VALUES (?1, ?2) \
     ON CONFLICT (project_id) DO UPDATE SET gateway_id = excluded.gateway_id"
);
const UNSET_DEFAULT: Sql =
    sql!("DELETE FROM default_gateways WHERE project_id = ?1 AND gateway_id = ?2");

/// The statements of this file, for the test of query plans.
#[cfg(test)]
pub(crate) const SQL: &[(&str, Sql)] = &[
    ("gateway", GET),
    ("gateway by name", BY_NAME),
    ("gateways of a project", OF_PROJECT),
    ("gateway replica", REPLICA),
    ("replicas of a gateway", REPLICAS),
    ("gateway of a reference", OWNED),
    ("gateway replica of a reference", REPLICA_OWNED),
    ("default gateway", DEFAULT),
];

fn from_row(mut row: Row<'_>) -> Result<GatewayRow, DbError> {
    Ok(GatewayRow {
        id: row.take()?,
        project_id: row.take()?,
        name: row.take()?,
        configuration: Arc::new(row.json()?),
        status: row.take()?,
        status_message: row.take()?,
        created_at: row.take()?,
        last_processed_at: row.take()?,
        provider_ref: row.take()?,
        attempted_at: row.take()?,
        load_balancer: row.json_opt()?.map(Arc::new),
        scale_attempt: row.take()?,
        scaled_at: row.take()?,
        delete_asked: row.take()?,
        first_end_failure_at: row.take()?,
        deleted_at: row.take()?,
    })
}

fn replica_from_row(mut row: Row<'_>) -> Result<GatewayReplicaRow, DbError> {
    Ok(GatewayReplicaRow {
        id: row.take()?,
        gateway_id: row.take()?,
        project_id: row.take()?,
        name: row.take()?,
        replica_num: row.take()?,
        status: row.take()?,
        status_message: row.take()?,
        created_at: row.take()?,
        last_processed_at: row.take()?,
        provider_ref: row.take()?,
        attempted_at: row.take()?,
        provisioning_data: row.json_opt()?.map(Arc::new),
        connect_tries: row.take()?,
        registered: row.take()?,
        first_end_failure_at: row.take()?,
    })
}

/// A gateway by id, also a deleted one.
pub fn get(tx: &mut dyn Tx, id: GatewayId) -> Result<Option<GatewayRow>, DbError> {
    tx.first(GET, params![id], from_row)
}

/// A gateway by name.
pub fn by_name(
    tx: &mut dyn Tx,
    project: ProjectId,
    name: &str,
) -> Result<Option<GatewayRow>, DbError> {
    tx.first(BY_NAME, params![project, name], from_row)
}

/// The gateways of a project, newest first.
pub fn of_project(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<GatewayRow>, DbError> {
    tx.all(OF_PROJECT, params![project], from_row)
}

/// The names that are taken in a project.
pub fn names(tx: &mut dyn Tx, project: ProjectId) -> Result<Vec<String>, DbError> {
    tx.all(NAMES, params![project], |mut row| row.take())
}

/// Stores a new gateway, due at once.
pub fn insert(tx: &mut dyn Tx, gateway: &GatewayRow, now: Timestamp) -> Result<(), DbError> {
    let balancer = gateway.load_balancer.as_deref();
    tx.exec(
        INSERT,
        params![
            gateway.id,
            gateway.project_id,
            &gateway.name,
            json("the configuration of a gateway", &*gateway.configuration)?,
            gateway.status,
            gateway.status_message.as_deref(),
            gateway.created_at,
            &gateway.provider_ref,
            gateway.attempted_at,
            json_opt("the load balancer of a gateway", balancer)?,
            gateway.scale_attempt,
            gateway.scaled_at,
            gateway.delete_asked,
            gateway.first_end_failure_at,
            gateway.deleted_at,
            gateway.last_processed_at,
            now,
        ],
    )?;
    Ok(())
}

/// Writes the changed columns; an unknown id changes nothing.
pub(crate) fn patch(tx: &mut dyn Tx, patch: &GatewayPatch, now: Timestamp) -> Result<(), DbError> {
    let balancer = patch.load_balancer.as_ref();
    let balancer = balancer
        .map(|it| json_opt("the load balancer of a gateway", it.as_deref()))
        .transpose()?;
    let mut row = Patch::of("gateways");
    row.set("last_processed_at", Some(now));
    row.set(
        "configuration",
        json_opt(
            "the configuration of a gateway",
            patch.configuration.as_deref(),
        )?,
    );
    row.set("status", patch.status);
    row.set(
        "status_message",
        patch.status_message.as_ref().map(Option::as_deref),
    );
    row.set("attempted_at", patch.attempted_at);
    row.set("load_balancer", balancer);
    row.set("scale_attempt", patch.scale_attempt);
    row.set("scaled_at", patch.scaled_at);
    row.set("delete_asked", patch.delete_asked);
    row.set("first_end_failure_at", patch.first_end_failure_at);
    row.set("deleted_at", patch.deleted_at);
    row.run(tx, patch.id)?;
    Ok(())
}

/// A replica by id.
pub fn replica(
    tx: &mut dyn Tx,
    id: GatewayReplicaId,
) -> Result<Option<GatewayReplicaRow>, DbError> {
    tx.first(REPLICA, params![id], replica_from_row)
}

/// The replicas of a gateway, by number, then age; terminated ones included.
pub fn replicas(tx: &mut dyn Tx, gateway: GatewayId) -> Result<Vec<GatewayReplicaRow>, DbError> {
    tx.all(REPLICAS, params![gateway], replica_from_row)
}

/// Stores a new replica, due at once.
pub(crate) fn insert_replica(
    tx: &mut dyn Tx,
    replica: &GatewayReplicaRow,
    now: Timestamp,
) -> Result<(), DbError> {
    let data = replica.provisioning_data.as_deref();
    tx.exec(
        INSERT_REPLICA,
        params![
            replica.id,
            replica.gateway_id,
            replica.project_id,
            &replica.name,
            replica.replica_num,
            replica.status,
            replica.status_message.as_deref(),
            replica.created_at,
            &replica.provider_ref,
            replica.attempted_at,
            json_opt("the machine of a gateway", data)?,
            replica.connect_tries,
            replica.registered,
            replica.first_end_failure_at,
            replica.last_processed_at,
            now,
        ],
    )?;
    Ok(())
}

/// Writes the changed columns; an unknown id changes nothing.
pub(crate) fn patch_replica(
    tx: &mut dyn Tx,
    patch: &GatewayReplicaPatch,
    now: Timestamp,
) -> Result<(), DbError> {
    let data = patch.provisioning_data.as_ref();
    let data = data
        .map(|it| json_opt("the machine of a gateway", it.as_deref()))
        .transpose()?;
    let mut row = Patch::of("gateway_replicas");
    row.set("last_processed_at", Some(now));
    row.set("status", patch.status);
    row.set(
        "status_message",
        patch.status_message.as_ref().map(Option::as_deref),
    );
    row.set("attempted_at", patch.attempted_at);
    row.set("provisioning_data", data);
    row.set("connect_tries", patch.connect_tries);
    row.set("registered", patch.registered);
    row.set("first_end_failure_at", patch.first_end_failure_at);
    row.run(tx, patch.id)?;
    Ok(())
}

/// Whether a gateway or one of its machines carries this reference.
pub fn is_owner(tx: &mut dyn Tx, provider_ref: &str) -> Result<bool, DbError> {
    for sql in [OWNED, REPLICA_OWNED] {
        if tx.first(sql, params![provider_ref], |_| Ok(()))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The gateway that services of the project use unless they name another; none that is being deleted.
pub fn default_of(tx: &mut dyn Tx, project: ProjectId) -> Result<Option<GatewayRow>, DbError> {
    tx.first(DEFAULT, params![project], from_row)
}

/// Makes a gateway the project's default, instead of the one before.
pub fn set_default(tx: &mut dyn Tx, project: ProjectId, gateway: GatewayId) -> Result<(), DbError> {
    tx.exec(SET_DEFAULT, params![project, gateway])?;
    Ok(())
}

/// The project no longer has this default; another one stays. Whether anything changed.
pub fn unset_default(
    tx: &mut dyn Tx,
    project: ProjectId,
    gateway: GatewayId,
) -> Result<bool, DbError> {
    Ok(tx.exec(UNSET_DEFAULT, params![project, gateway])? > 0)
}

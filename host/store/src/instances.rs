//! Instances: the hot row, and its large JSON beside it.

use std::sync::Arc;

use dstack_backend_types::BackendType;
use dstack_engine::changes::InstancePatch;
use dstack_engine::ids::{FleetId, InstanceId, JobId, ProjectId};
use dstack_engine::model::InstanceRow;
use jiff::Timestamp;

use crate::error::DbError;
use crate::page::Page;
use crate::patch::Patch;
use crate::sql::Sql;
use crate::tx::{Query, Row, Tx, json_opt};
use crate::{params, sql};

macro_rules! columns {
    () => {
        "SELECT i.id, i.project_id, i.fleet_id, i.name, i.instance_num, i.status, i.unreachable, i.health, \
         i.termination_reason, i.termination_reason_message, i.created_at, i.started_at, i.finished_at, \
         i.last_processed_at, i.last_job_at, i.idle_limit, i.give_up_at, i.first_end_failure_at, \
         i.health_checked_at, i.provider_ref, i.total_blocks, i.busy_blocks, i.owner_job, i.ssh_host, i.deleted, \
         d.attempt, d.provisioning_data, d.offer, d.requirements, d.profile FROM instances i \
         JOIN instance_data d ON d.id = i.id WHERE "
    };
}
pub(crate) use columns;

pub(crate) const GET: Sql = sql!(columns!(), "i.id = ?1");
pub(crate) const OF_FLEET: Sql = sql!(
    columns!(),
    "i.fleet_id = ?1 AND i.deleted = 0 ORDER BY i.instance_num, i.id"
);
pub(crate) const OF_BACKEND: Sql =
    sql!("SELECT 1 FROM instances WHERE backend = ?1 AND active = 1 LIMIT 1");
pub(crate) const OF_SSH_HOST: Sql = sql!(columns!(), "i.ssh_host = ?1 AND i.active = 1");
const INSERT: Sql = sql!(
    "INSERT INTO instances (id, project_id, fleet_id, name, instance_num, status, unreachable, health, \
     termination_reason, termination_reason_message, created_at, started_at, finished_at, last_job_at, idle_limit, \
     give_up_at, first_end_failure_at, health_checked_at, provider_ref, total_blocks, busy_blocks, owner_job, \
     ssh_host, price, backend, deleted, last_processed_at, look_again_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, \
     ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28)"
);
const INSERT_DATA: Sql = sql!(
    "INSERT INTO instance_data (id, attempt, provisioning_data, offer, requirements, profile) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
);
/// Numbers of living instances, in order.
pub(crate) const NUMBERS: Sql = sql!(
    "SELECT instance_num FROM instances WHERE fleet_id = ?1 AND deleted = 0 \
     AND status NOT IN ('terminating', 'terminated') ORDER BY instance_num"
);

pub(crate) fn from_row(mut row: Row<'_>) -> Result<InstanceRow, DbError> {
    Ok(InstanceRow {
        id: row.take()?,
        project_id: row.take()?,
        fleet_id: row.take()?,
        name: row.take()?,
        instance_num: row.take()?,
        status: row.take()?,
        unreachable: row.take()?,
        health: row.take()?,
        termination_reason: row.take()?,
        termination_reason_message: row.take()?,
        created_at: row.take()?,
        started_at: row.take()?,
        finished_at: row.take()?,
        last_processed_at: row.take()?,
        last_job_at: row.take()?,
        idle_limit: row.take()?,
        give_up_at: row.take()?,
        first_end_failure_at: row.take()?,
        health_checked_at: row.take()?,
        provider_ref: row.take()?,
        total_blocks: row.take()?,
        busy_blocks: row.take()?,
        owner_job: row.take()?,
        ssh_host: row.take()?,
        deleted: row.take()?,
        attempt: row.json_opt()?,
        provisioning_data: row.json_opt()?.map(Arc::new),
        offer: row.json_opt()?.map(Arc::new),
        requirements: row.json_opt()?.map(Arc::new),
        profile: row.json_opt()?.map(Arc::new),
    })
}

/// The instance of this id, also a deleted one.
pub fn get(tx: &mut dyn Tx, id: InstanceId) -> Result<Option<InstanceRow>, DbError> {
    tx.first(GET, params![id], from_row)
}

/// The not deleted instances of a fleet, by number.
pub fn of_fleet(tx: &mut dyn Tx, fleet: FleetId) -> Result<Vec<InstanceRow>, DbError> {
    tx.all(OF_FLEET, params![fleet], from_row)
}

/// The instances of an own host in the whole server that are not known to be gone.
pub fn of_ssh_host(tx: &mut dyn Tx, host: &str) -> Result<Vec<InstanceRow>, DbError> {
    tx.all(OF_SSH_HOST, params![host], from_row)
}

/// Whether a backend has a machine that is not known to be gone.
pub fn has_machine(tx: &mut dyn Tx, backend: &BackendType) -> Result<bool, DbError> {
    let found = tx.first(OF_BACKEND, params![backend], |mut row| row.take::<i64>())?;
    Ok(found.is_some())
}

/// The placeholder that a job provisions.
pub fn of_owner_job(tx: &mut dyn Tx, job: JobId) -> Result<Option<InstanceRow>, DbError> {
    const OF_OWNER: Sql = sql!(columns!(), "i.owner_job = ?1 AND i.deleted = 0 LIMIT 1");
    tx.first(OF_OWNER, params![job], from_row)
}

/// Stores a new instance; it is due at `due`.
pub fn insert(tx: &mut dyn Tx, instance: &InstanceRow, due: Timestamp) -> Result<(), DbError> {
    tx.exec(
        INSERT,
        params![
            instance.id,
            instance.project_id,
            instance.fleet_id,
            &instance.name,
            instance.instance_num,
            instance.status,
            instance.unreachable,
            instance.health,
            instance.termination_reason,
            instance.termination_reason_message.as_deref(),
            instance.created_at,
            instance.started_at,
            instance.finished_at,
            instance.last_job_at,
            instance.idle_limit,
            instance.give_up_at,
            instance.first_end_failure_at,
            instance.health_checked_at,
            instance.provider_ref.as_deref(),
            instance.total_blocks,
            instance.busy_blocks,
            instance.owner_job,
            instance.ssh_host.as_deref(),
            instance.offer.as_ref().map(|it| it.price),
            instance
                .provisioning_data
                .as_ref()
                .map(|it| it.backend.as_str()),
            instance.deleted,
            instance.last_processed_at,
            due,
        ],
    )?;
    tx.exec(
        INSERT_DATA,
        params![
            instance.id,
            json_opt("the attempt of an instance", instance.attempt.as_ref())?,
            json_opt(
                "the machine of an instance",
                instance.provisioning_data.as_deref()
            )?,
            json_opt("the offer of an instance", instance.offer.as_deref())?,
            json_opt(
                "the requirements of an instance",
                instance.requirements.as_deref()
            )?,
            json_opt("the profile of an instance", instance.profile.as_deref())?,
        ],
    )?;
    Ok(())
}

/// The lowest number that no living instance of the fleet has.
pub(crate) fn free_number(tx: &mut dyn Tx, fleet: FleetId) -> Result<u32, DbError> {
    let mut free = 0;
    for number in tx.all(NUMBERS, params![fleet], |mut row| row.take::<u32>())? {
        if number == free {
            free += 1;
        } else if number > free {
            break;
        }
    }
    Ok(free)
}

/// Writes the changed columns; an unknown id changes nothing.
pub(crate) fn patch(tx: &mut dyn Tx, patch: &InstancePatch, now: Timestamp) -> Result<(), DbError> {
    let mut hot = Patch::of("instances");
    hot.set("last_processed_at", Some(now));
    hot.set("status", patch.status);
    hot.set("unreachable", patch.unreachable);
    hot.set("health", patch.health);
    hot.set("termination_reason", patch.termination_reason);
    hot.set(
        "termination_reason_message",
        patch
            .termination_reason_message
            .as_ref()
            .map(Option::as_deref),
    );
    hot.set("started_at", patch.started_at);
    hot.set("finished_at", patch.finished_at);
    hot.set("last_job_at", patch.last_job_at);
    hot.set("idle_limit", patch.idle_limit);
    hot.set("give_up_at", patch.give_up_at);
    hot.set("first_end_failure_at", patch.first_end_failure_at);
    hot.set("health_checked_at", patch.health_checked_at);
    hot.set(
        "provider_ref",
        patch.provider_ref.as_ref().map(Option::as_deref),
    );
    hot.set("total_blocks", patch.total_blocks);
    hot.add("busy_blocks", patch.busy_blocks_delta);
    hot.set("owner_job", patch.owner_job);
    hot.set(
        "price",
        patch
            .offer
            .as_ref()
            .map(|it| it.as_ref().map(|it| it.price)),
    );
    hot.set(
        "backend",
        patch
            .provisioning_data
            .as_ref()
            .map(|it| it.as_ref().map(|it| it.backend.as_str())),
    );
    hot.set("deleted", patch.deleted);
    hot.run(tx, patch.id)?;
    let mut data = Patch::of("instance_data");
    if let Some(attempt) = &patch.attempt {
        data.set(
            "attempt",
            Some(json_opt("the attempt of an instance", attempt.as_ref())?),
        );
    }
    if let Some(machine) = &patch.provisioning_data {
        data.set(
            "provisioning_data",
            Some(json_opt("the machine of an instance", machine.as_deref())?),
        );
    }
    if let Some(offer) = &patch.offer {
        data.set(
            "offer",
            Some(json_opt("the offer of an instance", offer.as_deref())?),
        );
    }
    data.run(tx, patch.id)?;
    Ok(())
}

/// Which instances to list.
#[derive(Debug, Clone, Default)]
pub struct InstancesFilter {
    /// Only these projects; `None` is all.
    pub projects: Option<Vec<ProjectId>>,
    /// Beside them the instances of these fleets of others; meaningless when all projects are listed.
    pub imported: Vec<FleetId>,
    /// Only these fleets.
    pub fleets: Option<Vec<FleetId>>,
    /// Only those that are not terminated.
    pub only_active: bool,
    /// Which part of the list.
    pub page: Page,
}

/// One page of instances by creation time.
pub fn list(tx: &mut dyn Tx, filter: &InstancesFilter) -> Result<Vec<InstanceRow>, DbError> {
    let Some(projects) = &filter.projects else {
        return tx.all_of(&list_query(filter, None), from_row);
    };
    let mut out = Vec::new();
    for project in projects {
        out.extend(tx.all_of(&list_query(filter, Some(*project)), from_row)?);
    }
    let is_wanted = |fleet: &&FleetId| {
        let wanted = filter.fleets.as_ref();
        wanted.is_none_or(|wanted| wanted.contains(fleet))
    };
    let imported: Vec<FleetId> = filter.imported.iter().filter(is_wanted).copied().collect();
    let sources = projects.len() + usize::from(!imported.is_empty());
    if !imported.is_empty() {
        let lent = InstancesFilter {
            fleets: Some(imported),
            ..filter.clone()
        };
        out.extend(tx.all_of(&list_query(&lent, None), from_row)?);
    }
    if sources > 1 {
        filter.page.merge(&mut out, |it| (it.created_at, it.id.0));
    }
    Ok(out)
}

pub(crate) fn list_query(filter: &InstancesFilter, project: Option<ProjectId>) -> Query<'_> {
    let mut query = Query::new(columns!());
    query.text("1 = 1");
    if let Some(project) = project {
        query.text(" AND i.project_id = ").bind(project);
    }
    if let Some(fleets) = &filter.fleets {
        query
            .text(" AND i.fleet_id IN ")
            .bind_list(fleets.iter().copied());
    }
    if filter.only_active {
        query.text(" AND i.active = 1 AND i.deleted = 0");
    }
    filter.page.append(&mut query, "i.created_at", "i.id");
    query
}

/// The not deleted instances of several fleets, by fleet and number.
pub fn of_fleets(tx: &mut dyn Tx, fleets: &[FleetId]) -> Result<Vec<InstanceRow>, DbError> {
    let mut query = Query::new(columns!());
    query
        .text("i.deleted = 0 AND i.fleet_id IN ")
        .bind_list(fleets.iter().copied());
    query.text(" ORDER BY i.fleet_id, i.instance_num, i.id");
    tx.all_of(&query, from_row)
}

//! Runs: the hot row, and its large JSON beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use dstack_api::runs::{RunStatus, RunTerminationReason};
use dstack_engine::changes::{RunPatch, WOKEN};
use dstack_engine::ids::{FleetId, ProjectId, RunId, UserId};
use dstack_engine::model::RunRow;
use jiff::Timestamp;

use crate::error::DbError;
use crate::page::Page;
use crate::patch::Patch;
use crate::sql::Sql;
use crate::tx::{Query, Row, Tx, json, json_opt};
use crate::{params, sql};

macro_rules! columns {
    () => {
        "r.id, r.project_id, r.user_id, r.fleet_id, r.name, r.status, r.termination_reason, r.submitted_at, \
         r.last_processed_at, r.next_triggered_at, r.resubmission_attempt, r.deployment_num, r.priority, \
         r.desired_replicas, r.capacity_at, r.deleted, d.spec, d.service, d.images"
    };
}

pub(crate) const GET: Sql = sql!(
    "SELECT ",
    columns!(),
    " FROM runs r JOIN run_data d ON d.id = r.id WHERE r.id = ?1"
);
const BY_NAME: Sql = sql!(
    "SELECT ",
    columns!(),
    " FROM runs r JOIN run_data d ON d.id = r.id WHERE r.project_id = ?1 AND r.name = ?2 AND r.deleted = 0"
);
const INSERT: Sql = sql!(
    "INSERT INTO runs (id, project_id, user_id, fleet_id, name, repo_name, status, termination_reason, submitted_at, \
     next_triggered_at, resubmission_attempt, deployment_num, priority, desired_replicas, deleted, last_processed_at, \
     look_again_at, capacity_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)"
);
const INSERT_DATA: Sql =
    sql!("INSERT INTO run_data (id, spec, service, images) VALUES (?1, ?2, ?3, ?4)");
pub(crate) const ACTIVE_IN_PROJECT: Sql = sql!(
    "SELECT name FROM runs WHERE project_id = ?1 AND active = 1 ORDER BY submitted_at DESC, id ASC LIMIT ?2"
);
const NAMES_FROM: Sql = sql!(
    "SELECT name FROM runs WHERE project_id = ?1 AND deleted = 0 AND name >= ?2 AND name < ?3"
);
pub(crate) const ACTIVE_OF_FLEET: Sql =
    sql!("SELECT id FROM runs WHERE fleet_id = ?1 AND active = 1");

fn from_row(mut row: Row<'_>) -> Result<RunRow, DbError> {
    Ok(RunRow {
        id: row.take()?,
        project_id: row.take()?,
        user_id: row.take()?,
        fleet_id: row.take()?,
        name: row.take()?,
        status: row.take()?,
        termination_reason: row.take()?,
        submitted_at: row.take()?,
        last_processed_at: row.take()?,
        next_triggered_at: row.take()?,
        resubmission_attempt: row.take()?,
        deployment_num: row.take()?,
        priority: row.take()?,
        desired_replicas: row.json()?,
        capacity_at: row.take()?,
        deleted: row.take()?,
        spec: Arc::new(row.json()?),
        service: row.json_opt()?.map(Arc::new),
        images: row.json_opt()?.map(Arc::new),
    })
}

/// The run of this id, also a deleted one.
pub fn get(tx: &mut dyn Tx, id: RunId) -> Result<Option<RunRow>, DbError> {
    tx.first(GET, params![id], from_row)
}

/// The not deleted run of this name.
pub fn by_name(tx: &mut dyn Tx, project: ProjectId, name: &str) -> Result<Option<RunRow>, DbError> {
    tx.first(BY_NAME, params![project, name], from_row)
}

/// Stores a new run; it is due at `due`.
pub fn insert(tx: &mut dyn Tx, run: &RunRow, due: Timestamp) -> Result<(), DbError> {
    tx.exec(
        INSERT,
        params![
            run.id,
            run.project_id,
            run.user_id,
            run.fleet_id,
            &run.name,
            run.spec.repo_id.as_deref(),
            run.status,
            run.termination_reason,
            run.submitted_at,
            run.next_triggered_at,
            run.resubmission_attempt,
            run.deployment_num,
            run.priority,
            desired(&run.desired_replicas)?,
            run.deleted,
            run.last_processed_at,
            due,
            run.capacity_at,
        ],
    )?;
    let service = json_opt("the service of a run", run.service.as_deref())?;
    tx.exec(
        INSERT_DATA,
        params![
            run.id,
            json("the specification of a run", &*run.spec)?,
            service,
            json_opt("the images of a run", run.images.as_deref())?,
        ],
    )?;
    Ok(())
}

fn desired(replicas: &BTreeMap<String, u32>) -> Result<String, DbError> {
    json("the wanted replicas of a run", replicas)
}

/// Writes the changed columns; an unknown id changes nothing.
pub(crate) fn patch(tx: &mut dyn Tx, patch: &RunPatch, now: Timestamp) -> Result<(), DbError> {
    let mut hot = Patch::of("runs");
    hot.set("last_processed_at", Some(now));
    hot.set("status", patch.status);
    hot.set("termination_reason", patch.termination_reason);
    hot.set("fleet_id", patch.fleet_id);
    hot.set("next_triggered_at", patch.next_triggered_at);
    hot.set("resubmission_attempt", patch.resubmission_attempt);
    hot.set("deployment_num", patch.deployment_num);
    hot.set("priority", patch.priority);
    hot.set(
        "desired_replicas",
        patch.desired_replicas.as_ref().map(desired).transpose()?,
    );
    hot.set("capacity_at", patch.capacity_at);
    hot.set("deleted", patch.deleted);
    if let Some(spec) = &patch.spec {
        hot.set("repo_name", Some(spec.repo_id.as_deref()));
    }
    hot.run(tx, patch.id)?;
    let mut data = Patch::of("run_data");
    data.set(
        "spec",
        json_opt("the specification of a run", patch.spec.as_deref())?,
    );
    let images = patch
        .images
        .as_ref()
        .map(|images| json_opt("the images of a run", images.as_deref()));
    data.set("images", images.transpose()?);
    data.run(tx, patch.id)?;
    Ok(())
}

pub(crate) const WAITING: Sql = sql!(
    "SELECT id FROM runs WHERE project_id = ?1 AND status = 'pending' AND resubmission_attempt > 0 \
     AND capacity_at IS NULL AND deleted = 0 ORDER BY priority DESC, submitted_at, id LIMIT ?2"
);

/// Tells the first of the runs that wait for their next try that a machine turned free in this fleet; answers them.
pub(crate) fn wake_waiting(
    tx: &mut dyn Tx,
    fleet: FleetId,
    now: Timestamp,
) -> Result<Vec<RunId>, DbError> {
    const PROJECT: Sql = sql!("SELECT project_id FROM fleets WHERE id = ?1");
    const WAKE: Sql = sql!("UPDATE runs SET capacity_at = ?2 WHERE id = ?1");
    let Some(project) = tx.first(PROJECT, params![fleet], |mut row| row.take::<ProjectId>())?
    else {
        return Ok(Vec::new());
    };
    let woken: Vec<RunId> = tx.all(WAITING, params![project, WOKEN], |mut row| row.take())?;
    for run in &woken {
        tx.exec(WAKE, params![*run, now])?;
    }
    Ok(woken)
}

/// Names of unfinished runs of a project, at most `limit`.
pub fn active_names(
    tx: &mut dyn Tx,
    project: ProjectId,
    limit: u32,
) -> Result<Vec<String>, DbError> {
    tx.all(ACTIVE_IN_PROJECT, params![project, limit], |mut row| {
        row.take()
    })
}

/// Names of not deleted runs that begin with `prefix`, to find a free one.
pub fn names_with_prefix(
    tx: &mut dyn Tx,
    project: ProjectId,
    prefix: &str,
) -> Result<Vec<String>, DbError> {
    // '~' sorts after every character that names may have.
    tx.all(
        NAMES_FROM,
        params![project, prefix, format!("{prefix}~")],
        |mut row| row.take(),
    )
}

/// Unfinished runs that are placed in a fleet.
pub fn active_of_fleet(tx: &mut dyn Tx, fleet: FleetId) -> Result<Vec<RunId>, DbError> {
    tx.all(ACTIVE_OF_FLEET, params![fleet], |mut row| row.take())
}

/// A run as the lists of the API show it; `spec` and `service` are JSON text as stored, to be spliced into the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// The run.
    pub id: RunId,
    /// Its project.
    pub project_id: ProjectId,
    /// The project's name.
    pub project_name: String,
    /// Who submitted it.
    pub user_id: UserId,
    /// That user's name.
    pub user_name: String,
    /// The fleet it is placed in.
    pub fleet_id: Option<FleetId>,
    /// That fleet's name.
    pub fleet_name: Option<String>,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub status: RunStatus,
    /// Why it ends or ended.
    pub termination_reason: Option<RunTerminationReason>,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When its pipeline last wrote it.
    pub last_processed_at: Timestamp,
    /// When its schedule fires next.
    pub next_triggered_at: Option<Timestamp>,
    /// Number of its newest deployment.
    pub deployment_num: u32,
    /// Deleted, or replaced by a newer run of the name.
    pub deleted: bool,
    /// `RunSpec` as JSON.
    pub spec: String,
    /// `ServiceSpec` as JSON.
    pub service: Option<String>,
}

macro_rules! record_columns {
    () => {
        "SELECT r.id, r.project_id, p.name, r.user_id, u.name, r.fleet_id, f.name, r.name, r.status, \
         r.termination_reason, r.submitted_at, r.last_processed_at, r.next_triggered_at, r.deployment_num, r.deleted, \
         d.spec, d.service FROM runs r JOIN run_data d ON d.id = r.id JOIN projects p ON p.id = r.project_id \
         JOIN users u ON u.id = r.user_id LEFT JOIN fleets f ON f.id = r.fleet_id WHERE "
    };
}
const RECORD: Sql = sql!(record_columns!(), "r.id = ?1");
const RECORD_BY_NAME: Sql = sql!(
    record_columns!(),
    "r.project_id = ?1 AND r.name = ?2 AND r.deleted = 0"
);

fn record(mut row: Row<'_>) -> Result<RunRecord, DbError> {
    Ok(RunRecord {
        id: row.take()?,
        project_id: row.take()?,
        project_name: row.take()?,
        user_id: row.take()?,
        user_name: row.take()?,
        fleet_id: row.take()?,
        fleet_name: row.take()?,
        name: row.take()?,
        status: row.take()?,
        termination_reason: row.take()?,
        submitted_at: row.take()?,
        last_processed_at: row.take()?,
        next_triggered_at: row.take()?,
        deployment_num: row.take()?,
        deleted: row.take()?,
        spec: row.take()?,
        service: row.take()?,
    })
}

/// The record of a run, also of a deleted one.
pub fn record_by_id(tx: &mut dyn Tx, id: RunId) -> Result<Option<RunRecord>, DbError> {
    tx.first(RECORD, params![id], record)
}

/// The record of the not deleted run of this name.
pub fn record_by_name(
    tx: &mut dyn Tx,
    project: ProjectId,
    name: &str,
) -> Result<Option<RunRecord>, DbError> {
    tx.first(RECORD_BY_NAME, params![project, name], record)
}

/// Which runs to list.
#[derive(Debug, Clone, Default)]
pub struct RunsFilter {
    /// Only these projects; `None` is all.
    pub projects: Option<Vec<ProjectId>>,
    /// Only runs of this user.
    pub user: Option<UserId>,
    /// Only runs of this repo (the wire's `repo_id`).
    pub repo: Option<String>,
    /// Only unfinished, not deleted ones.
    pub only_active: bool,
    /// Which part of the list.
    pub page: Page,
}

/// One page of runs by submission time. Several projects are read one by one and merged, so that each read stops at
/// the page's size whatever the tables hold.
pub fn list(tx: &mut dyn Tx, filter: &RunsFilter) -> Result<Vec<RunRecord>, DbError> {
    let Some(projects) = &filter.projects else {
        return tx.all_of(&list_query(filter, None), record);
    };
    let mut out = Vec::new();
    for project in projects {
        out.extend(tx.all_of(&list_query(filter, Some(*project)), record)?);
    }
    if projects.len() > 1 {
        filter.page.merge(&mut out, |it| (it.submitted_at, it.id.0));
    }
    Ok(out)
}

pub(crate) fn list_query(filter: &RunsFilter, project: Option<ProjectId>) -> Query<'_> {
    let mut query = Query::new(record_columns!());
    query.text("1 = 1");
    if let Some(project) = project {
        query.text(" AND r.project_id = ").bind(project);
    }
    if let Some(user) = filter.user {
        query.text(" AND r.user_id = ").bind(user);
    }
    if let Some(repo) = &filter.repo {
        query.text(" AND r.repo_name = ").bind(repo);
    }
    if filter.only_active {
        query.text(" AND r.active = 1 AND r.deleted = 0");
    }
    filter.page.append(&mut query, "r.submitted_at", "r.id");
    query
}

//! Events: what happened to what, and who did it.

use std::collections::BTreeMap;
use std::sync::Arc;

use dstack_api::events::{EventTargetType, ListEventsRequest};
use dstack_engine::changes::{Actor, EventRow};
use dstack_engine::ids::{ProjectId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::error::DbError;
use crate::page::Page;
use crate::sql::Sql;
use crate::tx::{Query, Tx};
use crate::{params, sql};

/// An event to be recorded, about anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// One line, without a final stop.
    pub message: String,
    /// The user who caused it; `None` is the server itself.
    pub actor: Option<UserId>,
    /// What it is about; the first is the main one.
    pub targets: Vec<NewTarget>,
}

/// One thing that an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTarget {
    /// What it is.
    pub kind: EventTargetType,
    /// Its id.
    pub id: Uuid,
    /// Its project; users have none.
    pub project_id: Option<ProjectId>,
    /// Its name at that time.
    pub name: Arc<str>,
}

const INSERT: Sql =
    sql!("INSERT INTO events (id, recorded_at, actor_id, message) VALUES (?1, ?2, ?3, ?4)");
const INSERT_TARGET: Sql = sql!(
    "INSERT INTO event_targets (event_id, position, type, target_id, project_id, name) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
);

/// Records an event now; `None` if this store keeps no events.
pub fn insert(tx: &mut dyn Tx, event: &NewEvent, now: Timestamp) -> Result<Option<Uuid>, DbError> {
    if !tx.keeps_events() {
        return Ok(None);
    }
    let id = head(tx, &event.message, event.actor, now)?;
    for (position, target) in (0_u32..).zip(&event.targets) {
        let kind = target.kind.as_str();
        tx.exec(
            INSERT_TARGET,
            params![
                id,
                position,
                kind,
                target.id,
                target.project_id,
                &target.name
            ],
        )?;
    }
    Ok(Some(id))
}

/// Records an event of a decision.
pub(crate) fn insert_row(tx: &mut dyn Tx, event: &EventRow, now: Timestamp) -> Result<(), DbError> {
    if !tx.keeps_events() {
        return Ok(());
    }
    let actor = match event.actor {
        Actor::System => None,
        Actor::User(id) => Some(id),
    };
    let id = head(tx, &event.message, actor, now)?;
    for (position, target) in (0_u32..).zip(&event.targets) {
        let kind = target.kind.as_str();
        tx.exec(
            INSERT_TARGET,
            params![
                id,
                position,
                kind,
                target.id,
                target.project_id,
                &target.name
            ],
        )?;
    }
    Ok(())
}

fn head(
    tx: &mut dyn Tx,
    message: &str,
    actor: Option<UserId>,
    now: Timestamp,
) -> Result<Uuid, DbError> {
    let id = Uuid::new_v4();
    let line = message.replace(['\r', '\n'], " ");
    tx.exec(INSERT, params![id, now, actor, line.trim_end_matches('.')])?;
    Ok(id)
}

/// An event as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// Its id.
    pub id: Uuid,
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// What happened.
    pub message: String,
    /// Who did it; `None` is the server itself.
    pub actor: Option<ActorRecord>,
    /// What it is about.
    pub targets: Vec<TargetRecord>,
}

/// The user who caused an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActorRecord {
    /// Its id.
    pub id: UserId,
    /// Its name, for a deleted one the one it had.
    pub name: String,
    /// Whether it is deleted.
    pub deleted: bool,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetRecord {
    /// A word of [`EventTargetType`].
    pub kind: String,
    /// Its id.
    pub id: Uuid,
    /// Its name at that time.
    pub name: String,
    /// Its project: id, name (for a deleted one the one it had), whether it is deleted.
    pub project: Option<(ProjectId, String, bool)>,
}

/// Who asks, and therefore what may be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visible {
    /// Everything.
    All,
    /// Events about something in one of these projects, or about this user.
    Of {
        /// The user who asks.
        user: UserId,
        /// The projects it has joined.
        projects: Vec<ProjectId>,
    },
}

/// One page of events by the time they were recorded.
pub fn list(
    tx: &mut dyn Tx,
    request: &ListEventsRequest,
    visible: &Visible,
) -> Result<Vec<EventRecord>, DbError> {
    let query = list_query(request, visible);
    let mut events = tx.all_of(&query, |mut row| {
        let (id, recorded_at, message) = (row.take()?, row.take()?, row.take()?);
        let actor: Option<UserId> = row.take()?;
        let (name, deleted): (Option<String>, Option<bool>) = (row.take()?, row.take()?);
        let actor = actor.map(|id| ActorRecord {
            id,
            name: name.unwrap_or_default(),
            deleted: deleted.unwrap_or(true),
        });
        Ok(EventRecord {
            id,
            recorded_at,
            message,
            actor,
            targets: Vec::new(),
        })
    })?;
    let mut targets = targets(tx, &events)?;
    for event in &mut events {
        event.targets = targets.remove(&event.id).unwrap_or_default();
    }
    Ok(events)
}

fn targets(
    tx: &mut dyn Tx,
    events: &[EventRecord],
) -> Result<BTreeMap<Uuid, Vec<TargetRecord>>, DbError> {
    let mut query = Query::new(
        "SELECT t.event_id, t.type, t.target_id, t.name, p.id, coalesce(p.original_name, p.name), p.deleted \
         FROM event_targets t LEFT JOIN projects p ON p.id = t.project_id WHERE t.event_id IN ",
    );
    query
        .bind_list(events.iter().map(|it| it.id))
        .text(" ORDER BY t.event_id, t.position");
    let mut out: BTreeMap<Uuid, Vec<TargetRecord>> = BTreeMap::new();
    let rows = tx.all_of(&query, |mut row| {
        let (event, kind, id, name) = (row.take::<Uuid>()?, row.take()?, row.take()?, row.take()?);
        let project: (Option<ProjectId>, Option<String>, Option<bool>) =
            (row.take()?, row.take()?, row.take()?);
        let project = project.0.map(|id| {
            (
                id,
                project.1.unwrap_or_default(),
                project.2.unwrap_or(false),
            )
        });
        Ok((
            event,
            TargetRecord {
                kind,
                id,
                name,
                project,
            },
        ))
    })?;
    for (event, target) in rows {
        out.entry(event).or_default().push(target);
    }
    Ok(out)
}

pub(crate) fn list_query<'a>(request: &'a ListEventsRequest, visible: &'a Visible) -> Query<'a> {
    let mut query = Query::new(
        "SELECT e.id, e.recorded_at, e.message, e.actor_id, coalesce(u.original_name, u.name), u.deleted \
         FROM events e LEFT JOIN users u ON u.id = e.actor_id WHERE 1 = 1",
    );
    let of_target = [
        ("project", &request.target_projects),
        ("user", &request.target_users),
        ("fleet", &request.target_fleets),
        ("instance", &request.target_instances),
        ("run", &request.target_runs),
        ("job", &request.target_jobs),
        ("volume", &request.target_volumes),
        ("gateway", &request.target_gateways),
        ("gateway-replica", &request.target_gateway_replicas),
        ("secret", &request.target_secrets),
        ("preset", &request.target_presets),
    ];
    for (kind, ids) in of_target {
        if let Some(ids) = ids {
            query
                .text(" AND e.id IN (SELECT t.event_id FROM event_targets t WHERE t.target_id IN ");
            query
                .bind_list(ids)
                .text(" AND t.type = ")
                .bind(kind)
                .text(")");
        }
    }
    within(request, &mut query);
    if let Some(kinds) = &request.include_target_types {
        query.text(
            " AND EXISTS (SELECT 1 FROM event_targets t WHERE t.event_id = e.id AND t.type IN ",
        );
        query
            .bind_list(kinds.iter().map(|it| it.as_str()))
            .text(")");
    }
    if let Some(actors) = &request.actors {
        query
            .text(" AND (e.actor_id IN ")
            .bind_list(actors.iter().flatten());
        if actors.contains(&None) {
            query.text(" OR e.actor_id IS NULL");
        }
        query.text(")");
    }
    if let Visible::Of { user, projects } = visible {
        query.text(" AND EXISTS (SELECT 1 FROM event_targets t WHERE t.event_id = e.id AND (t.project_id IN ");
        query.bind_list(projects.iter().copied());
        query
            .text(" OR (t.type = 'user' AND t.target_id = ")
            .bind(*user)
            .text(")))");
    }
    let page = Page {
        prev_at: request.prev_recorded_at,
        prev_id: request.prev_id,
        limit: request.limit,
        ascending: request.ascending,
    };
    page.append(&mut query, "e.recorded_at", "e.id");
    query
}

/// The `within_…` filters: a thing and all that belongs to it.
fn within<'a>(request: &'a ListEventsRequest, query: &mut Query<'a>) {
    if let Some(projects) = &request.within_projects {
        // Walks the events by time and looks at each one's targets, so that a page costs a page.
        query.text(" AND EXISTS (SELECT 1 FROM event_targets t WHERE t.event_id = e.id AND (t.project_id IN ");
        query
            .bind_list(projects)
            .text(" OR (t.type = 'project' AND t.target_id IN ");
        query.bind_list(projects).text(")))");
    }
    if let Some(fleets) = &request.within_fleets {
        query.text(" AND e.id IN (SELECT t.event_id FROM event_targets t WHERE t.target_id IN ");
        query.bind_list(fleets);
        query.text(
            " UNION SELECT t.event_id FROM instances i JOIN event_targets t ON t.target_id = i.id ",
        );
        query
            .text("WHERE i.fleet_id IN ")
            .bind_list(fleets)
            .text(")");
    }
    if let Some(runs) = &request.within_runs {
        query.text(" AND e.id IN (SELECT t.event_id FROM event_targets t WHERE t.target_id IN ");
        query.bind_list(runs);
        query.text(
            " UNION SELECT t.event_id FROM jobs j JOIN event_targets t ON t.target_id = j.id ",
        );
        query.text("WHERE j.run_id IN ").bind_list(runs).text(")");
    }
    if let Some(gateways) = &request.within_gateways {
        query.text(" AND e.id IN (SELECT t.event_id FROM event_targets t WHERE t.target_id IN ");
        query.bind_list(gateways).text(")");
    }
}

/// Removes events recorded before `before`, at most `limit` in one go; answers how many.
pub fn delete_before(tx: &mut dyn Tx, before: Timestamp, limit: u32) -> Result<u64, DbError> {
    const DELETE: Sql = sql!(
        "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE recorded_at < ?1 \
         ORDER BY recorded_at ASC, id DESC LIMIT ?2)"
    );
    tx.exec(DELETE, params![before, limit])
}

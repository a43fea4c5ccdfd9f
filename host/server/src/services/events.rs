//! Events: recording them for requests, and listing them.

use std::sync::Arc;

use dstack_api::events::{Event, EventTarget, EventTargetType, ListEventsRequest};
use dstack_engine::ids::UserId;
use dstack_store::events::{EventRecord, NewEvent, NewTarget, TargetRecord, Visible};
use dstack_store::projects::{self, ProjectRow};
use dstack_store::users::UserRow;
use dstack_store::{DbError, Store, Tx};
use jiff::Timestamp;

use crate::error::ApiError;
use crate::extract::Authenticated;

/// A project as a target of an event.
pub(crate) fn project(project: &ProjectRow) -> NewTarget {
    NewTarget {
        kind: EventTargetType::Project,
        id: project.id.0,
        project_id: Some(project.id),
        name: Arc::from(project.name.as_str()),
    }
}

/// A user as an event's target.
pub(crate) fn user(user: &UserRow) -> NewTarget {
    NewTarget {
        kind: EventTargetType::User,
        id: user.id.0,
        project_id: None,
        name: Arc::from(user.name.as_str()),
    }
}

/// Records that a user did something to some things.
pub(crate) fn record(
    tx: &mut dyn Tx,
    now: Timestamp,
    actor: Option<UserId>,
    message: impl Into<String>,
    targets: Vec<NewTarget>,
) -> Result<(), DbError> {
    dstack_store::events::insert(
        tx,
        &NewEvent {
            message: message.into(),
            actor,
            targets,
        },
        now,
    )?;
    Ok(())
}

/// One page of the events that the caller may see.
pub(crate) async fn list(
    store: &Store,
    caller: &Authenticated,
    request: ListEventsRequest,
) -> Result<Vec<Event>, ApiError> {
    check(&request)?;
    let (me, is_admin) = (caller.0.id, caller.is_admin());
    let records = store
        .read(move |tx| {
            let visible = if is_admin {
                Visible::All
            } else {
                Visible::Of {
                    user: me,
                    projects: projects::ids_of_member(tx, me)?,
                }
            };
            dstack_store::events::list(tx, &request, &visible)
        })
        .await?;
    Ok(records.into_iter().map(show).collect())
}

fn check(request: &ListEventsRequest) -> Result<(), ApiError> {
    if !(1..=100).contains(&request.limit) {
        return Err(ApiError::invalid(
            &["limit"],
            "Input should be between 1 and 100",
        ));
    }
    let targets = [
        &request.target_projects,
        &request.target_users,
        &request.target_fleets,
        &request.target_instances,
        &request.target_runs,
        &request.target_jobs,
        &request.target_volumes,
        &request.target_gateways,
        &request.target_gateway_replicas,
        &request.target_secrets,
        &request.target_presets,
    ];
    let within = [
        &request.within_projects,
        &request.within_fleets,
        &request.within_runs,
        &request.within_gateways,
    ];
    for (kind, lists) in [
        ("target_*", targets.as_slice()),
        ("within_*", within.as_slice()),
    ] {
        let given: Vec<_> = lists.iter().filter_map(|list| list.as_ref()).collect();
        if given.len() > 1 {
            return Err(ApiError::invalid(
                &[],
                format!("At most one `{kind}` filter can be set"),
            ));
        }
        if given.iter().any(|list| !(1..=16).contains(&list.len())) {
            return Err(ApiError::invalid(
                &[],
                format!("A `{kind}` filter has 1 to 16 ids"),
            ));
        }
    }
    if request
        .include_target_types
        .as_ref()
        .is_some_and(|kinds| !(1..=16).contains(&kinds.len()))
    {
        return Err(ApiError::invalid(
            &["include_target_types"],
            "The list has 1 to 16 items",
        ));
    }
    Ok(())
}

fn show(record: EventRecord) -> Event {
    let (actor_user_id, actor_user, is_actor_user_deleted) = match record.actor {
        Some(actor) => (Some(actor.id.0), Some(actor.name), Some(actor.deleted)),
        None => (None, None, None),
    };
    let target = |target: TargetRecord| {
        let (project_id, project_name, is_project_deleted) = match target.project {
            Some((id, name, deleted)) => (Some(id.0), Some(name), Some(deleted)),
            None => (None, None, None),
        };
        EventTarget {
            kind: target.kind,
            project_id,
            project_name,
            is_project_deleted,
            id: target.id,
            name: target.name,
        }
    };
    Event {
        id: record.id,
        message: record.message,
        recorded_at: record.recorded_at,
        actor_user_id,
        actor_user,
        is_actor_user_deleted,
        targets: record.targets.into_iter().map(target).collect(),
    }
}

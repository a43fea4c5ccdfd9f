//! Events: recording them for requests, and listing them.

use std::sync::Arc;

use dstack_api::events::EventTargetType;
use dstack_engine::ids::UserId;
use dstack_store::events::{NewEvent, NewTarget};
use dstack_store::projects::ProjectRow;
use dstack_store::users::UserRow;
use dstack_store::{DbError, Tx};
use jiff::Timestamp;

/// A project as an event's target.
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
    NewTarget { kind: EventTargetType::User, id: user.id.0, project_id: None, name: Arc::from(user.name.as_str()) }
}

/// Records that a user did something to some things.
pub(crate) fn record(
    tx: &mut dyn Tx,
    now: Timestamp,
    actor: Option<UserId>,
    message: impl Into<String>,
    targets: Vec<NewTarget>,
) -> Result<(), DbError> {
    dstack_store::events::insert(tx, &NewEvent { message: message.into(), actor, targets }, now)?;
    Ok(())
}

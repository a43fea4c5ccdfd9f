//! Volumes: made or registered, used by jobs, deleted.
//!
//! ```text
//! submitted ─ made, or found ─► active ─┐
//!     └────── refused ────────► failed ─┴─ deletion asked, no job has it ─► deleted
//! ```
//!
//! The reference that stands on the disk is stored with the row and never changes, so an order can be repeated after a
//! crash or a lost answer: it finds what the earlier one made. Deletion of a volume whose order has no known result
//! repeats the order for the same reason: only then is there something to delete.

pub mod mounts;

use std::sync::Arc;
use std::time::Duration;

use dstack_api::config::VolumeConfiguration;
use dstack_api::volumes::VolumeStatus;
use dstack_backend_types::VolumeProvisioningData;
use jiff::Timestamp;

use crate::changes::{Actor, Changes, CleanupRow, Guard, Pipeline};
use crate::ids::{Ids, ProjectId, UserId, VolumeId};
use crate::job_running::{secs, signed};
use crate::model::VolumeRow;
use crate::view::Limits;

/// What people read when the project has no such backend.
pub const NO_BACKEND: &str = "Backend not available";
/// How long an order without an answer is repeated.
const PATIENCE: Duration = Duration::from_secs(600);
/// Between two orders without an answer.
const AGAIN: Duration = Duration::from_secs(15);
/// Between two looks at a disk that the provider is deleting.
const NOT_YET: Duration = Duration::from_secs(5);
/// Between two deletions that failed.
const END_RETRY: Duration = Duration::from_secs(30);
const MONTH_SECS: f64 = 30.0 * 86_400.0;

/// What the decision reads.
#[derive(Debug, Clone)]
pub struct View {
    /// Now.
    pub now: Timestamp,
    /// The volume.
    pub volume: Arc<VolumeRow>,
    /// A job has it.
    pub in_use: bool,
    /// Limits.
    pub limits: Arc<Limits>,
}

/// What to do.
#[derive(Debug, Clone)]
#[allow(
    clippy::large_enum_variant,
    reason = "lives for one step and is moved twice"
)]
pub enum Plan {
    /// Write this.
    Change(Changes),
    /// Write the changes, keeping the lease; call the backend; conclude.
    Call(Call, Changes),
}

/// A call of the volume's backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `create_volume`, or what an earlier call with the same reference made.
    Create,
    /// `register_volume`.
    Register,
    /// `delete_volume`.
    Delete,
}

/// What the backend answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The disk is there.
    Made(Box<VolumeProvisioningData>),
    /// The disk is gone.
    Deleted,
    /// The provider works on it: ask again.
    NotYet,
    /// Surely nothing was done.
    Refused(String),
    /// No answer: something may have been done.
    Unknown(String),
    /// The project has no such backend (any more).
    NoBackend,
}

/// Decides the next step of a volume.
pub fn plan(view: &View) -> Plan {
    let volume = &view.volume;
    if volume.is_deleted() {
        return Plan::Change(Changes::nothing());
    }
    if volume.delete_asked {
        return deletion(view);
    }
    match volume.status {
        VolumeStatus::Submitted | VolumeStatus::Provisioning => {
            let call = if volume.external {
                Call::Register
            } else {
                Call::Create
            };
            Plan::Call(call, attempt(view))
        }
        VolumeStatus::Active => Plan::Change(idle(view)),
        VolumeStatus::Failed => Plan::Change(Changes::nothing()),
    }
}

/// Written before the first call.
fn attempt(view: &View) -> Changes {
    let mut changes = Changes::default();
    if view.volume.attempted_at.is_none() {
        changes.volume(&view.volume).attempted_at = Some(Some(view.now));
    }
    changes
}

fn deletion(view: &View) -> Plan {
    let volume = &view.volume;
    if view.in_use {
        // The request and the clean-up refuse that; a job's step wakes this row.
        return Plan::Change(Changes::nothing());
    }
    let nothing_made = volume.external || volume.attempted_at.is_none();
    if volume.provisioning_data.is_some() && !volume.external {
        Plan::Call(Call::Delete, Changes::default())
    } else if nothing_made || volume.status == VolumeStatus::Failed {
        Plan::Change(deleted(view))
    } else {
        Plan::Call(Call::Create, Changes::default())
    }
}

/// An active volume is deleted when nobody used it for as long as its configuration says.
fn idle(view: &View) -> Changes {
    let volume = &view.volume;
    let limit = volume.configuration.auto_cleanup_duration;
    let Some(limit) = limit.filter(|limit| *limit > 0 && !volume.external) else {
        return Changes::nothing();
    };
    if view.in_use {
        return Changes::nothing();
    }
    let since = volume.last_job_at.unwrap_or(volume.created_at);
    let left = limit - secs(view.now, since);
    if left > 0 {
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        return Changes::later(Duration::from_secs(left));
    }
    let mut changes = Changes::later(Duration::ZERO);
    changes.guards.push(Guard::VolumeUnused(volume.id));
    changes.volume(volume).delete_asked = Some(true);
    changes.event(
        format!("Volume marked for deletion: not used for {limit} s"),
        &[&**volume],
    );
    changes
}

/// Turns the backend's answer into changes.
pub fn conclude(view: &View, call: Call, answer: &Answer) -> Changes {
    match (call, answer) {
        (Call::Delete, answer) => end(view, answer),
        (_, Answer::Made(data)) => made(view, data),
        (_, Answer::NotYet) => Changes::later(AGAIN),
        (_, Answer::NoBackend) => not_made(view, NO_BACKEND, true),
        (_, Answer::Refused(why)) => not_made(view, why, false),
        (_, Answer::Unknown(why)) => {
            let since = view.volume.attempted_at.unwrap_or(view.now);
            if secs(view.now, since) < signed(PATIENCE) {
                Changes::later(AGAIN)
            } else {
                not_made(view, why, true)
            }
        }
        (_, Answer::Deleted) => not_made(view, "the provider has no such volume", false),
    }
}

fn made(view: &View, data: &VolumeProvisioningData) -> Changes {
    let volume = &view.volume;
    let mut changes = Changes::later(Duration::ZERO);
    changes.volume(volume).provisioning_data = Some(Some(Arc::new(data.clone())));
    if volume.delete_asked {
        // It was looked for only to be deleted.
        return changes;
    }
    becomes(&mut changes, volume, VolumeStatus::Active, None);
    changes
}

/// It could not be made; `unsure` if something may exist all the same.
fn not_made(view: &View, why: &str, unsure: bool) -> Changes {
    let volume = &view.volume;
    let mut changes = Changes::default();
    if unsure && !volume.external && volume.attempted_at.is_some_and(|at| at < view.now) {
        changes.cleanup.push(CleanupRow {
            project_id: volume.project_id,
            backend: volume.configuration.backend.clone(),
            region: volume.configuration.place.region().to_owned(),
            provider_ref: volume.provider_ref.to_string(),
            machine: None,
            not_before: view
                .now
                .saturating_add(view.limits.call_echo)
                .unwrap_or(view.now),
        });
    }
    if volume.delete_asked {
        record_deletion(view, &mut changes);
    } else {
        becomes(
            &mut changes,
            volume,
            VolumeStatus::Failed,
            Some(why.to_owned()),
        );
    }
    changes
}

fn end(view: &View, answer: &Answer) -> Changes {
    let volume = &view.volume;
    let why = match answer {
        Answer::Deleted | Answer::Made(_) => return deleted(view),
        Answer::NotYet => return Changes::later(NOT_YET),
        Answer::NoBackend => NO_BACKEND,
        Answer::Refused(why) | Answer::Unknown(why) => why,
    };
    let since = volume.first_end_failure_at;
    let is_late =
        since.is_some_and(|since| secs(view.now, since) >= signed(view.limits.end_patience));
    // Nobody is left to be asked when the project has lost its backend.
    if is_late || *answer == Answer::NoBackend {
        let mut changes = deleted(view);
        let id = volume
            .provisioning_data
            .as_ref()
            .map_or("unknown", |data| data.volume_id.as_str());
        changes.event(
            format!("The provider did not delete {id}, which may still cost money: {why}"),
            &[&**volume],
        );
        return changes;
    }
    let mut changes = Changes::later(END_RETRY);
    if since.is_none() {
        changes.volume(volume).first_end_failure_at = Some(Some(view.now));
        changes.event(
            format!("The provider could not delete the volume yet: {why}"),
            &[&**volume],
        );
    }
    changes
}

fn deleted(view: &View) -> Changes {
    let mut changes = Changes::default();
    record_deletion(view, &mut changes);
    changes
}

fn record_deletion(view: &View, changes: &mut Changes) {
    let volume = &view.volume;
    changes.volume(volume).deleted_at = Some(Some(view.now));
    changes.event("Volume deleted", &[&**volume]);
}

fn becomes(
    changes: &mut Changes,
    volume: &VolumeRow,
    status: VolumeStatus,
    message: Option<String>,
) {
    let (old, new) = (upper(volume.status), upper(status));
    let told = message
        .as_deref()
        .map(|message| format!(" ({message})"))
        .unwrap_or_default();
    let patch = changes.volume(volume);
    patch.status = Some(status);
    patch.status_message = Some(message);
    changes.event(
        format!("Volume status changed {old} -> {new}{told}"),
        &[volume],
    );
}

fn upper(status: VolumeStatus) -> String {
    status.as_str().to_uppercase()
}

/// A new volume. The configuration has its name.
pub fn create(
    project_id: ProjectId,
    user_id: UserId,
    name: &str,
    configuration: VolumeConfiguration,
    now: Timestamp,
    ids: &mut Ids,
) -> (VolumeId, Changes) {
    let row = VolumeRow {
        id: VolumeId(ids.uuid()),
        project_id,
        user_id,
        name: name.into(),
        external: configuration.place.external_id().is_some(),
        configuration: Arc::new(configuration),
        status: VolumeStatus::Submitted,
        status_message: None,
        created_at: now,
        last_processed_at: now,
        last_job_at: None,
        provider_ref: ids.provider_ref().into(),
        attempted_at: None,
        provisioning_data: None,
        delete_asked: false,
        first_end_failure_at: None,
        deleted_at: None,
    };
    let mut changes = Changes::default();
    changes.event("Volume created. Status: SUBMITTED", &[&row]);
    by(&mut changes, user_id);
    let id = row.id;
    changes.hint(Pipeline::Volumes, id);
    changes.new_volumes.push(row);
    (id, changes)
}

/// Asks for the end of a volume; nothing if somebody has asked before. A guard refuses it while a job has the volume.
pub fn delete(volume: &VolumeRow, user_id: UserId) -> Changes {
    let mut changes = Changes::default();
    if volume.delete_asked || volume.is_deleted() {
        return changes;
    }
    changes.guards.push(Guard::VolumeUnused(volume.id));
    changes.volume(volume).delete_asked = Some(true);
    changes.event("Volume marked for deletion", &[volume]);
    by(&mut changes, user_id);
    changes.hint(Pipeline::Volumes, volume.id);
    changes
}

fn by(changes: &mut Changes, user_id: UserId) {
    for event in &mut changes.events {
        event.actor = Actor::User(user_id);
    }
}

/// What a volume has cost so far in US dollars, to four decimals: its monthly price over 30 days, for its age.
pub fn cost(volume: &VolumeRow, now: Timestamp) -> f64 {
    let price = volume.provisioning_data.as_ref().and_then(|d| d.price);
    let until = volume.deleted_at.unwrap_or(now);
    let age = until.duration_since(volume.created_at).as_secs_f64();
    let cost = price.unwrap_or(0.0) * age.max(0.0) / MONTH_SECS;
    (cost * 10_000.0).round() / 10_000.0
}

//! Jobs that end: last words, container, blocks.
//!
//! ```text
//! stop: Requested ─ runner asked ─► Sent ─ last logs read, or remove_at ─┐
//! stop: Hard ────────────────────────────────────────────────────────────┴─ shim removes ─► final status, blocks free
//! ```
//!
//! Volumes come off after the container is gone; the blocks are held until they are, so that nobody else takes the machine
//! meanwhile. A provider that does not detach is asked with force in the end.
//!
//! No step depends on the machine being there: an agent that does not answer is skipped, after a while.

use std::sync::Arc;
use std::time::Duration;

use dstack_api::instances::InstanceStatus;
use dstack_api::jobs::{JobStatus, JobTerminationReason as Reason};
use jiff::Timestamp;

use crate::changes::{Changes, Guard, Pipeline};
use crate::job_running::{Pulled, secs};
use crate::model::{AttachmentRow, Held, InstanceRow, JobRow, RunRow, Stop, VolumeRow};
use crate::view::Limits;

/// How long the removal of a task is tried.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(15);
/// Between two tries to take a volume off.
const DETACH_AGAIN: Duration = Duration::from_secs(4);
/// Seconds until force, when the user aborted.
const FORCE_AFTER_ABORT: i64 = 60;

/// What the decision reads.
#[derive(Debug, Clone)]
pub struct View {
    /// Now.
    pub now: Timestamp,
    /// The job.
    pub job: JobRow,
    /// Its run.
    pub run: RunRow,
    /// Its instance, or the placeholder made for it.
    pub instance: Option<InstanceRow>,
    /// The volumes it has, by name.
    pub volumes: Vec<Held>,
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
    /// Ask an agent, then conclude.
    Ask(Ask),
}

/// A question to an agent of the job's machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// Tell the runner to stop the commands. `abort` kills them at once.
    Stop {
        /// Do not wait for the commands.
        abort: bool,
    },
    /// What happened since this position?
    Pull {
        /// The position, in the runner's milliseconds.
        since: i64,
    },
    /// Backend: take this one of [`View::volumes`] off the job's machine.
    Detach {
        /// Which.
        volume: Arc<VolumeRow>,
        /// The machine may still write to it.
        force: bool,
    },
    /// Tell the shim to end the task at once and to forget it.
    Remove {
        /// Word of the reason, for the shim's record.
        reason: String,
        /// Its message.
        message: String,
    },
}

/// What an agent answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It did what it was told, or never knew the job.
    Done,
    /// It did not answer, or could not.
    Failed(String),
    /// What happened, and whether more may come.
    Pulled(Pulled, bool),
}

/// Decides the next step of a terminating job.
pub fn plan(view: &View) -> Plan {
    let job = &view.job;
    if job.status != JobStatus::Terminating {
        return Plan::Change(Changes::nothing());
    }
    let Some(instance) = &view.instance else {
        return leave(view);
    };
    let reachable = instance.status != InstanceStatus::Terminated
        && job
            .provisioning_data
            .as_ref()
            .is_some_and(|data| data.hostname.is_some());
    if job.blocks == 0 || !reachable {
        return leave(view);
    }
    match job.stop {
        Stop::Requested => Plan::Ask(Ask::Stop {
            abort: job.termination_reason == Some(Reason::AbortedByUser),
        }),
        Stop::Sent if job.remove_at.is_some_and(|until| view.now < until) => Plan::Ask(Ask::Pull {
            since: job.runner_timestamp,
        }),
        Stop::Sent | Stop::Hard if instance.has_shim() && view.limits.remove_containers => {
            Plan::Ask(remove(job))
        }
        Stop::Sent | Stop::Hard | Stop::Removed => leave(view),
    }
}

/// The container is gone, or nobody can tell: volumes come off, then all is over.
fn leave(view: &View) -> Plan {
    match attached(view).next() {
        Some(held) => Plan::Ask(Ask::Detach {
            volume: Arc::clone(&held.volume),
            force: force_is_due(view, held),
        }),
        None => Plan::Change(finish(view)),
    }
}

/// What the provider must take off. A machine that is gone has let go of everything.
fn attached(view: &View) -> impl Iterator<Item = &Held> {
    let is_there = view.instance.as_ref().is_some_and(|instance| {
        instance.status != InstanceStatus::Terminated && instance.provisioning_data.is_some()
    });
    let must_come_off = |held: &&Held| {
        let data = held.volume.provisioning_data.as_ref();
        data.is_some_and(|data| data.attachable && data.detachable)
    };
    view.volumes
        .iter()
        .filter(move |_| is_there)
        .filter(must_come_off)
}

/// A user who aborts waits a minute, else the commands' own time to stop counts; without one there is no force.
fn force_is_due(view: &View, held: &Held) -> bool {
    let limit = match view.job.termination_reason {
        Some(Reason::AbortedByUser) => Some(FORCE_AFTER_ABORT),
        _ => view.job.spec.stop_duration,
    };
    held.attachment
        .detach_began_at
        .zip(limit)
        .is_some_and(|(began, limit)| secs(view.now, began) >= limit)
}

fn remove(job: &JobRow) -> Ask {
    Ask::Remove {
        reason: job
            .termination_reason
            .map(|reason| reason.to_string())
            .unwrap_or_default(),
        message: job.termination_reason_message.clone().unwrap_or_default(),
    }
}

/// Turns an agent's answer into changes.
pub fn conclude(view: &View, ask: &Ask, answer: &Answer) -> Changes {
    let job = &view.job;
    match (ask, answer) {
        (Ask::Stop { .. }, _) => {
            let mut changes = Changes::later(Duration::from_millis(200));
            changes.guards.push(own_guard(view));
            let until = view
                .now
                .saturating_add(view.limits.last_logs)
                .unwrap_or(view.now);
            let patch = changes.job(job);
            patch.stop = Some(Stop::Sent);
            patch.remove_at = Some(Some(until));
            changes.event("Graceful stop requested", &[job]);
            changes
        }
        (Ask::Pull { .. }, Answer::Pulled(pulled, more)) => {
            let mut changes = Changes {
                guards: vec![own_guard(view)],
                ..Changes::default()
            };
            let patch = changes.job(job);
            if pulled.stored {
                patch.runner_timestamp = Some(pulled.last_updated.max(job.runner_timestamp));
                if let Some(end) = &pulled.ended {
                    patch.exit_status = Some(end.exit_status);
                }
            }
            if *more || !pulled.stored {
                changes.look_again = Some(Duration::from_secs(if pulled.news { 1 } else { 2 }));
            } else {
                patch.remove_at = Some(Some(view.now));
                changes.look_again = Some(Duration::ZERO);
            }
            changes
        }
        (Ask::Pull { .. }, _) => {
            let mut changes = Changes::later(Duration::ZERO);
            changes.guards.push(own_guard(view));
            changes.job(job).remove_at = Some(Some(view.now));
            changes
        }
        (Ask::Remove { .. }, Answer::Failed(why)) => not_removed(view, why),
        (Ask::Remove { .. }, _) => removed(view),
        (Ask::Detach { volume, .. }, Answer::Done) => {
            let mut changes = Changes::later(Duration::ZERO);
            changes.guards.push(own_guard(view));
            let_go(view, volume, &mut changes);
            changes
        }
        (Ask::Detach { volume, force }, answer) => still_attached(view, volume, *force, answer),
    }
}

/// The container is gone, or nobody can tell. Volumes come off next.
fn removed(view: &View) -> Changes {
    if attached(view).next().is_none() {
        return finish(view);
    }
    let mut changes = Changes::later(Duration::ZERO);
    changes.guards.push(own_guard(view));
    changes.job(&view.job).stop = Some(Stop::Removed);
    changes
}

/// A shim that is being restarted is back in seconds, and until then its task holds what the next job would get. One that
/// stays away costs the job no more time: its machine gets no job until a check has removed what is left there.
fn not_removed(view: &View, why: &str) -> Changes {
    let job = &view.job;
    let since = job.remove_at.unwrap_or(view.now);
    let until = since.saturating_add(REMOVAL_PATIENCE).unwrap_or(view.now);
    let is_away = view.instance.as_ref().is_none_or(|it| it.unreachable);
    if !is_away && view.now < until {
        let mut changes = Changes::later(Duration::from_secs(1));
        changes.guards.push(own_guard(view));
        if job.remove_at.is_none() {
            changes.job(job).remove_at = Some(Some(view.now));
        }
        return changes;
    }
    let mut changes = removed(view);
    if let Some(instance) = view.instance.as_ref().filter(|it| !it.unreachable) {
        // Nobody may take it, so nobody is woken for it.
        changes.freed.clear();
        let patch = changes.instance(instance);
        patch.unreachable = Some(true);
        // The next check that succeeds looks for tasks without a job.
        patch.health_checked_at = Some(None);
        changes.event(
            format!("Instance became unreachable: a task could not be removed: {why}"),
            &[instance],
        );
    }
    changes
}

/// The provider works on it, or cannot do it now.
fn still_attached(view: &View, volume: &VolumeRow, force: bool, answer: &Answer) -> Changes {
    let mut changes = Changes::later(DETACH_AGAIN);
    changes.guards.push(own_guard(view));
    let held = view.volumes.iter().find(|it| it.volume.id == volume.id);
    if let Some(held) = held.filter(|it| it.attachment.detach_began_at.is_none()) {
        changes.attachments.push(AttachmentRow {
            detach_began_at: Some(view.now),
            ..held.attachment.clone()
        });
        let why = match answer {
            Answer::Failed(why) => format!(": {why}"),
            Answer::Done | Answer::Pulled(..) => String::new(),
        };
        changes.event(
            format!("Volume is not detached yet{why}"),
            &[volume, &view.job],
        );
    } else if force {
        changes.event("Volume is being detached by force", &[volume, &view.job]);
    }
    changes
}

/// The job's hold on a volume is over.
fn let_go(view: &View, volume: &VolumeRow, changes: &mut Changes) {
    changes.detached.push((volume.id, view.job.id));
    changes.volume(volume).last_job_at = Some(Some(view.now));
    changes.hint(Pipeline::Volumes, volume.id);
}

fn own_guard(view: &View) -> Guard {
    Guard::JobIs(view.job.id, vec![JobStatus::Terminating])
}

/// The final status; blocks are freed, a placeholder goes.
fn finish(view: &View) -> Changes {
    let job = &view.job;
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        ..Changes::default()
    };
    let status = job
        .termination_reason
        .map_or(JobStatus::Terminated, Reason::status);
    changes.job_becomes(job, status);
    let patch = changes.job(job);
    patch.finished_at = Some(Some(view.now));
    patch.blocks = Some(0);
    patch.stop = Some(Stop::Removed);
    if job.registered {
        patch.registered = Some(false);
    }
    for held in &view.volumes {
        let_go(view, &held.volume, &mut changes);
    }
    if let Some(instance) = &view.instance {
        if job.blocks > 0 {
            let patch = changes.instance(instance);
            patch.busy_blocks_delta = -i32::try_from(job.blocks).unwrap_or(0);
            patch.last_job_at = Some(Some(view.now));
            let busy = instance.busy_blocks.saturating_sub(job.blocks);
            let total = instance.total_blocks.unwrap_or(0);
            changes.event(
                format!("Job unassigned from instance. {busy}/{total} blocks busy"),
                &[job, instance],
            );
        } else if instance.status == InstanceStatus::Pending && instance.owner_job == Some(job.id) {
            placeholder_goes(view, instance, &mut changes);
        }
        if job.blocks > 0 && instance.has_shim() && !instance.unreachable {
            changes.freed.push(instance.fleet_id);
        }
        // It decides itself whether it idles or ends, when the last block is free.
        changes.hint(Pipeline::Instances, instance.id);
    }
    changes
}

/// The call for the placeholder's machine may be at work in this very moment: what it makes is found by its
/// reference.
fn placeholder_goes(view: &View, instance: &InstanceRow, changes: &mut Changes) {
    changes.guards.push(Guard::InstanceIs(
        instance.id,
        vec![InstanceStatus::Pending],
    ));
    if let Some(lost) = &instance.attempt {
        let project = instance.project_id;
        changes.cleanup.extend(crate::job_submitted::lost_rows(
            lost,
            &project,
            view.now,
            &view.limits,
        ));
    }
    let patch = changes.instance(instance);
    patch.status = Some(InstanceStatus::Terminated);
    patch.attempt = Some(None);
    patch.finished_at = Some(Some(view.now));
    patch.deleted = Some(true);
}

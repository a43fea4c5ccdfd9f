//! Giving a machine back.

use std::sync::Arc;
use std::time::Duration;

use dstack_api::instances::InstanceTerminationReason as Reason;

use super::{Ask, Plan, View, gone, own_guard};
use crate::changes::Changes;
use crate::job_running::{secs, signed};
use crate::job_submitted::lost_rows;

/// How long a provider that does not end a machine is asked at the quick pace.
const END_RETRY: Duration = Duration::from_secs(30);
/// The slow pace after that.
const END_RETRY_SLOW: Duration = Duration::from_secs(300);

/// The provider is asked until it confirms.
pub(super) fn terminating(view: &View) -> Plan {
    let instance = &view.instance;
    if instance.ssh_host.is_some() {
        return Plan::Ask(Ask::Clear);
    }
    match &instance.provisioning_data {
        Some(data) => Plan::Ask(Ask::Terminate(Arc::clone(data))),
        _ => {
            let reason = instance
                .termination_reason
                .unwrap_or(Reason::TerminatedByUser);
            let mut changes = Changes {
                guards: vec![own_guard(view)],
                ..Changes::default()
            };
            if let Some(lost) = &instance.attempt {
                changes.cleanup.extend(lost_rows(
                    lost,
                    &instance.project_id,
                    view.now,
                    &view.limits,
                ));
            }
            gone(
                view,
                &mut changes,
                reason,
                instance.termination_reason_message.clone(),
            );
            Plan::Change(changes)
        }
    }
}

/// Retried for ever, since a machine that costs money must not be forgotten: every 30 s at first, then rarely.
pub(super) fn not_ended(view: &View, why: &str) -> Changes {
    let instance = &view.instance;
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        look_again: Some(END_RETRY),
        ..Changes::default()
    };
    match instance.first_end_failure_at {
        None => {
            changes.instance(instance).first_end_failure_at = Some(Some(view.now));
            changes.event(
                format!("Instance could not be ended yet: {why}"),
                &[instance],
            );
        }
        Some(since) if secs(view.now, since) > signed(view.limits.end_patience) => {
            changes.look_again = Some(END_RETRY_SLOW);
        }
        Some(_) => {}
    }
    changes
}

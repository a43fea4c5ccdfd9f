//! Own hosts: prepared over SSH, cleared when they go. They are never made, idle-timed or given up.

use std::sync::Arc;
use std::time::Duration;

use dstack_api::fleets::FleetStatus;
use dstack_api::instances::{InstanceStatus as Status, InstanceTerminationReason as Reason};

use super::{Answer, Ask, CHECK_EVERY, Plan, View, gone, never_was, own_guard};
use crate::changes::Changes;
use crate::job_running::{secs, signed};
use crate::ssh_hosts::{self, HostFacts};

/// How long a host may take, from the order on.
const PREPARE_LIMIT: Duration = Duration::from_secs(600);
/// How long errors are tried again that need somebody's help: a host that has just booted may not have its keys yet.
const HELP_PATIENCE: Duration = Duration::from_secs(15);
/// How long a host that does not answer is waited for when it goes.
const CLEAR_PATIENCE: Duration = Duration::from_secs(30);

/// The next step of a host that is not ready.
pub(super) fn pending(view: &View) -> Plan {
    let instance = &view.instance;
    if view.fleet.status != FleetStatus::Active {
        return Plan::Change(ends(view, Reason::TerminatedByUser, None, true));
    }
    if ssh_hosts::host_of(&view.fleet.spec, instance).is_none() {
        let why = "the fleet does not name the host any more".to_owned();
        return Plan::Change(ends(view, Reason::Error, Some(why), false));
    }
    if age(view) > PREPARE_LIMIT {
        return Plan::Change(too_late(
            view,
            instance.termination_reason_message.as_deref(),
        ));
    }
    Plan::Ask(Ask::Prepare)
}

fn age(view: &View) -> Duration {
    let seconds = secs(view.now, view.instance.created_at);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn too_late(view: &View, last: Option<&str>) -> Changes {
    let limit = PREPARE_LIMIT.as_secs();
    let why = match last {
        Some(last) => format!("the host was not ready within {limit} s: {last}"),
        None => format!("the host was not ready within {limit} s"),
    };
    ends(view, Reason::ProvisioningTimeout, Some(why), false)
}

/// The shim answers and told what the host has.
pub(super) fn prepared(view: &View, facts: &HostFacts) -> Changes {
    let instance = &view.instance;
    let Some(host) = ssh_hosts::host_of(&view.fleet.spec, instance) else {
        let why = "the fleet does not name the host any more".to_owned();
        return ends(view, Reason::Error, Some(why), true);
    };
    let (data, offer) = match ssh_hosts::describe(&view.fleet.spec, instance, &host, facts) {
        Ok(described) => described,
        Err(why) => return ends(view, Reason::Error, Some(why), true),
    };
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        ..Changes::default()
    };
    changes.instance_becomes(instance, Status::Idle);
    let patch = changes.instance(instance);
    patch.started_at = Some(Some(view.now));
    patch.total_blocks = Some(Some(offer.total_blocks));
    patch.provisioning_data = Some(Some(Arc::new(data)));
    patch.offer = Some(Some(Arc::new(offer)));
    patch.termination_reason_message = Some(None);
    changes.freed.push(instance.fleet_id);
    changes.look_again = Some(CHECK_EVERY);
    changes
}

/// One try failed.
pub(super) fn unprepared(view: &View, why: &str, is_final: bool, was_entered: bool) -> Changes {
    let instance = &view.instance;
    if age(view) > PREPARE_LIMIT {
        return too_late(view, Some(why));
    }
    if is_final && age(view) >= HELP_PATIENCE {
        return ends(view, Reason::Error, Some(why.to_owned()), was_entered);
    }
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        look_again: Some(match age(view).as_secs() {
            ..60 => Duration::from_secs(3),
            _ => Duration::from_secs(10),
        }),
        ..Changes::default()
    };
    if was_entered && instance.started_at.is_none() {
        changes.instance(instance).started_at = Some(Some(view.now));
    }
    if instance.termination_reason_message.as_deref() != Some(why) {
        changes.instance(instance).termination_reason_message = Some(Some(why.to_owned()));
        changes.event(format!("The host is not ready yet: {why}"), &[instance]);
    }
    changes
}

/// Ends a host: at once if nothing of ours is there, else by clearing it.
fn ends(view: &View, reason: Reason, message: Option<String>, was_entered: bool) -> Changes {
    let instance = &view.instance;
    if !was_entered && instance.started_at.is_none() {
        return never_was(view, reason, message);
    }
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        ..Changes::default()
    };
    changes.instance_ends(instance, reason, message);
    changes
}

/// What became of clearing a host.
pub(super) fn cleared(view: &View, answer: &Answer) -> Changes {
    let instance = &view.instance;
    let mut changes = Changes {
        guards: vec![own_guard(view)],
        ..Changes::default()
    };
    let over = match answer {
        Answer::Unprepared {
            why,
            is_final,
            was_entered,
        } => {
            let since = instance.first_end_failure_at;
            let patience = since.is_none_or(|since| secs(view.now, since) < signed(CLEAR_PATIENCE));
            // Nothing was put there, or nobody can tell: then there is no use in waiting.
            let was_ours = *was_entered || instance.started_at.is_some();
            if !is_final && patience && was_ours {
                if since.is_none() {
                    changes.instance(instance).first_end_failure_at = Some(Some(view.now));
                    changes.event(format!("The host is not cleared yet: {why}"), &[instance]);
                }
                changes.look_again = Some(Duration::from_secs(3));
                return changes;
            }
            was_ours.then_some(why)
        }
        _ => None,
    };
    if let Some(why) = over {
        changes.event(
            format!(
                "The host was not cleared: {why}; to clear it by hand, stop dstack-shim and remove \
                 /usr/local/bin/dstack-shim, /usr/local/bin/dstack-runner, /etc/systemd/system/dstack-shim.service \
                 and the line `# added by dstack` of authorized_keys"
            ),
            &[instance],
        );
    }
    let reason = instance
        .termination_reason
        .unwrap_or(Reason::TerminatedByUser);
    gone(
        view,
        &mut changes,
        reason,
        instance.termination_reason_message.clone(),
    );
    changes
}

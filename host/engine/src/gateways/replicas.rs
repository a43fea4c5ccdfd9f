//! The machines of gateways.
//!
//! ```text
//! submitted ─ made ─► provisioning ─ its agent answers, behind the balancer ─► running ─┐
//!     │                    └──── 30 looks in vain ──────────────────────► terminating ◄─┘ surplus, deletion
//!     └ refused ───────────────────────────────────────────► terminated ◄─────┘ confirmed
//! ```

use std::sync::Arc;
use std::time::Duration;

use dstack_api::gateways::GatewayReplicaStatus as Status;
use dstack_backend_types::GatewayProvisioningData;
use jiff::Timestamp;

use super::{AGAIN, END_RETRY, PATIENCE, has_balancer};
use crate::changes::{Changes, CleanupRow, Pipeline};
use crate::job_running::{secs, signed};
use crate::model::{GatewayReplicaRow, GatewayRow};
use crate::view::Limits;

/// How often the agent of a new machine is looked for.
pub const CONNECT_TRIES: u32 = 30;
/// Between two looks.
pub const CONNECT_EVERY: Duration = Duration::from_secs(10);

/// What the decision reads.
#[derive(Debug, Clone)]
pub struct View {
    /// Now.
    pub now: Timestamp,
    /// The replica.
    pub replica: GatewayReplicaRow,
    /// Its gateway.
    pub gateway: Arc<GatewayRow>,
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
    /// Write the changes, keeping the lease; call; conclude.
    Call(Call, Changes),
}

/// Whom to call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Backend: `create_gateway_replica`, or what an earlier call with the same reference made.
    Create,
    /// The machine: does its agent answer?
    Connect(Arc<GatewayProvisioningData>),
    /// Backend: `register_gateway_replica` at the load balancer.
    Register(Arc<GatewayProvisioningData>),
    /// Backend: `deregister_gateway_replica`.
    Deregister(Arc<GatewayProvisioningData>),
    /// Backend: `terminate_gateway_replica`.
    Terminate(Arc<GatewayProvisioningData>),
}

/// What was answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The machine is being made.
    Made(Box<GatewayProvisioningData>),
    /// Done: the agent answers, the balancer knows (or no longer knows) the machine, the machine is gone.
    Done,
    /// Ask again: it is under way.
    NotYet,
    /// Surely nothing was done.
    Refused(String),
    /// No answer: something may have been done.
    Unknown(String),
}

/// Decides the next step of a replica.
pub fn plan(view: &View) -> Plan {
    let replica = &view.replica;
    match (replica.status, &replica.provisioning_data) {
        (Status::Submitted, _) => Plan::Call(Call::Create, attempt(view)),
        (Status::Provisioning, Some(data)) => {
            let data = Arc::clone(data);
            Plan::Call(Call::Connect(data), Changes::default())
        }
        (Status::Provisioning, None) => {
            let mut changes = Changes::default();
            let why = "nothing is known of the machine".to_owned();
            ends(&mut changes, replica, Some(why));
            Plan::Change(changes)
        }
        (Status::Running, Some(data)) if must_register(view) => {
            Plan::Call(Call::Register(Arc::clone(data)), Changes::default())
        }
        (Status::Running | Status::Terminated, _) => Plan::Change(Changes::nothing()),
        (Status::Terminating, Some(data)) if replica.registered => {
            Plan::Call(Call::Deregister(Arc::clone(data)), Changes::default())
        }
        (Status::Terminating, Some(data)) => {
            Plan::Call(Call::Terminate(Arc::clone(data)), Changes::default())
        }
        // Only an order that is repeated tells what an order without an answer made.
        (Status::Terminating, None) if replica.attempted_at.is_some() => {
            Plan::Call(Call::Create, Changes::default())
        }
        (Status::Terminating, None) => Plan::Change(gone(view, None)),
    }
}

fn must_register(view: &View) -> bool {
    has_balancer(&view.gateway.configuration) && !view.replica.registered
}

fn attempt(view: &View) -> Changes {
    let mut changes = Changes::default();
    if view.replica.attempted_at.is_none() {
        changes.gateway_replica(&view.replica).attempted_at = Some(Some(view.now));
    }
    changes
}

/// Turns an answer into changes.
pub fn conclude(view: &View, call: &Call, answer: &Answer) -> Changes {
    match call {
        Call::Create => created(view, answer),
        Call::Connect(_) => connected(view, answer),
        Call::Register(_) => registered(view, answer),
        Call::Deregister(_) => {
            // A machine that cannot be taken from the balancer is ended all the same.
            let mut changes = Changes::later(Duration::ZERO);
            changes.gateway_replica(&view.replica).registered = Some(false);
            changes
        }
        Call::Terminate(_) => terminated(view, answer),
    }
}

fn created(view: &View, answer: &Answer) -> Changes {
    let replica = &view.replica;
    let is_ending = replica.status == Status::Terminating;
    match answer {
        Answer::Made(data) => {
            let mut changes = Changes::later(Duration::ZERO);
            let patch = changes.gateway_replica(replica);
            patch.provisioning_data = Some(Some(Arc::new(GatewayProvisioningData::clone(data))));
            if !is_ending {
                becomes(&mut changes, replica, Status::Provisioning, None);
            }
            changes
        }
        Answer::NotYet | Answer::Done => Changes::later(AGAIN),
        Answer::Refused(why) => {
            let why = format!("the machine could not be made: {why}");
            gone(view, (!is_ending).then_some(why))
        }
        Answer::Unknown(why) => {
            let since = replica.attempted_at.unwrap_or(view.now);
            if secs(view.now, since) < signed(PATIENCE) {
                return Changes::later(AGAIN);
            }
            let why = format!("the provider did not say whether the machine was made: {why}");
            let mut changes = gone(view, (!is_ending).then_some(why));
            changes.cleanup.push(CleanupRow {
                project_id: replica.project_id,
                backend: view.gateway.configuration.backend.clone(),
                region: view.gateway.configuration.region.clone(),
                provider_ref: replica.provider_ref.to_string(),
                machine: None,
                not_before: view
                    .now
                    .saturating_add(view.limits.call_echo)
                    .unwrap_or(view.now),
            });
            changes
        }
    }
}

fn connected(view: &View, answer: &Answer) -> Changes {
    let replica = &view.replica;
    let tries = replica.connect_tries + 1;
    let why = match answer {
        Answer::Done | Answer::Made(_) => {
            let mut changes = Changes::later(Duration::ZERO);
            becomes(&mut changes, replica, Status::Running, None);
            return changes;
        }
        Answer::NotYet => "it is not up yet",
        Answer::Refused(why) | Answer::Unknown(why) => why,
    };
    let mut changes = Changes::later(CONNECT_EVERY);
    changes.gateway_replica(replica).connect_tries = Some(tries);
    if tries >= CONNECT_TRIES {
        let waited = u64::from(tries) * CONNECT_EVERY.as_secs();
        let why = format!("the agent on the machine did not answer within {waited} s: {why}");
        ends(&mut changes, replica, Some(why));
        changes.look_again = Some(Duration::ZERO);
    }
    changes
}

fn registered(view: &View, answer: &Answer) -> Changes {
    match answer {
        Answer::Done | Answer::Made(_) => {
            let mut changes = Changes::default();
            changes.gateway_replica(&view.replica).registered = Some(true);
            changes.hint(Pipeline::Gateways, view.gateway.id);
            changes
        }
        Answer::NotYet | Answer::Refused(_) | Answer::Unknown(_) => Changes::later(AGAIN),
    }
}

fn terminated(view: &View, answer: &Answer) -> Changes {
    let replica = &view.replica;
    let why = match answer {
        Answer::Done | Answer::Made(_) => return gone(view, None),
        Answer::NotYet => return Changes::later(Duration::from_secs(5)),
        Answer::Refused(why) | Answer::Unknown(why) => why,
    };
    let since = replica.first_end_failure_at;
    if since.is_some_and(|since| secs(view.now, since) >= signed(view.limits.end_patience)) {
        let mut changes = gone(view, None);
        let id = replica
            .provisioning_data
            .as_ref()
            .map_or("unknown", |data| data.instance_id.as_str());
        changes.event(
            format!("The provider did not end the machine {id}, which may still cost money: {why}"),
            &[replica, &*view.gateway],
        );
        return changes;
    }
    let mut changes = Changes::later(END_RETRY);
    if since.is_none() {
        changes.gateway_replica(replica).first_end_failure_at = Some(Some(view.now));
    }
    changes
}

/// Nothing is left of it; `why` if that is news.
fn gone(view: &View, why: Option<String>) -> Changes {
    let replica = &view.replica;
    let mut changes = Changes::default();
    let message = why.or_else(|| replica.status_message.clone());
    becomes(&mut changes, replica, Status::Terminated, message);
    changes
}

/// Begins the end of a replica.
pub(super) fn ends(changes: &mut Changes, replica: &GatewayReplicaRow, why: Option<String>) {
    becomes(changes, replica, Status::Terminating, why);
    changes.hint(Pipeline::GatewayReplicas, replica.id);
}

fn becomes(
    changes: &mut Changes,
    replica: &GatewayReplicaRow,
    status: Status,
    message: Option<String>,
) {
    let (old, new) = (
        replica.status.as_str().to_uppercase(),
        status.as_str().to_uppercase(),
    );
    let told = message
        .as_deref()
        .filter(|message| replica.status_message.as_deref() != Some(*message))
        .map(|message| format!(" ({message})"))
        .unwrap_or_default();
    let patch = changes.gateway_replica(replica);
    patch.status = Some(status);
    patch.status_message = Some(message);
    changes.event(
        format!("Gateway replica status changed {old} -> {new}{told}"),
        &[replica],
    );
    changes.hint(Pipeline::Gateways, replica.gateway_id);
}

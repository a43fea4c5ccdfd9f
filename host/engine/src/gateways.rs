//! Gateways: a load balancer if one is wanted, and as many machines as the configuration says.
//!
//! ```text
//! submitted ─ balancer made, replicas ordered ─► provisioning ─ a replica runs ─► running ─┐
//!     └──── balancer refused ────────────────────────┴─ no replica is left ────► failed ───┴─ deletion asked ─► deleted
//! ```
//!
//! Machines have rows and a pipeline of their own, see [`replicas`]. References are stored with the rows and never change,
//! so an order can be repeated after a crash or a lost answer.

pub mod replicas;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dstack_api::config::{Certificate, GatewayConfiguration};
use dstack_api::gateways::{GatewayReplicaStatus as Replica, GatewayStatus as Status};
use dstack_backend_types::GatewayLoadBalancerData;
use jiff::Timestamp;

use crate::changes::{Actor, Changes, CleanupRow, Pipeline};
use crate::ids::{GatewayId, GatewayReplicaId, Ids, ProjectId, UserId};
use crate::job_running::{secs, signed};
use crate::model::{GatewayReplicaRow, GatewayRow};
use crate::names::lowest_unused;
use crate::view::Limits;

/// Delays between two raises of the number of replicas, by attempt, in seconds; the last one repeats.
const DELAYS: [u64; 5] = [60, 120, 300, 600, 1800];
/// After this many raises in a row only an update of the gateway resumes.
const ATTEMPTS: u32 = 15;
/// How long an order without an answer is repeated.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// Between two orders without an answer.
pub(crate) const AGAIN: Duration = Duration::from_secs(15);
/// Between two deletions that failed or are under way.
pub(crate) const END_RETRY: Duration = Duration::from_secs(30);

/// What the decision reads.
#[derive(Debug, Clone)]
pub struct View {
    /// Now.
    pub now: Timestamp,
    /// The gateway.
    pub gateway: Arc<GatewayRow>,
    /// All its replicas, by number, then age; terminated ones included.
    pub replicas: Vec<GatewayReplicaRow>,
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

/// A call of the gateway's backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `create_gateway_load_balancer`, or what an earlier call with the same reference made.
    CreateBalancer,
    /// `terminate_gateway_load_balancer`.
    DeleteBalancer,
}

/// What the backend answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The load balancer is there.
    Balancer(Box<GatewayLoadBalancerData>),
    /// It is gone.
    Deleted,
    /// The provider works on it: ask again.
    NotYet,
    /// Surely nothing was done.
    Refused(String),
    /// No answer: something may have been done.
    Unknown(String),
}

/// Whether a load balancer stands before the machines.
pub fn has_balancer(configuration: &GatewayConfiguration) -> bool {
    configuration.load_balancer.is_some()
        || matches!(configuration.certificate, Some(Certificate::Acm { .. }))
}

/// How many machines are wanted.
pub fn wanted_replicas(configuration: &GatewayConfiguration) -> u32 {
    configuration.replicas.unwrap_or(1)
}

/// Decides the next step of a gateway.
pub fn plan(view: &View, ids: &mut Ids) -> Plan {
    let gateway = &view.gateway;
    if gateway.is_deleted() {
        return Plan::Change(Changes::nothing());
    }
    if gateway.delete_asked {
        return deletion(view);
    }
    match gateway.status {
        Status::Submitted
            if has_balancer(&gateway.configuration) && gateway.load_balancer.is_none() =>
        {
            let mut before = Changes::default();
            if gateway.attempted_at.is_none() {
                before.gateway(gateway).attempted_at = Some(Some(view.now));
            }
            Plan::Call(Call::CreateBalancer, before)
        }
        Status::Submitted => {
            let mut changes = scale(view, ids);
            becomes(&mut changes, gateway, Status::Provisioning, None);
            Plan::Change(changes)
        }
        Status::Provisioning => Plan::Change(provisioning(view)),
        Status::Running => Plan::Change(scale(view, ids)),
        Status::Failed => Plan::Change(Changes::nothing()),
    }
}

fn provisioning(view: &View) -> Changes {
    let mut changes = Changes::default();
    let replicas = &view.replicas;
    if replicas.iter().any(|it| it.status == Replica::Running) {
        becomes(&mut changes, &view.gateway, Status::Running, None);
        changes.look_again = Some(Duration::ZERO);
        return changes;
    }
    // A first machine that ends takes the gateway with it.
    let ended = replicas.iter().find(|it| !it.is_living());
    if let Some(ended) = ended {
        let why = ended.status_message.clone();
        for living in replicas.iter().filter(|it| it.is_living()) {
            replicas::ends(&mut changes, living, Some("the gateway failed".to_owned()));
        }
        let why = why.unwrap_or_else(|| format!("replica {} ended", ended.replica_num));
        becomes(&mut changes, &view.gateway, Status::Failed, Some(why));
    }
    changes
}

/// As many machines as wanted: missing ones with the lowest free numbers, surplus ones least advanced and oldest first.
fn scale(view: &View, ids: &mut Ids) -> Changes {
    let gateway = &view.gateway;
    let mut changes = Changes::default();
    let mut living: Vec<_> = view.replicas.iter().filter(|it| it.is_living()).collect();
    let count = u32::try_from(living.len()).unwrap_or(u32::MAX);
    let wanted = wanted_replicas(&gateway.configuration);
    if count > wanted {
        living.sort_by_key(|it| (rank(it.status), it.created_at, it.replica_num));
        let surplus = usize::try_from(count - wanted).unwrap_or(0);
        for replica in living.into_iter().take(surplus) {
            replicas::ends(&mut changes, replica, None);
        }
        return changes;
    }
    if count == wanted {
        // What was raised has to hold before the count begins anew: a look after the present delay.
        let running = living.iter().all(|it| it.status == Replica::Running);
        if running && gateway.scale_attempt > 0 {
            changes.gateway(gateway).scale_attempt = Some(0);
        }
        return changes;
    }
    if gateway.scale_attempt >= ATTEMPTS {
        return changes;
    }
    if let Some(last) = gateway.scaled_at {
        let at = usize::try_from(gateway.scale_attempt.saturating_sub(1)).unwrap_or(usize::MAX);
        let delay = DELAYS.get(at).or(DELAYS.last()).copied().unwrap_or(60);
        let left = signed(Duration::from_secs(delay)) - secs(view.now, last);
        if left > 0 {
            let left = u64::try_from(left).unwrap_or(delay);
            return Changes::later(Duration::from_secs(left));
        }
    }
    let used: BTreeSet<u32> = living.iter().map(|it| it.replica_num).collect();
    let missing = usize::try_from(wanted - count).unwrap_or(0);
    for number in lowest_unused(&used).take(missing) {
        let row = new_replica(gateway, number, view.now, ids);
        changes.event(
            "Gateway replica created. Status: SUBMITTED",
            &[&row, &**gateway],
        );
        changes.hint(Pipeline::GatewayReplicas, row.id);
        changes.new_gateway_replicas.push(row);
    }
    let attempt = gateway.scale_attempt + 1;
    let patch = changes.gateway(gateway);
    patch.scaled_at = Some(Some(view.now));
    patch.scale_attempt = Some(attempt);
    if attempt == ATTEMPTS {
        changes.event(
            "Gateway made its last attempt to reach the number of replicas; an update of the gateway resumes it",
            &[&**gateway],
        );
    }
    changes
}

fn rank(status: Replica) -> u8 {
    match status {
        Replica::Submitted => 0,
        Replica::Provisioning => 1,
        Replica::Running => 2,
        Replica::Terminating | Replica::Terminated => 3,
    }
}

fn new_replica(
    gateway: &GatewayRow,
    replica_num: u32,
    now: Timestamp,
    ids: &mut Ids,
) -> GatewayReplicaRow {
    GatewayReplicaRow {
        id: GatewayReplicaId(ids.uuid()),
        gateway_id: gateway.id,
        project_id: gateway.project_id,
        name: format!("{}-{replica_num}", gateway.name).into(),
        replica_num,
        status: Replica::Submitted,
        status_message: None,
        created_at: now,
        last_processed_at: now,
        provider_ref: ids.provider_ref().into(),
        attempted_at: None,
        provisioning_data: None,
        connect_tries: 0,
        registered: false,
        first_end_failure_at: None,
    }
}

/// Machines first, then the load balancer, then the row.
fn deletion(view: &View) -> Plan {
    let gateway = &view.gateway;
    let mut changes = Changes::default();
    for replica in view.replicas.iter().filter(|it| it.is_living()) {
        replicas::ends(&mut changes, replica, None);
    }
    if view
        .replicas
        .iter()
        .any(|it| it.status != Replica::Terminated)
    {
        // The last one to go wakes this row.
        return Plan::Change(changes);
    }
    if gateway.load_balancer.is_some() {
        Plan::Call(Call::DeleteBalancer, changes)
    } else if gateway.attempted_at.is_some() && gateway.status != Status::Failed {
        // Only an order that is repeated tells what an order without an answer made.
        Plan::Call(Call::CreateBalancer, changes)
    } else {
        record_deletion(view, &mut changes);
        Plan::Change(changes)
    }
}

/// Turns the backend's answer into changes.
pub fn conclude(view: &View, call: Call, answer: &Answer) -> Changes {
    let gateway = &view.gateway;
    match (call, answer) {
        (Call::CreateBalancer, Answer::Balancer(data)) => {
            let mut changes = Changes::later(Duration::ZERO);
            let made = Arc::new(GatewayLoadBalancerData::clone(data));
            changes.gateway(gateway).load_balancer = Some(Some(made));
            changes
        }
        (Call::CreateBalancer, Answer::NotYet) => Changes::later(AGAIN),
        (Call::CreateBalancer, Answer::Unknown(why)) => {
            let since = gateway.attempted_at.unwrap_or(view.now);
            if secs(view.now, since) < signed(PATIENCE) {
                Changes::later(AGAIN)
            } else {
                no_balancer(view, why, true)
            }
        }
        (Call::CreateBalancer, Answer::Refused(why)) => no_balancer(view, why, false),
        (Call::CreateBalancer, Answer::Deleted) => no_balancer(view, "it does not exist", false),
        (Call::DeleteBalancer, Answer::Deleted | Answer::Balancer(_)) => {
            let mut changes = Changes::default();
            record_deletion(view, &mut changes);
            changes
        }
        (Call::DeleteBalancer, Answer::NotYet) => Changes::later(END_RETRY),
        (Call::DeleteBalancer, Answer::Refused(why) | Answer::Unknown(why)) => {
            balancer_stays(view, why)
        }
    }
}

fn no_balancer(view: &View, why: &str, unsure: bool) -> Changes {
    let gateway = &view.gateway;
    let mut changes = Changes::default();
    if unsure {
        changes.cleanup.push(CleanupRow {
            project_id: gateway.project_id,
            backend: gateway.configuration.backend.clone(),
            region: gateway.configuration.region.clone(),
            provider_ref: gateway.provider_ref.to_string(),
            machine: None,
            not_before: view
                .now
                .saturating_add(view.limits.call_echo)
                .unwrap_or(view.now),
        });
    }
    if gateway.delete_asked {
        record_deletion(view, &mut changes);
    } else {
        let why = format!("the load balancer could not be made: {why}");
        becomes(&mut changes, gateway, Status::Failed, Some(why));
    }
    changes
}

fn balancer_stays(view: &View, why: &str) -> Changes {
    let gateway = &view.gateway;
    let since = gateway.first_end_failure_at;
    if since.is_some_and(|since| secs(view.now, since) >= signed(view.limits.end_patience)) {
        let mut changes = Changes::default();
        record_deletion(view, &mut changes);
        changes.event(
            format!(
                "The provider did not delete the load balancer, which may still cost money: {why}"
            ),
            &[&**gateway],
        );
        return changes;
    }
    let mut changes = Changes::later(END_RETRY);
    if since.is_none() {
        changes.gateway(gateway).first_end_failure_at = Some(Some(view.now));
    }
    changes
}

fn record_deletion(view: &View, changes: &mut Changes) {
    let gateway = &view.gateway;
    changes.gateway(gateway).deleted_at = Some(Some(view.now));
    changes.event("Gateway deleted", &[&**gateway]);
}

fn becomes(changes: &mut Changes, gateway: &GatewayRow, status: Status, message: Option<String>) {
    let (old, new) = (
        gateway.status.as_str().to_uppercase(),
        status.as_str().to_uppercase(),
    );
    let told = message
        .as_deref()
        .map(|message| format!(" ({message})"))
        .unwrap_or_default();
    let patch = changes.gateway(gateway);
    patch.status = Some(status);
    patch.status_message = Some(message);
    changes.event(
        format!("Gateway status changed {old} -> {new}{told}"),
        &[gateway],
    );
}

/// A new gateway. The configuration has its name and no `default`.
pub fn create(
    project_id: ProjectId,
    user_id: UserId,
    name: &str,
    configuration: GatewayConfiguration,
    now: Timestamp,
    ids: &mut Ids,
) -> (GatewayRow, Changes) {
    let row = GatewayRow {
        id: GatewayId(ids.uuid()),
        project_id,
        name: name.into(),
        configuration: Arc::new(configuration),
        status: Status::Submitted,
        status_message: None,
        created_at: now,
        last_processed_at: now,
        provider_ref: ids.provider_ref().into(),
        attempted_at: None,
        load_balancer: None,
        scale_attempt: 0,
        scaled_at: None,
        delete_asked: false,
        first_end_failure_at: None,
        deleted_at: None,
    };
    let mut changes = Changes::default();
    changes.event("Gateway created. Status: SUBMITTED", &[&row]);
    by(&mut changes, user_id);
    changes.hint(Pipeline::Gateways, row.id);
    changes.new_gateways.push(row.clone());
    (row, changes)
}

/// A new configuration of a gateway; the count of replicas is looked at anew. `changed` names the fields for people.
pub fn update(
    gateway: &GatewayRow,
    configuration: GatewayConfiguration,
    changed: &[&str],
    user_id: UserId,
) -> Changes {
    let mut changes = Changes::default();
    let patch = changes.gateway(gateway);
    patch.configuration = Some(Arc::new(configuration));
    patch.scale_attempt = Some(0);
    patch.scaled_at = Some(None);
    changes.event(
        format!("Gateway updated. Changed fields: {}", changed.join(", ")),
        &[gateway],
    );
    by(&mut changes, user_id);
    changes.hint(Pipeline::Gateways, gateway.id);
    changes
}

/// Asks for the end of a gateway; nothing if somebody has asked before.
pub fn delete(gateway: &GatewayRow, user_id: UserId) -> Changes {
    let mut changes = Changes::default();
    if gateway.delete_asked || gateway.is_deleted() {
        return changes;
    }
    changes.gateway(gateway).delete_asked = Some(true);
    changes.event("Gateway marked for deletion", &[gateway]);
    by(&mut changes, user_id);
    changes.hint(Pipeline::Gateways, gateway.id);
    changes
}

/// Tells that a project uses this gateway unless a service names another, or no longer does.
pub fn tell_default(gateway: &GatewayRow, is_default: bool, user_id: UserId) -> Changes {
    let mut changes = Changes::default();
    let verb = if is_default { "set" } else { "unset" };
    changes.event(format!("Gateway {verb} as project default"), &[gateway]);
    by(&mut changes, user_id);
    changes
}

fn by(changes: &mut Changes, user_id: UserId) {
    for event in &mut changes.events {
        event.actor = Actor::User(user_id);
    }
}

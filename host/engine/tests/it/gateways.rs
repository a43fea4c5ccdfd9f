//! Lifecycles, section 8: gateways and their machines.

use std::sync::Arc;
use std::time::Duration;

use dstack_api::gateways::{GatewayReplicaStatus as Replica, GatewayStatus as Status};
use dstack_backend_types::{GatewayLoadBalancerData, GatewayProvisioningData};
use dstack_engine::changes::{Changes, Pipeline};
use dstack_engine::gateways::{self, Answer, Call, Plan, replicas};
use dstack_engine::ids::{GatewayId, GatewayReplicaId, ProjectId, UserId};
use dstack_engine::model::{GatewayReplicaRow, GatewayRow};
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Bed, at};

const USER: UserId = UserId(Uuid::from_u128(2));

struct Gateways {
    bed: Bed,
    id: GatewayId,
}

fn machine() -> GatewayProvisioningData {
    serde_json::from_value(json!({
        "instance_id": "i-1", "ip_address": "10.0.0.1", "region": "north",
    }))
    .unwrap()
}

fn balancer() -> GatewayLoadBalancerData {
    serde_json::from_value(json!({"hostname": "lb.example.com"})).unwrap()
}

impl Gateways {
    fn new(more: Value) -> Self {
        let mut bed = Bed::new(json!({}), json!({}));
        let mut value =
            json!({"type": "gateway", "backend": "vms", "name": "gw", "region": "north"});
        let more = more.as_object().unwrap().clone();
        value.as_object_mut().unwrap().extend(more);
        let configuration = serde_json::from_value(value).unwrap();
        let project = ProjectId(Uuid::from_u128(1));
        let (row, changes) =
            gateways::create(project, USER, "gw", configuration, at(0), &mut bed.ids);
        bed.world.request(changes, at(0)).unwrap();
        Self { bed, id: row.id }
    }

    fn row(&self) -> Arc<GatewayRow> {
        Arc::clone(self.bed.world.gateway(self.id).unwrap())
    }

    fn replicas(&self) -> Vec<GatewayReplicaRow> {
        let view = self.bed.world.gateway_view(self.id, at(0)).unwrap();
        view.replicas
    }

    fn plan(&mut self, now: Timestamp) -> Plan {
        let view = self.bed.world.gateway_view(self.id, now).unwrap();
        gateways::plan(&view, &mut self.bed.ids)
    }

    /// One step without a call.
    fn step(&mut self, now: Timestamp) -> Changes {
        let lease = self.bed.claim(Pipeline::Gateways, self.id.0, now);
        let Plan::Change(changes) = self.plan(now) else {
            panic!("it calls somebody");
        };
        self.bed.world.apply(&lease, changes.clone(), now).unwrap();
        changes
    }

    /// One step with a call.
    fn call(&mut self, now: Timestamp, wanted: Call, answer: &Answer) {
        let lease = self.bed.claim(Pipeline::Gateways, self.id.0, now);
        let Plan::Call(call, before) = self.plan(now) else {
            panic!("it calls nobody");
        };
        assert_eq!(call, wanted);
        self.bed.world.checkpoint(&lease, before, now).unwrap();
        let view = self.bed.world.gateway_view(self.id, now).unwrap();
        let changes = gateways::conclude(&view, call, answer);
        self.bed.world.apply(&lease, changes, now).unwrap();
    }

    /// One step of a replica.
    fn replica(
        &mut self,
        id: GatewayReplicaId,
        now: Timestamp,
        answer: &replicas::Answer,
    ) -> Changes {
        let lease = self.bed.claim(Pipeline::GatewayReplicas, id.0, now);
        let view = self.bed.world.gateway_replica_view(id, now).unwrap();
        let changes = match replicas::plan(&view) {
            replicas::Plan::Change(changes) => changes,
            replicas::Plan::Call(call, before) => {
                self.bed.world.checkpoint(&lease, before, now).unwrap();
                let view = self.bed.world.gateway_replica_view(id, now).unwrap();
                replicas::conclude(&view, &call, answer)
            }
        };
        self.bed.world.apply(&lease, changes.clone(), now).unwrap();
        changes
    }

    /// A gateway with one running machine.
    fn running(more: Value) -> Self {
        let mut it = Self::new(more);
        it.step(at(1));
        for replica in it.replicas() {
            it.replica(replica.id, at(1), &made());
            it.replica(replica.id, at(2), &replicas::Answer::Done);
        }
        it.step(at(3));
        assert_eq!(it.row().status, Status::Running);
        it
    }
}

fn made() -> replicas::Answer {
    replicas::Answer::Made(Box::new(machine()))
}

#[test]
fn section_8_submitted_provisioning_running() {
    let mut it = Gateways::new(json!({}));
    assert_eq!(it.row().status, Status::Submitted);
    it.step(at(1));
    assert_eq!(it.row().status, Status::Provisioning);
    let replica = it.replicas().remove(0);
    assert_eq!(
        (&*replica.name, replica.status),
        ("gw-0", Replica::Submitted)
    );
    it.replica(replica.id, at(1), &made());
    assert_eq!(it.replicas()[0].status, Replica::Provisioning);
    it.replica(replica.id, at(2), &replicas::Answer::Done);
    assert_eq!(it.replicas()[0].status, Replica::Running);
    it.step(at(3));
    assert_eq!(it.row().status, Status::Running);
}

#[test]
fn section_8_failed_when_the_first_replica_fails() {
    let mut it = Gateways::new(json!({}));
    it.step(at(1));
    let id = it.replicas()[0].id;
    let no = replicas::Answer::Refused("no quota".into());
    it.replica(id, at(1), &no);
    assert_eq!(it.replicas()[0].status, Replica::Terminated);
    it.step(at(2));
    let row = it.row();
    assert_eq!(row.status, Status::Failed);
    assert_eq!(
        row.status_message.as_deref(),
        Some("the machine could not be made: no quota")
    );
}

#[test]
fn section_8_connect_thirty_tries_every_ten_seconds_then_the_machine_is_ended() {
    let mut it = Gateways::new(json!({}));
    it.step(at(1));
    let id = it.replicas()[0].id;
    it.replica(id, at(1), &made());
    let silence = replicas::Answer::Unknown("connection refused".into());
    let mut now = 2;
    for number in 1..30 {
        let changes = it.replica(id, at(now), &silence);
        assert_eq!(changes.look_again, Some(Duration::from_secs(10)));
        assert_eq!(it.replicas()[0].connect_tries, number);
        now += 10;
    }
    it.replica(id, at(now), &silence);
    let replica = it.replicas().remove(0);
    assert_eq!(replica.status, Replica::Terminating);
    let why = "the agent on the machine did not answer within 300 s: connection refused";
    assert_eq!(replica.status_message.as_deref(), Some(why));
    it.replica(id, at(now), &replicas::Answer::Done);
    assert_eq!(it.replicas()[0].status, Replica::Terminated);
    it.step(at(now));
    assert_eq!(it.row().status, Status::Failed);
    assert_eq!(it.row().status_message.as_deref(), Some(why));
}

#[test]
fn section_8_balancer_comes_first_and_a_refused_one_fails_the_gateway() {
    let certificate = json!({"certificate": {"type": "acm", "arn": "a"}});
    let mut it = Gateways::new(certificate.clone());
    it.call(
        at(1),
        Call::CreateBalancer,
        &Answer::Balancer(Box::new(balancer())),
    );
    it.step(at(1));
    assert_eq!(it.row().status, Status::Provisioning);
    let mut it = Gateways::new(certificate);
    it.call(
        at(1),
        Call::CreateBalancer,
        &Answer::Refused("no subnet".into()),
    );
    assert_eq!(it.row().status, Status::Failed);
}

#[test]
fn section_8_balancer_replicas_register_and_deregister() {
    let mut it = Gateways::new(json!({"certificate": {"type": "acm", "arn": "a"}}));
    it.call(
        at(1),
        Call::CreateBalancer,
        &Answer::Balancer(Box::new(balancer())),
    );
    it.step(at(1));
    let id = it.replicas()[0].id;
    it.replica(id, at(1), &made());
    it.replica(id, at(2), &replicas::Answer::Done);
    it.replica(id, at(3), &replicas::Answer::Done);
    assert!(it.replicas()[0].registered);
    let changes = gateways::delete(&it.row(), USER);
    it.bed.world.request(changes, at(4)).unwrap();
    it.step(at(4));
    it.replica(id, at(5), &replicas::Answer::Done);
    let replica = it.replicas().remove(0);
    assert!(!replica.registered && replica.status == Replica::Terminating);
    it.replica(id, at(6), &replicas::Answer::Done);
    it.call(at(7), Call::DeleteBalancer, &Answer::Deleted);
    assert!(it.row().is_deleted());
}

#[test]
fn section_8_scale_out_takes_the_lowest_free_numbers_with_growing_delays() {
    let mut it = Gateways::running(json!({"replicas": 2, "certificate": null}));
    let first = it.replicas()[0].id;
    let mut changes = Changes::default();
    changes.gateway_replica(&it.replicas()[0]).status = Some(Replica::Terminated);
    changes.hint(Pipeline::Gateways, it.id);
    it.bed.world.request(changes, at(20)).unwrap();
    let wait = it.step(at(20));
    assert_eq!(
        wait.look_again,
        Some(Duration::from_secs(41)),
        "60 s after the last raise"
    );
    let raised = it.step(at(61));
    assert_eq!(raised.new_gateway_replicas.len(), 1);
    assert_eq!(raised.new_gateway_replicas[0].replica_num, 0);
    assert_ne!(raised.new_gateway_replicas[0].id, first);
}

#[test]
fn section_8_scale_out_stops_after_fifteen_attempts() {
    let mut it = Gateways::running(json!({"replicas": 2, "certificate": null}));
    let mut changes = Changes::default();
    changes.gateway_replica(&it.replicas()[0]).status = Some(Replica::Terminated);
    changes.gateway(&it.row()).scale_attempt = Some(15);
    changes.hint(Pipeline::Gateways, it.id);
    it.bed.world.request(changes, at(20)).unwrap();
    let nothing = it.step(at(1_000_000));
    assert!(nothing.is_quiet() && nothing.look_again.is_none());
    let row = it.row();
    let configuration = (*row.configuration).clone();
    let update = gateways::update(&row, configuration, &["replicas"], USER);
    it.bed.world.request(update, at(1_000_001)).unwrap();
    assert_eq!(it.step(at(1_000_001)).new_gateway_replicas.len(), 1);
}

#[test]
fn section_8_scale_in_ends_the_least_advanced_and_oldest_first() {
    let mut it = Gateways::running(json!({"replicas": 3, "certificate": null}));
    let mut changes = Changes::default();
    let all = it.replicas();
    changes.gateway_replica(&all[2]).status = Some(Replica::Submitted);
    it.bed.world.request(changes, at(20)).unwrap();
    let row = it.row();
    let mut configuration = (*row.configuration).clone();
    configuration.replicas = Some(1);
    let update = gateways::update(&row, configuration, &["replicas"], USER);
    it.bed.world.request(update, at(21)).unwrap();
    it.step(at(21));
    let left: Vec<u32> = it
        .replicas()
        .iter()
        .filter(|replica| replica.is_living())
        .map(|replica| replica.replica_num)
        .collect();
    assert_eq!(left, [1], "number 2 was submitted, number 0 is older");
}

#[test]
fn section_8_delete_replicas_first_then_the_row() {
    let mut it = Gateways::running(json!({}));
    let changes = gateways::delete(&it.row(), USER);
    it.bed.world.request(changes, at(10)).unwrap();
    it.step(at(10));
    assert!(!it.row().is_deleted());
    let id = it.replicas()[0].id;
    it.replica(id, at(11), &replicas::Answer::NotYet);
    assert_eq!(it.replicas()[0].status, Replica::Terminating);
    it.replica(id, at(20), &replicas::Answer::Done);
    it.step(at(20));
    assert!(it.row().is_deleted());
    assert!(gateways::delete(&it.row(), USER).is_quiet());
}

#[test]
fn a_replica_that_ends_before_its_order_was_answered_is_looked_for() {
    let mut it = Gateways::new(json!({}));
    it.step(at(1));
    let id = it.replicas()[0].id;
    it.replica(id, at(1), &replicas::Answer::Unknown("broken".into()));
    let changes = gateways::delete(&it.row(), USER);
    it.bed.world.request(changes, at(2)).unwrap();
    it.step(at(2));
    it.replica(id, at(2), &made());
    assert_eq!(it.replicas()[0].status, Replica::Terminating);
    it.replica(id, at(3), &replicas::Answer::Done);
    assert_eq!(it.replicas()[0].status, Replica::Terminated);
}

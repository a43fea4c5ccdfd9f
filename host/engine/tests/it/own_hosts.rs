//! Own hosts: prepared, watched for ever, cleared; hosts come and go.

use std::sync::Arc;

use dstack_api::fleets::{FleetSpec, FleetStatus};
use dstack_api::instances::{InstanceStatus as Status, InstanceTerminationReason as Reason};
use dstack_backend_types::CpuArchitecture;
use dstack_engine::changes::Changes;
use dstack_engine::ids::{FleetId, Ids, InstanceId, ProjectId, UserId};
use dstack_engine::instances::{Answer, Ask, Plan, conclude, plan};
use dstack_engine::model::InstanceRow;
use dstack_engine::ssh_hosts::{self, HostFacts};
use dstack_engine::world::{Project, World};
use dstack_engine::{audit, fleets, new_fleet};
use jiff::Timestamp;
use serde_json::json;

use crate::support::at;

struct Bed {
    world: World,
    ids: Ids,
    fleet: FleetId,
}

fn spec(hosts: &serde_json::Value) -> FleetSpec {
    let ssh = json!({"user": "u", "identity_file": "k", "hosts": hosts});
    let configuration = json!({"type": "fleet", "name": "f", "ssh_config": ssh});
    serde_json::from_value(json!({"configuration": configuration, "profile": {"name": "default"}}))
        .unwrap()
}

fn facts() -> HostFacts {
    HostFacts {
        arch: CpuArchitecture::X86,
        gpu_vendor: "none".into(),
        gpu_name: String::new(),
        gpu_memory_mib: 0,
        gpu_count: 0,
        gpu_driver: None,
        addresses: vec!["10.0.0.5/24".into()],
        disk_bytes: 100 << 30,
        cpus: 8,
        memory_bytes: 32 << 30,
        backend_data: None,
    }
}

fn failed(is_final: bool, was_entered: bool) -> Answer {
    Answer::Unprepared {
        why: "no sudo".into(),
        is_final,
        was_entered,
    }
}

impl Bed {
    fn new(hosts: &serde_json::Value) -> Self {
        let mut ids = Ids::from_number(1);
        let (project, user) = (ProjectId(ids.uuid()), UserId(ids.uuid()));
        let mut world = World::default();
        let row = Project {
            name: "main".into(),
            deleted: false,
        };
        world.projects.insert(project, row);
        let (fleet, changes) = new_fleet::create(project, user, "f", spec(hosts), at(0), &mut ids);
        world.request(changes, at(0)).unwrap();
        Self { world, ids, fleet }
    }

    /// The not deleted instances by number.
    fn hosts(&self) -> Vec<InstanceRow> {
        let mut all: Vec<_> = self.world.instances_of(self.fleet).cloned().collect();
        all.sort_by_key(|row| row.instance_num);
        all
    }

    /// One step of the first host; answers the question with `answer`.
    fn step(&mut self, id: InstanceId, now: Timestamp, answer: &Answer) -> Option<Ask> {
        let mut view = self.world.instance_view(id, now).unwrap();
        view.now = now;
        let (ask, changes): (Option<Ask>, Changes) = match plan(&view, &mut self.ids) {
            Plan::Change(changes) => (None, changes),
            Plan::Ask(ask) => {
                let changes = conclude(&view, &ask, answer);
                (Some(ask), changes)
            }
            other => panic!("{other:?}"),
        };
        self.world.request(changes, now).unwrap();
        assert_eq!(audit::world(&self.world, now), []);
        ask
    }

    fn fleet_step(&mut self, now: Timestamp) {
        let view = self.world.fleet_view(self.fleet, now).unwrap();
        let changes = fleets::plan(&view, &mut self.ids);
        self.world.request(changes, now).unwrap();
    }
}

#[test]
fn a_host_is_prepared_once_and_never_given_up() {
    let mut bed = Bed::new(&json!(["a", "b"]));
    let [a, b] = bed.hosts().try_into().unwrap();
    assert_eq!(
        (a.ssh_host.as_deref(), b.ssh_host.as_deref()),
        (Some("a:22"), Some("b:22"))
    );
    assert_eq!((a.instance_num, b.instance_num), (0, 1));
    // A short gap says nothing; the reason is kept where people look.
    let ask = bed.step(a.id, at(1), &failed(false, false));
    assert_eq!(ask, Some(Ask::Prepare));
    assert_eq!(
        bed.hosts()[0].termination_reason_message.as_deref(),
        Some("no sudo")
    );
    bed.step(a.id, at(5), &Answer::Prepared(Box::new(facts())));
    let ready = bed.hosts().remove(0);
    assert_eq!((ready.status, ready.total_blocks), (Status::Idle, Some(1)));
    assert_eq!(ready.termination_reason_message, None);
    let data = ready.provisioning_data.unwrap();
    assert_eq!(
        (data.hostname.as_deref(), data.internal_ip.as_deref()),
        (Some("a"), Some("10.0.0.5"))
    );

    // Several failed checks make it unreachable; no time makes it go.
    bed.step(a.id, at(20), &Answer::Failed("x".into()));
    assert!(!bed.hosts()[0].unreachable);
    bed.step(a.id, at(24), &Answer::Failed("x".into()));
    assert!(!bed.hosts()[0].unreachable);
    bed.step(a.id, at(40), &Answer::Failed("x".into()));
    assert!(bed.hosts()[0].unreachable);
    let ask = bed.step(a.id, at(90_000), &Answer::Failed("x".into()));
    assert!(matches!(ask, Some(Ask::Health { .. })), "{ask:?}");
    bed.step(a.id, at(90_010), &Answer::Healthy(None));
    let back = bed.hosts().remove(0);
    assert!(!back.unreachable && back.status == Status::Idle);
}

#[test]
fn errors_that_need_help_end_soon_and_others_after_ten_minutes() {
    let mut bed = Bed::new(&json!(["a", "b", "c"]));
    let [a, b, c] = bed.hosts().try_into().unwrap();
    bed.step(a.id, at(3), &failed(true, false));
    assert_eq!(
        bed.hosts()[0].status,
        Status::Pending,
        "it may just have booted"
    );
    bed.step(a.id, at(20), &failed(true, false));
    let ended = bed.hosts().remove(0);
    assert_eq!(
        (ended.status, ended.termination_reason),
        (Status::Terminated, Some(Reason::Error))
    );
    assert!(!ended.deleted, "it stays in sight");

    // Where something was put, it is taken away first.
    bed.step(b.id, at(20), &failed(true, true));
    assert_eq!(bed.hosts()[1].status, Status::Terminating);
    let ask = bed.step(b.id, at(21), &Answer::Ended);
    assert_eq!(ask, Some(Ask::Clear));
    let ended = bed.hosts().remove(1);
    assert_eq!(
        (ended.status, ended.termination_reason_message.as_deref()),
        (Status::Terminated, Some("no sudo"))
    );

    bed.step(c.id, at(599), &failed(false, false));
    assert_eq!(bed.hosts()[2].status, Status::Pending);
    bed.step(c.id, at(601), &failed(false, false));
    let ended = bed.hosts().remove(2);
    assert_eq!(ended.termination_reason, Some(Reason::ProvisioningTimeout));
    assert!(
        ended
            .termination_reason_message
            .unwrap()
            .contains("no sudo")
    );

    // The fleet goes with them.
    let view = bed.world.fleet_view(bed.fleet, at(700)).unwrap();
    let changes = fleets::delete(&view, None).unwrap();
    bed.world.request(changes, at(700)).unwrap();
    bed.fleet_step(at(701));
    assert_eq!(
        bed.world.fleet(bed.fleet).unwrap().status,
        FleetStatus::Terminated
    );
    assert!(bed.hosts().is_empty());
}

#[test]
fn an_update_adds_removes_and_tries_again() {
    let mut bed = Bed::new(&json!(["a", "b"]));
    let [a, b] = bed.hosts().try_into().unwrap();
    bed.step(a.id, at(1), &Answer::Prepared(Box::new(facts())));
    bed.step(b.id, at(20), &failed(true, false));
    let update = |bed: &mut Bed, hosts: serde_json::Value, now| {
        let view = bed.world.fleet_view(bed.fleet, now).unwrap();
        let changes = ssh_hosts::update(&view, &spec(&hosts), &mut bed.ids).unwrap();
        bed.world.request(changes, now).unwrap();
        let old = Arc::clone(&view.fleet);
        let changes = new_fleet::update(
            &old,
            spec(&hosts),
            &["ssh_config".into()],
            UserId(a.project_id.0),
        );
        bed.world.request(changes, now).unwrap();
    };
    update(&mut bed, json!(["a", "b", "c"]), at(30));
    let names: Vec<_> = bed
        .hosts()
        .iter()
        .map(|row| (row.ssh_host.clone().unwrap(), row.status))
        .collect();
    let is = |name: &str, status| (Arc::from(name), status);
    assert_eq!(
        names,
        [
            is("a:22", Status::Idle),
            is("b:22", Status::Pending),
            is("c:22", Status::Pending)
        ]
    );
    assert_eq!(bed.hosts()[0].id, a.id);
    update(&mut bed, json!(["c"]), at(40));
    let by_name = |bed: &Bed, name: &str| {
        bed.hosts()
            .into_iter()
            .find(|row| row.ssh_host.as_deref() == Some(name))
    };
    assert_eq!(by_name(&bed, "a:22").unwrap().status, Status::Terminating);
    // A host that does not answer is waited for, but not for ever.
    let unreachable = failed(false, false);
    bed.step(a.id, at(41), &unreachable);
    bed.step(a.id, at(60), &unreachable);
    assert!(by_name(&bed, "a:22").is_some());
    bed.step(a.id, at(80), &unreachable);
    assert!(by_name(&bed, "a:22").is_none());
    let told = bed
        .world
        .events
        .iter()
        .any(|(_, event)| event.message.contains("was not cleared"));
    assert!(told);
    // One that was never entered goes at once.
    let again = by_name(&bed, "b:22").unwrap().id;
    bed.step(again, at(41), &unreachable);
    assert!(by_name(&bed, "b:22").is_none());
}

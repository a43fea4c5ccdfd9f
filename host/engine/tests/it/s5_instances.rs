//! `lifecycles`, section 5: instances.

use dstack_api::instances::{
    HealthStatus, InstanceStatus as S, InstanceTerminationReason as Reason,
};
use dstack_engine::changes::Changes;
use dstack_engine::ids::InstanceId;
use dstack_engine::instances::{self, Answer, Ask, Conclusion, Plan};
use dstack_engine::job_submitted::Attempt;
use dstack_engine::offers;
use serde_json::{Value, json};

use crate::support::{Bed, at, machine, offer};

/// A fleet that wants one machine.
fn wished(fleet: Value) -> (Bed, InstanceId) {
    let mut keys = json!({"nodes": 1});
    keys.as_object_mut()
        .unwrap()
        .extend(fleet.as_object().unwrap().clone());
    let bed = Bed::new(keys, json!({"fleets": ["other"]}));
    let id = bed.world.instances_of(bed.fleet).next().unwrap().id;
    (bed, id)
}

fn status(changes: &Changes) -> Option<(S, Option<Reason>)> {
    let patch = changes.instances.first()?;
    Some((patch.status?, patch.termination_reason.flatten()))
}

fn ends(plan: Plan) -> Option<(S, Option<Reason>)> {
    match plan {
        Plan::Change(changes) => status(&changes),
        _ => None,
    }
}

fn conclude(bed: &Bed, id: InstanceId, ask: &Ask, answer: &Answer, now: i64) -> Changes {
    instances::conclude(&bed.world.instance_view(id, at(now)).unwrap(), ask, answer)
}

#[test]
fn s5_pending_becomes_provisioning_by_an_offer_or_ends() {
    for (answers, wanted) in [
        (
            vec![
                Attempt::Refused("no".into()),
                Attempt::Made(Box::new(machine(&offer(2.0, false), None))),
            ],
            (S::Provisioning, None),
        ),
        (
            vec![Attempt::Refused("no".into()), Attempt::Refused("no".into())],
            (S::Terminated, Some(Reason::NoOffers)),
        ),
    ] {
        let (mut bed, id) = wished(json!({}));
        let mut view = bed.world.instance_view(id, at(1)).unwrap();
        let Plan::AskOffers {
            wanted: need,
            sharing,
            ..
        } = instances::plan(&view, &mut bed.ids)
        else {
            panic!()
        };
        let list = vec![offer(1.0, false), offer(2.0, false)];
        view.offers = Some(offers::select(vec![list], &need, sharing, 100));
        let Plan::Provision(order) = instances::plan(&view, &mut bed.ids) else {
            panic!()
        };
        assert_eq!(order.offers.len(), 2);
        let Conclusion::Done(changes) =
            instances::conclude_provision(&view, &order, &answers, &mut bed.ids)
        else {
            panic!()
        };
        assert_eq!(status(&changes), Some(wanted));
    }
}

#[test]
fn s5_pending_without_offers_or_backends_ends() {
    let (mut bed, id) = wished(json!({}));
    let mut view = bed.world.instance_view(id, at(1)).unwrap();
    view.offers = Some(Vec::new());
    assert_eq!(
        ends(instances::plan(&view, &mut bed.ids)),
        Some((S::Terminated, Some(Reason::NoOffers)))
    );
    let (mut bed, id) = wished(json!({"backends": ["aws"]}));
    let plan = bed.plan_instance(id, at(1));
    assert_eq!(ends(plan), Some((S::Terminated, Some(Reason::NoOffers))));
}

/// A machine of the fleet that stands as asked.
fn made(status: S) -> (Bed, InstanceId) {
    let mut bed = Bed::new(json!({}), json!({"fleets": ["other"]}));
    let id = bed.idle_machine(&offer(1.0, false), 0);
    bed.set_instance(id, |row| {
        row.status = status;
        row.started_at = Some(at(0));
        row.idle_limit = Some(300);
    });
    (bed, id)
}

#[test]
fn s5_ends_by_the_clock_and_by_rows() {
    type Change = fn(&mut dstack_engine::model::InstanceRow);
    let table: &[(&str, S, Change, i64, Option<Reason>)] = &[
        (
            "provisioning without an address too long",
            S::Provisioning,
            |row| {
                row.provisioning_data =
                    Some(std::sync::Arc::new(machine(&offer(1.0, false), None)));
            },
            601,
            Some(Reason::ProvisioningTimeout),
        ),
        (
            "provisioning not reachable too long",
            S::Provisioning,
            |_| {},
            601,
            Some(Reason::ProvisioningTimeout),
        ),
        ("provisioning in time", S::Provisioning, |_| {}, 600, None),
        (
            "provisioning without data",
            S::Provisioning,
            |row| row.provisioning_data = None,
            1,
            Some(Reason::Error),
        ),
        (
            "idle for the time",
            S::Idle,
            |_| {},
            300,
            Some(Reason::IdleTimeout),
        ),
        ("not idle long enough", S::Idle, |_| {}, 299, None),
        (
            "idle time counts from the last job",
            S::Idle,
            |row| row.last_job_at = Some(at(100)),
            399,
            None,
        ),
        (
            "then it is over",
            S::Idle,
            |row| row.last_job_at = Some(at(100)),
            400,
            Some(Reason::IdleTimeout),
        ),
        (
            "kept for good",
            S::Idle,
            |row| row.idle_limit = None,
            9_999_999,
            None,
        ),
        (
            "unreachable for 20 minutes",
            S::Idle,
            |row| {
                row.idle_limit = None;
                row.give_up_at = Some(at(1200));
            },
            1200,
            Some(Reason::Unreachable),
        ),
        (
            "unreachable, busy",
            S::Busy,
            |row| {
                row.busy_blocks = 1;
                row.give_up_at = Some(at(1200));
            },
            1200,
            Some(Reason::Unreachable),
        ),
        (
            "unreachable, but in time",
            S::Busy,
            |row| {
                row.busy_blocks = 1;
                row.give_up_at = Some(at(1200));
            },
            1199,
            None,
        ),
    ];
    for (row, status, change, now, wanted) in table {
        let (mut bed, id) = made(*status);
        bed.set_instance(id, change);
        let plan = bed.plan_instance(id, at(*now));
        assert_eq!(
            ends(plan),
            wanted.map(|reason| (S::Terminating, Some(reason))),
            "{row}"
        );
    }
}

#[test]
fn s5_provisioning_ends_when_the_provider_says_so() {
    let (mut bed, id) = made(S::Provisioning);
    bed.set_instance(id, |row| {
        row.provisioning_data = Some(std::sync::Arc::new(machine(&offer(1.0, false), None)))
    });
    let Plan::Ask(ask) = bed.plan_instance(id, at(1)) else {
        panic!()
    };
    let changes = conclude(&bed, id, &ask, &Answer::Lost("terminated".into()), 1);
    assert_eq!(
        status(&changes),
        Some((S::Terminating, Some(Reason::Error)))
    );
    let changes = conclude(&bed, id, &ask, &Answer::Failed("busy".into()), 1);
    assert!(
        changes.is_quiet() && changes.look_again.is_some(),
        "asked again"
    );
}

#[test]
fn s5_provisioning_becomes_idle_or_busy() {
    for (blocks, wanted) in [(0, S::Idle), (1, S::Busy)] {
        let (mut bed, id) = made(S::Provisioning);
        bed.set_instance(id, |row| row.busy_blocks = blocks);
        let Plan::Ask(ask) = bed.plan_instance(id, at(1)) else {
            panic!()
        };
        let changes = conclude(&bed, id, &ask, &Answer::Healthy(None), 1);
        assert_eq!(status(&changes), Some((wanted, None)));
        assert_eq!(changes.freed.len(), usize::from(wanted == S::Idle));
    }
    // Containers: as soon as the address is known.
    let (mut bed, id) = made(S::Provisioning);
    bed.set_instance(id, |row| {
        let mut offer = (**row.offer.as_ref().unwrap()).clone();
        offer.instance_runtime = dstack_backend_types::InstanceRuntime::Runner;
        row.offer = Some(std::sync::Arc::new(offer));
        row.busy_blocks = 1;
    });
    let plan = bed.plan_instance(id, at(1));
    assert_eq!(ends(plan), Some((S::Busy, None)));
}

#[test]
fn s5_silence_is_noticed_forgiven_and_given_up() {
    let (mut bed, id) = made(S::Idle);
    let ask = Ask::Health { report: false };
    let silent = Answer::Failed("no route".into());
    bed.world
        .request(conclude(&bed, id, &ask, &silent, 10), at(10))
        .unwrap();
    assert_eq!(bed.world.instance(id).unwrap().give_up_at, Some(at(1210)));
    bed.world
        .request(conclude(&bed, id, &ask, &silent, 30), at(30))
        .unwrap();
    assert!(bed.world.instance(id).unwrap().unreachable);
    let back = conclude(&bed, id, &ask, &Answer::Healthy(None), 40);
    assert_eq!(back.freed, [bed.fleet], "who waits may take it");
    bed.world.request(back, at(40)).unwrap();
    let row = bed.world.instance(id).unwrap();
    assert_eq!((row.unreachable, row.give_up_at), (false, None));
    // Somebody else answers at its address.
    let changes = conclude(&bed, id, &ask, &Answer::Lost("another host key".into()), 41);
    assert_eq!(
        status(&changes),
        Some((S::Terminating, Some(Reason::Unreachable)))
    );
}

#[test]
fn s5_health_is_asked_every_minute_and_changes_are_told() {
    let (mut bed, id) = made(S::Idle);
    for (last, now, report) in [(None, 1, true), (Some(1), 60, false), (Some(1), 61, true)] {
        bed.set_instance(id, |row| row.health_checked_at = last.map(at));
        assert!(
            matches!(bed.plan_instance(id, at(now)), Plan::Ask(Ask::Health { report: asked }) if asked == report)
        );
    }
    let answer = Answer::Healthy(Some((HealthStatus::Failure, Some("xid 79".into()))));
    let changes = conclude(&bed, id, &Ask::Health { report: true }, &answer, 70);
    assert!(
        changes
            .events
            .iter()
            .any(|event| event.message == "Instance health changed healthy -> failure: xid 79")
    );
}

#[test]
fn s5_terminated_only_when_the_provider_confirms() {
    let (mut bed, id) = made(S::Terminating);
    bed.set_instance(id, |row| row.termination_reason = Some(Reason::IdleTimeout));
    let Plan::Ask(ask) = bed.plan_instance(id, at(1)) else {
        panic!()
    };
    assert!(matches!(ask, Ask::Terminate(_)));
    for answer in [
        Answer::Failed("500".into()),
        Answer::NotYet,
        Answer::Healthy(None),
    ] {
        let changes = conclude(&bed, id, &ask, &answer, 1);
        assert!(
            changes.instances.iter().all(|patch| patch.status.is_none()),
            "{answer:?}"
        );
        assert!(changes.look_again.is_some(), "{answer:?}");
    }
    // Every 30 s for 15 minutes, then rarely, for ever.
    for (since, seconds) in [
        (None, 30),
        (Some(0), 30),
        (Some(-900), 30),
        (Some(-901), 300),
    ] {
        bed.set_instance(id, |row| row.first_end_failure_at = since.map(at));
        let changes = conclude(&bed, id, &ask, &Answer::Failed("500".into()), 0);
        assert_eq!(changes.look_again.unwrap().as_secs(), seconds, "{since:?}");
    }
    for answer in [Answer::Ended, Answer::Lost("not found".into())] {
        let changes = conclude(&bed, id, &ask, &answer, 1);
        assert_eq!(
            status(&changes),
            Some((S::Terminated, Some(Reason::IdleTimeout))),
            "{answer:?}"
        );
        assert_eq!(changes.instances[0].deleted, Some(true));
        assert_eq!(changes.freed, [bed.fleet], "there is room for another one");
    }
}

#[test]
fn s5_deletion_ends_any_instance_that_is_not_in_use() {
    for (status, allowed) in [
        (S::Pending, true),
        (S::Provisioning, true),
        (S::Idle, true),
        (S::Busy, false),
    ] {
        let (mut bed, id) = made(status);
        bed.set_instance(id, |row| row.busy_blocks = u32::from(status == S::Busy));
        let view = bed.world.fleet_view(bed.fleet, at(1)).unwrap();
        let done = dstack_engine::fleets::delete(&view, Some(&[0]));
        match done {
            Ok(changes) => assert!(
                allowed
                    && changes.instances[0].termination_reason
                        == Some(Some(Reason::TerminatedByUser)),
                "{status}"
            ),
            Err(_) => assert!(!allowed, "{status}"),
        }
    }
}

//! `lifecycles`, section 4: assignment and provisioning of submitted jobs.

use dstack_api::instances::{HealthStatus, InstanceStatus};
use dstack_api::jobs::{JobStatus as J, JobTerminationReason as Reason};
use dstack_engine::changes::{Changes, Guard};
use dstack_engine::job_submitted::{self, Attempt, Conclusion, Plan};
use dstack_engine::view::FleetOffers;
use dstack_engine::{new_fleet, offers};
use serde_json::{Value, json};

use crate::support::{Bed, at, changes_of, machine, offer, small};

fn reason(changes: &Changes) -> (Option<Reason>, String) {
    let patch = changes.jobs.first();
    let message = patch
        .and_then(|p| p.termination_reason_message.clone())
        .flatten();
    (
        patch.and_then(|p| p.termination_reason).flatten(),
        message.unwrap_or_default(),
    )
}

fn no_capacity(plan: Plan) -> String {
    let (reason, message) = reason(&changes_of(plan));
    assert_eq!(reason, Some(Reason::FailedToStartDueToNoCapacity));
    message
}

#[test]
fn s4_order_priority_then_age() {
    // The statement that claims is tested in the store; here: the row that it reads.
    let bed = Bed::new(json!({}), json!({"priority": 80}));
    assert_eq!(bed.row().priority, 80);
}

#[test]
fn s4_preconditions_workers_wait_for_job_0_and_their_release() {
    let mut bed = Bed::new(json!({"placement": "cluster"}), json!({"nodes": 2}));
    let worker = bed.job(1);
    let plan = bed.plan_job(worker, at(1));
    assert!(changes_of(plan).is_quiet());
    let first = bed.job(0);
    bed.place(first, &offer(1.0, false), at(1));
    assert!(matches!(bed.plan_job(worker, at(2)), Plan::AskOffers(_)));
}

#[test]
fn s4_release_group_after_group() {
    let groups = json!([
        {"name": "a", "nodes": 2, "commands": ["a"], "resources": small()},
        {"name": "b", "nodes": 2, "commands": ["b"], "resources": small()},
    ]);
    let mut bed = Bed::new(
        json!({"placement": "cluster", "nodes": "0..9"}),
        json!({"groups": groups, "commands": []}),
    );
    let released = |bed: &Bed| -> Vec<u32> {
        let mut nums: Vec<u32> = bed
            .world
            .jobs_of_run(bed.run)
            .filter(|j| j.released)
            .map(|j| j.job_num)
            .collect();
        nums.sort_unstable();
        nums
    };
    assert_eq!(released(&bed), [0]);
    for (placed, then) in [
        (0, vec![0, 1, 2]),
        (1, vec![0, 1, 2]),
        (2, vec![0, 1, 2, 3]),
    ] {
        let id = bed.job(placed);
        bed.place(id, &offer(1.0, false), at(1));
        assert_eq!(released(&bed), then, "after job {placed}");
    }
}

#[test]
fn s4_candidate_fleets() {
    // Row, fleet's keys, run's keys, whether backends are asked.
    let table = [
        ("any fleet", json!({}), json!({}), true),
        ("named", json!({}), json!({"fleets": ["f"]}), true),
        (
            "another is named",
            json!({}),
            json!({"fleets": ["other"]}),
            false,
        ),
        (
            "multi-node needs a cluster",
            json!({}),
            json!({"nodes": 2}),
            false,
        ),
        (
            "multi-node in a cluster",
            json!({"placement": "cluster"}),
            json!({"nodes": 2}),
            true,
        ),
        (
            "too small",
            json!({"placement": "cluster", "nodes": "0..1"}),
            json!({"nodes": 2}),
            false,
        ),
        (
            "fleet and run contradict",
            json!({"regions": ["eu"]}),
            json!({"regions": ["us"]}),
            true,
        ),
        (
            "backends without a common one",
            json!({"backends": ["vms"]}),
            json!({"backends": ["aws"]}),
            false,
        ),
    ];
    for (row, fleet, run, asked) in table {
        let mut bed = Bed::new(fleet, run);
        let id = bed.job(0);
        let plan = bed.plan_job(id, at(1));
        if asked {
            assert!(matches!(plan, Plan::AskOffers(_)), "{row}: {plan:?}");
        } else {
            no_capacity(plan);
        }
    }
}

#[test]
fn s4_no_fleet_messages() {
    let mut bed = Bed::new(json!({}), json!({"fleets": ["other"]}));
    let id = bed.job(0);
    let plan = bed.plan_job(id, at(1));
    assert!(no_capacity(plan).starts_with("No matching fleet found"));
}

#[test]
fn s4_choice_and_pool() {
    // An idle machine before any offer, the cheapest first.
    let mut bed = Bed::new(json!({}), json!({}));
    bed.idle_machine(&offer(3.0, false), 0);
    let cheap = bed.idle_machine(&offer(2.0, false), 1);
    let id = bed.job(0);
    let changes = changes_of(bed.plan_job(id, at(1)));
    assert_eq!(changes.jobs[0].instance_id, Some(Some(cheap)));
    assert_eq!(changes.jobs[0].status, Some(J::Provisioning));
    assert!(changes.guards.contains(&Guard::InstanceHasRoom(cheap, 1)));
}

#[test]
fn s4_reuse_only_makes_nothing() {
    let mut bed = Bed::new(json!({}), json!({"creation_policy": "reuse"}));
    let id = bed.job(0);
    let plan = bed.plan_job(id, at(1));
    no_capacity(plan);
    let machine = bed.idle_machine(&offer(3.0, false), 0);
    let changes = changes_of(bed.plan_job(id, at(1)));
    assert_eq!(changes.jobs[0].instance_id, Some(Some(machine)));
}

#[test]
fn s4_targeted_instances() {
    for (selector, wanted) in [
        (json!("f-1"), Some(1)),
        (json!({"name": "f-0"}), Some(0)),
        (json!("f-7"), None),
    ] {
        let mut bed = Bed::new(json!({}), json!({"instances": [selector]}));
        let ids =
            [0, 1].map(|number| bed.idle_machine(&offer(f64::from(number) + 1.0, false), number));
        let id = bed.job(0);
        let plan = bed.plan_job(id, at(1));
        match wanted {
            Some(number) => {
                let changes = changes_of(plan);
                assert_eq!(
                    changes.jobs[0].instance_id,
                    Some(Some(ids[number])),
                    "{selector}"
                );
            }
            None => drop(no_capacity(plan)),
        }
    }
}

#[test]
fn s4_instance_filter() {
    type Change = fn(&mut dstack_engine::model::InstanceRow);
    let table: &[(&str, Change, bool)] = &[
        ("as it is", |_| {}, true),
        ("unreachable", |row| row.unreachable = true, false),
        (
            "health is failure",
            |row| row.health = HealthStatus::Failure,
            false,
        ),
        (
            "health is warning",
            |row| row.health = HealthStatus::Warning,
            true,
        ),
        ("blocks unknown", |row| row.total_blocks = None, false),
        ("no free block", |row| row.busy_blocks = 1, false),
        (
            "terminating",
            |row| row.status = InstanceStatus::Terminating,
            false,
        ),
        ("deleted", |row| row.deleted = true, false),
    ];
    for (row, change, fits) in table {
        let mut bed = Bed::new(json!({}), json!({"creation_policy": "reuse"}));
        let machine = bed.idle_machine(&offer(1.0, false), 0);
        bed.set_instance(machine, change);
        let id = bed.job(0);
        let changes = changes_of(bed.plan_job(id, at(1)));
        assert_eq!(
            changes.jobs[0].status == Some(J::Provisioning),
            *fits,
            "{row}"
        );
    }
    // What the run asks for; an unknown zone passes.
    let table = [
        (json!({"backends": ["vms"]}), true),
        (json!({"backends": ["aws"]}), false),
        (json!({"regions": ["NORTH"]}), true),
        (json!({"regions": ["south"]}), false),
        (json!({"instance_types": ["AT-1"]}), true),
        (json!({"instance_types": ["at-2"]}), false),
        (json!({"availability_zones": ["z"]}), true),
        (json!({"max_price": 0.5}), false),
        (json!({"spot_policy": "spot"}), false),
        (json!({"resources": {"cpu": "64..", "disk": null}}), false),
    ];
    for (mut keys, fits) in table {
        keys["creation_policy"] = json!("reuse");
        let mut bed = Bed::new(json!({}), keys.clone());
        bed.idle_machine(&offer(1.0, false), 0);
        let id = bed.job(0);
        let changes = changes_of(bed.plan_job(id, at(1)));
        assert_eq!(
            changes.jobs[0].status == Some(J::Provisioning),
            fits,
            "{keys}"
        );
    }
}

#[test]
fn s4_an_idle_spot_machine_is_not_for_a_run_that_did_not_ask() {
    for (policy, fits) in [
        (json!(null), false),
        (json!("on-demand"), false),
        (json!("spot"), true),
        (json!("auto"), true),
    ] {
        let mut bed = Bed::new(
            json!({}),
            json!({"spot_policy": policy, "creation_policy": "reuse"}),
        );
        bed.idle_machine(&offer(1.0, true), 0);
        let id = bed.job(0);
        let changes = changes_of(bed.plan_job(id, at(1)));
        assert_eq!(
            changes.jobs[0].status == Some(J::Provisioning),
            fits,
            "{policy}"
        );
    }
}

#[test]
fn s4_shared_machines_smallest_share() {
    for (cpus, blocks) in [(1, 1), (2, 2), (3, 3), (4, 4)] {
        let resources = json!({"cpu": format!("{cpus}.."), "memory": "1GB..", "disk": null});
        let mut bed = Bed::new(json!({"blocks": 4}), json!({"resources": resources}));
        let machine = bed.idle_machine(&offer(1.0, false), 0);
        bed.set_instance(machine, |row| row.total_blocks = Some(4));
        let id = bed.job(0);
        let changes = changes_of(bed.plan_job(id, at(1)));
        assert_eq!(changes.jobs[0].blocks, Some(blocks), "{cpus} CPUs");
        assert_eq!(changes.instances[0].status, Some(InstanceStatus::Busy));
    }
}

fn order_of(run: Value, list: &[(f64, bool)]) -> Vec<f64> {
    let mut bed = Bed::new(json!({"spot_policy": "auto"}), run);
    let list: Vec<_> = list
        .iter()
        .map(|(price, spot)| offer(*price, *spot))
        .collect();
    let id = bed.job(0);
    let (_, order) = bed.order(id, &list, at(1));
    order.offers.iter().map(|offer| offer.price).collect()
}

#[test]
fn s4_offers_by_price_and_at_most_25() {
    let list: Vec<(f64, bool)> = (1..=40).map(|price| (f64::from(price), false)).collect();
    let tried = order_of(json!({}), &list);
    assert_eq!((tried.len(), tried[0]), (25, 1.0));
}

/// Ours: so many spot offers first, then regular ones.
#[test]
fn s4_spot_tries() {
    let list = [
        (0.5, false),
        (1.0, true),
        (1.1, true),
        (1.2, true),
        (2.0, false),
    ];
    let auto = json!({"spot_policy": "auto"});
    assert_eq!(
        order_of(auto, &list),
        [0.5, 1.0, 1.1, 1.2, 2.0],
        "by price alone"
    );
    let first = json!({"spot_policy": "auto", "spot_tries": 2});
    assert_eq!(order_of(first, &list), [1.0, 1.1, 0.5, 2.0]);
    let other = json!({"spot_policy": "spot", "spot_tries": 2});
    assert_eq!(
        order_of(other, &list),
        [1.0, 1.1, 1.2],
        "only where both are allowed"
    );
}

#[test]
fn s4_unavailable_offers_are_not_tried() {
    let mut bed = Bed::new(json!({}), json!({}));
    let id = bed.job(0);
    let mut view = bed.world.job_submitted(id, at(1)).unwrap();
    let Plan::AskOffers(asks) = job_submitted::plan(&view, &mut bed.ids) else {
        panic!()
    };
    let mut gone = offer(1.0, false);
    gone.availability = dstack_backend_types::InstanceAvailability::NotAvailable;
    let list = offers::select(
        vec![vec![gone, offer(2.0, false)]],
        &asks[0].wanted,
        asks[0].sharing,
        100,
    );
    assert_eq!(
        list.iter().map(|o| o.price).collect::<Vec<_>>(),
        [2.0, 1.0],
        "they stand last"
    );
    view.offers = Some(vec![FleetOffers {
        fleet_id: asks[0].fleet_id,
        offers: list,
    }]);
    let Plan::Provision(order) = job_submitted::plan(&view, &mut bed.ids) else {
        panic!()
    };
    assert_eq!((order.offers.len(), order.total), (1, 2));
}

#[test]
fn s4_cluster_the_master_fixes_place() {
    let mut bed = Bed::new(json!({"placement": "cluster"}), json!({"nodes": 2}));
    let first = bed.job(0);
    bed.place(first, &offer(5.0, false), at(1));
    let worker = bed.job(1);
    let mut elsewhere = offer(1.0, false);
    elsewhere.region = "south".into();
    let (_, order) = bed.order(worker, &[elsewhere, offer(5.0, false)], at(2));
    assert_eq!(
        order
            .offers
            .iter()
            .map(|o| o.region.as_str())
            .collect::<Vec<_>>(),
        ["north"]
    );
}

#[test]
fn s4_cluster_that_is_being_begun_is_waited_for() {
    let mut bed = Bed::new(json!({"placement": "cluster"}), json!({}));
    let id = bed.job(0);
    let (_, order) = bed.order(id, &[offer(1.0, false)], at(1));
    let fleet = bed.fleet;
    assert!(
        order
            .before
            .guards
            .contains(&Guard::FleetHasRoom(fleet, Some(1))),
        "one first machine only"
    );
    bed.world.request(order.before.clone(), at(1)).unwrap();
    // Another run that comes meanwhile.
    let mut other = bed.world.job(id).unwrap().clone();
    other.id = dstack_engine::ids::JobId(bed.ids.uuid());
    other.replica_num = 1;
    other.instance_id = None;
    let other_id = other.id;
    bed.world.put_job(other);
    let mut view = bed.world.job_submitted(other_id, at(2)).unwrap();
    let Plan::AskOffers(asks) = job_submitted::plan(&view, &mut bed.ids) else {
        panic!()
    };
    let list = offers::select(
        vec![vec![offer(1.0, false)]],
        &asks[0].wanted,
        asks[0].sharing,
        100,
    );
    view.offers = Some(vec![FleetOffers {
        fleet_id: fleet,
        offers: list,
    }]);
    let changes = changes_of(job_submitted::plan(&view, &mut bed.ids));
    assert!(changes.is_quiet() && changes.look_again.is_some());
}

#[test]
fn s4_failure_text() {
    let mut bed = Bed::new(json!({}), json!({}));
    let id = bed.job(0);
    let list: Vec<_> = (1..=6)
        .map(|price| offer(f64::from(price), false))
        .collect();
    let (view, order) = bed.order(id, &list, at(1));
    let long = "x".repeat(300);
    let answers =
        ["no quota", "no quota", &long, "gone", "fourth"].map(|why| Attempt::Refused(why.into()));
    let mut answers = answers.to_vec();
    answers.push(Attempt::Skipped);
    let Conclusion::Done(changes) = job_submitted::conclude(&view, &order, &answers, &mut bed.ids)
    else {
        panic!()
    };
    let (_, message) = reason(&changes);
    assert_eq!(
        message,
        format!(
            "6 offers found, 5 tried: no quota; {}; gone",
            "x".repeat(200)
        )
    );
}

#[test]
fn s4_the_cheapest_fleet_is_chosen() {
    let mut bed = Bed::new(json!({}), json!({}));
    let spec = json!({"configuration": {"type": "fleet", "name": "g", "nodes": "0..4", "resources": small()}, "profile": {"name": "default"}});
    let run = bed.row().clone();
    let (second, changes) = new_fleet::create(
        run.project_id,
        run.user_id,
        "g",
        serde_json::from_value(spec).unwrap(),
        at(0),
        &mut bed.ids,
    );
    bed.world.request(changes, at(0)).unwrap();
    let id = bed.job(0);
    let mut view = bed.world.job_submitted(id, at(1)).unwrap();
    let Plan::AskOffers(asks) = job_submitted::plan(&view, &mut bed.ids) else {
        panic!()
    };
    let price = |fleet| if fleet == second { 1.0 } else { 2.0 };
    let answer = |ask: &job_submitted::OfferAsk| FleetOffers {
        fleet_id: ask.fleet_id,
        offers: offers::select(
            vec![vec![offer(price(ask.fleet_id), false)]],
            &ask.wanted,
            ask.sharing,
            100,
        ),
    };
    view.offers = Some(asks.iter().map(answer).collect());
    let Plan::Provision(order) = job_submitted::plan(&view, &mut bed.ids) else {
        panic!()
    };
    assert_eq!(order.before.new_instances[0].row.fleet_id, second);
}

#[test]
fn s4_idle_time_of_a_machine_that_a_run_made() {
    for (fleet, run, limit) in [
        (json!({}), json!({}), Some(300)),
        (json!({}), json!({"idle_duration": 60}), Some(60)),
        (
            json!({"idle_duration": "1h"}),
            json!({"idle_duration": 60}),
            Some(60),
        ),
        (json!({}), json!({"idle_duration": "off"}), None),
    ] {
        let mut bed = Bed::new(fleet, run);
        let id = bed.job(0);
        bed.place(id, &offer(1.0, false), at(1));
        let instance = bed.world.job(id).unwrap().instance_id.unwrap();
        assert_eq!(bed.world.instance(instance).unwrap().idle_limit, limit);
        let _ = machine(&offer(1.0, false), None);
    }
}
